"""Development rollout servers: the platform runs one for a pushed commit, for trying a rollout by hand."""

from pathlib import Path
from shlex import quote
from typing import Any

from osmosis_ai.cli import serializers
from osmosis_ai.cli.errors import EXIT_OK, CLIError
from osmosis_ai.cli.git import tree_state
from osmosis_ai.cli.lists import Listing
from osmosis_ai.cli.output import formats
from osmosis_ai.cli.output.emit import emit_line
from osmosis_ai.cli.output.messages import status
from osmosis_ai.cli.output.mode import Mode, mode
from osmosis_ai.cli.output.results import Column, ListResult, OperationResult
from osmosis_ai.cli.paging import DEFAULT_LIMIT
from osmosis_ai.cli.prompts import Question, confirmed
from osmosis_ai.cli.remote_commits import Presence, presence_on_remote
from osmosis_ai.cli.workspace import open_workspace

PATH = "/dev-rollout-server"
_ENTRYPOINT = "main.py"
_SERVERS = Listing(
    PATH,
    "dev_rollout_servers",
    "Development Servers",
    serializers.dev_server,
    [
        Column("ID", lambda item: formats.text(item["id"])),
        Column("Rollout", lambda item: formats.text(item["name"])),
        Column("URL", lambda item: formats.text(item["url"])),
        Column("Expires At", lambda item: formats.date(item["expires_at"])),
        Column("Status", lambda item: formats.token(item["status"])),
    ],
    when_empty="No servers are running. Start one in the folder of a rollout: osmosis dev server up",
)


def start_server(ttl_hours: int | None, *, yes: bool) -> OperationResult:
    """Run the rollout of the current folder at HEAD; ``ttl_hours`` None means that it does not expire.

    Raises:
        CLIError: the folder is no rollout (``INVALID_USAGE``), or HEAD has not been pushed.
    """
    folder = Path.cwd()
    if not (folder / _ENTRYPOINT).is_file():
        raise CLIError(
            f"{folder} holds no {_ENTRYPOINT}. Change into the folder of a rollout, such as rollouts/<name>.",
            code="INVALID_USAGE",
        )
    workspace = open_workspace()
    state = tree_state(workspace.root)
    if state.head is None:
        raise CLIError("There is no commit yet. Commit and push the rollout first.")
    with status("Checking commit..."):
        presence = presence_on_remote(workspace.root, workspace.identity, state.head)
    if presence is Presence.ABSENT:
        raise CLIError(
            f"HEAD ({state.head[:8]}) was not found on origin. Push it first: git push",
            details={"commit_sha": state.head},
        )
    question = Question(
        "Start the server without the uncommitted changes?",
        {},
        warnings=["Uncommitted changes will not be part of the server."],
    )
    if state.dirty and not confirmed(question, yes=yes):
        return OperationResult("dev.server.up", status="cancelled", message="Cancelled.")
    body = {
        "rollout_name": folder.name,
        "commit_sha": state.head,
        "repository_path": folder.relative_to(workspace.root).as_posix(),
        "entrypoint": _ENTRYPOINT,
        "ttl_hours": ttl_hours,
    }
    with workspace.client as client, status("Starting server..."):
        answer = client.post(PATH, body)
    server_id, url = answer.get("id"), answer["url"]
    return OperationResult(
        "dev.server.up",
        resource={**answer, **workspace.context},
        message=f"Server started: {url}",
        next_text=[
            *([f"API key (shown only now): {answer['api_key']}"] if answer.get("api_key") else []),
            f"Expires: {formats.date(answer.get('expires_at'), seconds=True)}",
            f"Logs: osmosis dev server logs {quote(str(server_id))}",
            f"Stop it with: osmosis dev server down {quote(str(server_id))}",
        ],
    )


def stop_server(server_id: str) -> OperationResult:
    """Stop a server."""
    workspace = open_workspace()
    from osmosis_ai.platform.api.client import segment

    with workspace.client as client, status("Stopping server..."):
        answer = client.request("DELETE", f"{PATH}/{segment(server_id)}", body={})
    return OperationResult(
        "dev.server.down",
        resource={"id": server_id, **answer, **workspace.context},
        message=f"Server stopped: {server_id}",
    )


def list_servers() -> ListResult:
    """The servers of the workspace."""
    return _SERVERS.list(DEFAULT_LIMIT, everything=True)


def show_server_logs(server_id: str, tail: int, follow: bool | None) -> int:
    """Print the newest lines; with ``follow`` (the default for people) go on until the server ends or Ctrl-C."""
    workspace = open_workspace()
    from osmosis_ai.platform.api.client import segment

    path = f"{PATH}/{segment(server_id)}/logs"
    with workspace.client as client:
        if follow if follow is not None else mode() is Mode.RICH:
            from osmosis_ai.platform.api.events import stream_events

            for entry in stream_events(client, f"{path}/stream", {"tail": tail}):
                _print(entry)
        else:
            for entry in client.get(path, {"limit": tail, "direction": "older"}).get("logs", []):
                _print(entry)
    return EXIT_OK


def _print(entry: dict[str, Any]) -> None:
    shown = serializers.pick(entry, ["timestamp", "message"])
    emit_line(shown, f"{formats.date(shown['timestamp'], seconds=True)}  {formats.text(shown['message'])}")
