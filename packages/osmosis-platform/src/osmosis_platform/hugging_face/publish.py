"""A process that uploads one adapter with Hugging Face's own client: `python -m osmosis_platform.hugging_face.publish`.

It reads one JSON line, the spec: `endpoint`, `token`, `repository`, `private`, `folder`, `files` (names in it), `texts` (name to
content) and `message`; the open standard input is its lifeline. Its last line is `result:` and JSON: `{"error", "again"}`, with
`error` null when everything is there, and `again` whether it may succeed later.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import httpx2
from huggingface_hub import CommitOperationAdd, HfApi, set_client_factory
from huggingface_hub.errors import HfHubHTTPError

from osmosis_ai.worker.lifeline import start_lifeline
from osmosis_platform.hugging_face import RESULT

# Of one connect, read or write: without it a hub that does not answer would hold an upload for ever.
SILENCE_SECONDS = 60.0
BUSY = (408, 429)


def main() -> None:
    """Upload what the spec names and say how it went."""
    spec = json.loads(sys.stdin.buffer.readline())
    start_lifeline()
    set_client_factory(lambda: httpx2.Client(follow_redirects=True, timeout=SILENCE_SECONDS))
    reason, again = None, False
    try:
        publish(spec)
    except Exception as error:
        reason, again = explained(error, spec)
    sys.stdout.write(RESULT + json.dumps({"error": reason, "again": again}) + "\n")


def publish(spec: dict[str, Any]) -> None:
    """Create the repository unless it is there, and add all files in one commit; files that are there already stay."""
    api = HfApi(endpoint=spec["endpoint"], token=spec["token"])
    api.create_repo(spec["repository"], private=spec["private"], exist_ok=True)
    contents: dict[str, Path | bytes] = {
        **{name: Path(spec["folder"], name) for name in spec["files"]},
        **{name: text.encode() for name, text in spec["texts"].items()},
    }
    api.create_commit(
        spec["repository"],
        [CommitOperationAdd(name, content) for name, content in sorted(contents.items())],
        commit_message=spec["message"],
    )


def explained(error: BaseException, spec: dict[str, Any]) -> tuple[str, bool]:
    """Why an upload failed, in one sentence without the token, and whether it may succeed later."""
    cause: BaseException = error
    while not isinstance(cause, HfHubHTTPError | httpx2.TransportError) and cause.__cause__ is not None:
        cause = cause.__cause__
    if isinstance(cause, httpx2.TransportError):
        return f"Hugging Face cannot be reached at {spec['endpoint']}: {type(cause).__name__}.", True
    if isinstance(cause, HfHubHTTPError):
        return _refusal(cause, spec)
    first = (str(error).splitlines() or [""])[0]
    return f"The upload failed: {first or type(error).__name__}".replace(spec["token"], "***"), False


def _refusal(error: HfHubHTTPError, spec: dict[str, Any]) -> tuple[str, bool]:
    status = error.response.status_code
    said = f" It says: {error.server_message}" if error.server_message else ""
    said = " ".join(said.replace(spec["token"], "***").split())[:500]
    if status == 401:
        return "Hugging Face does not accept the token. Add a new one in the settings.", False
    if status == 403:
        return f"The token may not write to {spec['repository']}. {said}".strip(), False
    return f"Hugging Face answered {status}. {said}".strip(), status >= 500 or status in BUSY


if __name__ == "__main__":
    main()
