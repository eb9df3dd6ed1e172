"""``osmosis eval retry``: run what failed in an evaluation again."""

import shlex
from typing import Any

from osmosis_ai.cli import serializers
from osmosis_ai.cli.errors import CLIError
from osmosis_ai.cli.output.messages import status
from osmosis_ai.cli.output.results import OperationResult
from osmosis_ai.cli.prompts import Question, confirmed
from osmosis_ai.cli.secrets import without_values
from osmosis_ai.cli.submit.values import secret_values
from osmosis_ai.cli.workspace import open_workspace
from osmosis_ai.platform.api.client import PlatformClient, segment
from osmosis_ai.platform.errors import PlatformError


def retry_run(name: str, secrets_file: str | None, *, yes: bool) -> OperationResult:
    """Ask, then retry. Secret values that were given for this run only are asked for again.

    Raises:
        CLIError: the run was made on somebody's own machine, or secret values are missing.
        PlatformError: the platform refused.
    """
    workspace = open_workspace()
    with workspace.client as client:
        question = Question("Retry this evaluation run?", {"Name": name}, default=True)
        if not confirmed(question, yes=yes):
            return OperationResult("eval.retry", status="cancelled", message="Cancelled.")
        answer = _retry(client, name, secrets_file)
    samples, url = answer.get("retryable_samples"), answer.get("platform_url")
    keys = ["id", "name", "status", "workflow_id", "retryable_samples", "platform_url"]
    shown = answer.get("name") or name
    what = "is retried: what is missing is run"
    if samples:
        what = f"is retried: {samples:,} sample{' is' if samples == 1 else 's are'} run again"
    elif answer.get("status") == "running":
        what = "is running already"
    return OperationResult(
        "eval.retry",
        resource={**serializers.pick(answer, keys), **workspace.context},
        message=f'Evaluation run "{shown}" {what}.',
        next_text=[
            f"Follow it with: osmosis eval info {shlex.quote(shown)} --watch",
            *([f"View: {url}"] if url else []),
        ],
    )


def _retry(client: PlatformClient, name: str, secrets_file: str | None) -> dict[str, Any]:
    path = f"/eval-runs/{segment(name)}/retry"
    try:
        with status("Retrying evaluation run..."):
            return client.post(path)
    except PlatformError as error:
        if isinstance(error.details.get("local_run"), dict):
            raise _local(error, error.details["local_run"]) from error
        needed = error.details.get("run_secret_names")
        if not isinstance(needed, list) or not needed:
            raise
    values = secret_values([str(secret) for secret in needed], secrets_file)
    with status("Retrying evaluation run..."), without_values(values.values()):
        return client.post(path, {"secrets": values})


def _local(error: PlatformError, run: dict[str, Any]) -> CLIError:
    command = ["osmosis", "eval", "run", str(run.get("config_path") or "configs/eval/<name>.toml")]
    if run.get("eval_run_name"):
        command += ["--name", str(run["eval_run_name"])]
    return CLIError(
        "This run was evaluated on somebody's own machine. Retry it there: "
        f"{shlex.join([*command, '--retry-failed'])}",
        details=error.details,
    )
