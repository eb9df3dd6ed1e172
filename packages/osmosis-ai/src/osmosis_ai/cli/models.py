"""Base models and LoRA models."""

from shlex import quote
from typing import Any
from urllib.parse import urlsplit

from osmosis_ai.cli import serializers
from osmosis_ai.cli.base_models import base_model_detail, find_base_model
from osmosis_ai.cli.errors import CLIError
from osmosis_ai.cli.output import formats
from osmosis_ai.cli.output.messages import status
from osmosis_ai.cli.output.results import (
    Block,
    Column,
    DetailResult,
    ListResult,
    OperationResult,
    Result,
    Section,
    SectionedResult,
)
from osmosis_ai.cli.paging import Page, check_limit, fetch
from osmosis_ai.cli.workspace import open_workspace
from osmosis_ai.platform.errors import PlatformError
from osmosis_ai.platform.urls import inference_url

_BASE_COLUMNS = [
    Column("Name", lambda item: formats.text(item["model_name"])),
    Column("Created", lambda item: formats.date(item["created_at"])),
    Column("Created By", lambda item: formats.text(item["creator_name"])),
]
_LORA_TITLE = "LoRA Models"
_LORA_COLUMNS = [
    Column("Name", lambda item: formats.text(item["model_name"])),
    Column("Base Model", lambda item: formats.text(item["base_model"])),
    Column("Training Run", lambda item: formats.text(item["training_run_name"])),
    Column("Checkpoint Step", lambda item: formats.text(item["checkpoint_step"])),
    Column("Training Reward", lambda item: formats.reward(item["reward"])),
    Column("Created", lambda item: formats.date(item["created_at"])),
]
_NO_BASE_MODELS = "No base models yet. Name one as model_path in a config below configs/ and submit a run."
_NO_LORA_MODELS = "No LoRA models yet. Training makes them: osmosis train submit configs/training/<name>.toml"
_DEPLOYMENT_COLUMN = Column(
    "Deployment Status",
    lambda item: "[deployed]" if item.get("deployment_status") == "active" else formats.MISSING,
)


def list_models(kind: str, limit: int, everything: bool) -> Result:
    """Base models, LoRA models, or both as two sections that are paged by themselves."""
    if kind not in {"all", "base", "lora"}:
        raise CLIError(f"Type must be 'all', 'base', or 'lora'. Got {kind!r}.")
    check_limit(limit, everything)
    workspace = open_workspace()
    sections: list[Section] = []
    extra: dict[str, Any] = dict(workspace.context)
    with workspace.client as client, status("Fetching models..."):
        if kind != "lora":
            page = fetch(client, "/models/base", "models", limit=limit, everything=everything)
            items = [serializers.base_model(item) for item in page.items]
            sections.append(
                Section("base_models", _list(page, items, _BASE_COLUMNS, "Base Models", _NO_BASE_MODELS))
            )
        if kind != "base":
            page = fetch(client, "/models/lora", "models", limit=limit, everything=everything)
            items = [serializers.lora_model(item) for item in page.items]
            deployments = (
                any("deployment_status" in item for item in items) or "active_deployments" in page.first
            )
            columns = [*_LORA_COLUMNS, *([_DEPLOYMENT_COLUMN] if deployments else [])]
            sections.append(Section("lora_models", _list(page, items, columns, _LORA_TITLE, _NO_LORA_MODELS)))
            extra |= {
                key: page.first[key]
                for key in ("active_deployments", "max_active_deployments")
                if key in page.first
            }
    hints = _quota_hint(extra)
    if kind == "all":
        return SectionedResult(sections, extra=extra, hints=hints)
    only = sections[0].page
    return ListResult(
        only.items,
        only.columns,
        only.total_count,
        only.has_more,
        only.next_offset,
        only.title,
        extra=extra,
        hints=hints,
        when_empty=only.when_empty,
        next_text=only.next_text,
    )


