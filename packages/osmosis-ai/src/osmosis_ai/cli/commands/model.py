"""``osmosis model``."""

import click

from osmosis_ai.cli.options import name, paged
from osmosis_ai.cli.output.results import Result
from osmosis_ai.cli.tree import Group

LORA_MODEL = name("lora_model_name", "LORA_MODEL")


@click.group("model", cls=Group)
def app() -> None:
    """List models; deploy and undeploy LoRA models."""


@app.command("list")
@click.option("--type", "kind", default="all", show_default=True, help="all, base or lora.")
@paged
def list_(kind: str, limit: int, everything: bool) -> Result:
    """List base models and LoRA models."""
    from osmosis_ai.cli.models import list_models

    return list_models(kind, limit, everything)


@app.command("info")
@LORA_MODEL
def info(lora_model_name: str) -> Result:
    """Show a LoRA model, or a base model."""
    from osmosis_ai.cli.models import model_info

    return model_info(lora_model_name)


@app.command("deploy")
@LORA_MODEL
def deploy(lora_model_name: str) -> Result:
    """Serve a LoRA model for inference."""
    from osmosis_ai.cli.models import change_deployment

    return change_deployment(lora_model_name, "deploy")


@app.command("undeploy")
@LORA_MODEL
def undeploy(lora_model_name: str) -> Result:
    """Stop serving a LoRA model."""
    from osmosis_ai.cli.models import change_deployment

    return change_deployment(lora_model_name, "undeploy")
