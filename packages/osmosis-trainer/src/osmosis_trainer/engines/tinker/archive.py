"""The adapter as the server hands it out: a tar archive of a folder in PEFT format."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

import httpx
from safetensors import SafetensorError
from safetensors.torch import load

from osmosis_trainer.engines.tinker.errors import ServerError
from osmosis_trainer.engines.tinker.http import Transport, shown

_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_TIMEOUT = httpx.Timeout(600.0, connect=10.0)


def checkpoint_parts(path: str) -> tuple[str, str]:
    """Training run and checkpoint of a `tinker://` path. Raises ServerError for another form."""
    run, _, checkpoint = path.removeprefix("tinker://").partition("/")
    if not path.startswith("tinker://") or not run or not checkpoint:
        raise ServerError(f"the server named weights {path!r}, which is no tinker:// path")
    return run, checkpoint


async def download_adapter(transport: Transport, path: str, folder: Path) -> None:
    """Write the adapter at a `tinker://` path to `folder` in PEFT format. Raises ServerError when it is no plain LoRA."""
    content = await _fetch(transport, path)
    try:
        files = _unpack(content)
        config = json.loads(files[_CONFIG])
        tensors = load(files[_WEIGHTS])
    except (tarfile.TarError, EOFError, KeyError, ValueError, SafetensorError) as error:
        raise ServerError(f"the archive of {path} holds no adapter in PEFT format ({error!r})") from error
    (folder / _WEIGHTS).write_bytes(files[_WEIGHTS])
    (folder / _CONFIG).write_text(
        json.dumps(_complete(config, list(tensors), path), indent=2, sort_keys=True)
    )


def _unpack(content: bytes) -> dict[str, bytes]:
    files = {}
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            name = Path(member.name).name
            if member.isfile() and name in (_CONFIG, _WEIGHTS):
                file = archive.extractfile(member)
                assert file is not None
                files[name] = file.read()
    return files


def _complete(config: dict[str, Any], names: list[str], path: str) -> dict[str, Any]:
    """The config with what some servers leave out, and without where the base model lay there."""
    strange = [name for name in names if not name.endswith((".lora_A.weight", ".lora_B.weight"))]
    if strange or not names:
        raise ServerError(f"the archive of {path} holds {strange[:1] or 'nothing'}: no plain LoRA adapter")
    modules = sorted({name.rpartition(".lora_")[0].rpartition(".")[2] for name in names})
    return {
        **config,
        "base_model_name_or_path": None,
        "task_type": "CAUSAL_LM",
        "target_modules": config.get("target_modules") or modules,
    }


async def _fetch(transport: Transport, path: str) -> bytes:
    run, checkpoint = checkpoint_parts(path)
    # The API's checkpoint ids name their kind (`sampler_weights/x`); some servers know the last part alone.
    for name in dict.fromkeys((checkpoint, checkpoint.rpartition("/")[2])):
        place = f"/api/v1/training_runs/{run}/checkpoints/{quote(name)}/archive"
        response = await transport.request("GET", place)
        if response.is_redirect:
            return await _follow(transport, response, path)
        if response.is_success:
            return response.content
    raise ServerError(f"the adapter {path} cannot be downloaded: the server answered {shown(response)}")


async def _follow(transport: Transport, response: httpx.Response, path: str) -> bytes:
    """The content behind a redirect. A signed address elsewhere never gets the API key."""
    address = urljoin(str(response.request.url), response.headers.get("Location", ""))
    ours, theirs = urlsplit(transport.url), urlsplit(address)
    if (ours.scheme, ours.netloc) == (theirs.scheme, theirs.netloc):
        answer = await transport.request("GET", address)
    else:
        async with httpx.AsyncClient(timeout=_TIMEOUT, follow_redirects=True) as http:
            answer = await http.get(address)
    if not answer.is_success:
        raise ServerError(f"the archive of {path} cannot be downloaded: {shown(answer)}")
    return answer.content