def model_info(name: str) -> DetailResult:
    """One LoRA model; when it is deployed, how to call it. Without a LoRA model of the name the base model."""
    workspace = open_workspace()
    from osmosis_ai.platform.api.client import segment

    with workspace.client as client, status("Fetching model..."):
        try:
            found = client.get(f"/models/{segment(name)}")
        except PlatformError as error:
            base = find_base_model(client, name) if error.status_code == 404 else None
            if base is None:
                raise
            return base_model_detail(name, base, workspace.context)
    shown = serializers.lora_model(found)
    shown |= serializers.pick(found, ["hf_upload_status", "hf_url", "uploaded_by", "inference_model"])
    url = found.get("platform_url")
    return DetailResult(
        {"lora_model": shown, "platform_url": url, **workspace.context},
        _info_rows(found),
        title="LoRA Model",
        blocks=_info_blocks(found),
        hints=_info_hints(name, found, url),
    )


def change_deployment(name: str, action: str) -> OperationResult:
    """Deploy or undeploy a LoRA model; both may be repeated."""
    workspace = open_workspace()
    from osmosis_ai.platform.api.client import segment

    with (
        workspace.client as client,
        status("Deploying model..." if action == "deploy" else "Undeploying model..."),
    ):
        answer = client.post(f"/models/{segment(name)}/{action}")
    return OperationResult(
        f"model.{action}",
        resource={**serializers.pick(answer, ["id", "model_name", "status"]), **workspace.context},
        message=f"LoRA model {action}ed: {answer.get('model_name') or name}",
        next_steps=[{"action": "model_info", "name": name}],
        next_text=[f"Details: osmosis model info {quote(name)}"],
    )


def _list(
    page: Page, items: list[dict[str, Any]], columns: list[Column], title: str, when_empty: str
) -> ListResult:
    return ListResult(
        items,
        columns,
        page.total_count,
        page.has_more,
        page.next_offset,
        title,
        when_empty=when_empty,
        next_text=["Details: osmosis model info <name>"] if title == _LORA_TITLE else [],
    )


def _quota_hint(extra: dict[str, Any]) -> list[str]:
    active, most = extra.get("active_deployments"), extra.get("max_active_deployments")
    return [f"{active} of {most} inference deployments used"] if active is not None and most else []


def _info_rows(found: dict[str, Any]) -> list[tuple[str, str]]:
    identity = [("ID", str(found["id"]))] if found.get("is_internal_user") else []
    return [
        ("Name", formats.text(found.get("model_name"))),
        *identity,
        ("Base Model", formats.text(found.get("base_model"))),
        ("Training Run", formats.text(found.get("training_run_name"))),
        ("Checkpoint Step", formats.text(found.get("checkpoint_step"))),
        ("Training Reward", formats.reward(found.get("reward"))),
        ("Created", formats.date(found.get("created_at"), seconds=True)),
    ]


def _info_blocks(found: dict[str, Any]) -> list[Block]:
    blocks: list[Block] = []
    if found.get("hf_upload_status") or found.get("hf_url"):
        lines = [
            f"Upload Status: {formats.title(found.get('hf_upload_status'))}",
            f"URL: {formats.text(found.get('hf_url'))}",
            f"Uploaded By: {formats.text(found.get('uploaded_by'))}",
        ]
        blocks.append(Block("Hugging Face", lines))
    if "deployment_status" in found:
        lines = [f"Status: {'Deployed' if found['deployment_status'] == 'active' else 'Not deployed'}"]
        if found.get("deployed_at"):
            lines.append(f"Deployed: {formats.date(found['deployed_at'], seconds=True)}")
            lines.append(f"Deployed By: {formats.text(found.get('deployed_by'))}")
        blocks.append(Block("Deployment", lines))
    return blocks


def _info_hints(name: str, found: dict[str, Any], url: str | None) -> list[str]:
    if "deployment_status" not in found:
        return [f"View: {url}"] if url else []
    if found["deployment_status"] != "active":
        return [f"Deploy with: osmosis model deploy {quote(name)}"]
    hints = [f"Undeploy with: osmosis model undeploy {quote(name)}"]
    if found.get("inference_model"):
        hints += [
            "Call it:",
            f"  curl {inference_url()}/v1/chat/completions \\",
            '    -H "Authorization: Bearer $OSMOSIS_API_KEY" -H "Content-Type: application/json" \\',
            f'    -d \'{{"model": "{found["inference_model"]}", '
            '"messages": [{"role": "user", "content": "What is 23 times 47?"}]}\'',
        ]
        if url:
            parts = urlsplit(url)
            hints.append(
                f"API keys: {parts.scheme}://{parts.netloc}/{parts.path.strip('/').split('/')[0]}/api-keys"
            )
    return hints
