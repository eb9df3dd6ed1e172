"""Brings a base model from Hugging Face to this machine, with the trainer's own hub client in a process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from osmosis_platform.compute.children import Spawner
from osmosis_platform.compute.failures import RunFailed
from osmosis_platform.compute.worker import worker_env

_FETCH = (
    "import sys; from huggingface_hub import snapshot_download; "
    "print('folder:' + snapshot_download(sys.argv[1], allow_patterns=['*.json', '*.safetensors', '*.txt', '*.model', '*.jinja']))"
)


def fetch_model(
    spawner: Spawner,
    python: Path,
    name: str,
    *,
    credentials: Mapping[str, str],
    say: Callable[[str], None],
    interrupted: Callable[[], bool],
) -> Path:
    """The local folder of a model `owner/name`, downloaded unless the hub's cache has it.

    `credentials` may hold HF_TOKEN for models that need one. Raises RunFailed with the hub's own words.
    """
    say(f"Getting the base model {name} from Hugging Face.")
    token = {"HF_TOKEN": credentials["HF_TOKEN"]} if "HF_TOKEN" in credentials else {}
    child = spawner.start(
        [str(python), "-c", _FETCH, name],
        env={**worker_env(), **token, "HF_HUB_DISABLE_PROGRESS_BARS": "1"},
        cwd=Path("/"),
        on_line=lambda _line: None,
        name="hub",
    )
    while child.wait(0.2) is None:
        if interrupted():
            child.kill()
            raise RunFailed(f"Getting the base model {name} was interrupted.", "model_failed")
    child.finish_reading()
    lines = list(child.tail)
    if child.process.returncode != 0 or not lines or not lines[-1].startswith("folder:"):
        reason = "\n".join(lines[-4:]) or f"status {child.process.returncode}"
        raise RunFailed(
            f"The base model {name} cannot be fetched from Hugging Face: {reason}", "model_failed"
        )
    return Path(lines[-1].removeprefix("folder:"))
