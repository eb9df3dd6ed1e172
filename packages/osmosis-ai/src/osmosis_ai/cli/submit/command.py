"""``osmosis eval submit`` and ``osmosis train submit``, step by step."""

from shlex import quote
from typing import Any

from osmosis_ai.cli.output.messages import status, warn
from osmosis_ai.cli.output.results import OperationResult
from osmosis_ai.cli.prompts import Question, confirmed
from osmosis_ai.cli.secrets import without_values
from osmosis_ai.cli.submit.preflight import check_rollout
from osmosis_ai.cli.submit.secrets import describe_secrets, explained
from osmosis_ai.cli.submit.source import describe_source
from osmosis_ai.cli.submit.values import values_of_file
from osmosis_ai.cli.workspace import Workspace, open_workspace
from osmosis_ai.config import RunConfig, load_config
from osmosis_ai.config.schema import RunKind
from osmosis_ai.platform.api.client import PlatformClient
from osmosis_ai.platform.errors import PlatformError
from osmosis_ai.provider_names import missing_key

_WORDS: dict[RunKind, tuple[str, str, str, str]] = {
    "eval": ("eval", "/eval-runs", "Evaluation run", "evaluation run"),
    "training": ("train", "/training-runs", "Training run", "training run"),
}


def submit_run(
    kind: RunKind, config_path: str, *, yes: bool, secrets_file: str | None = None
) -> OperationResult:
    """Check everything that can be checked here, ask, then submit. A bad config never asks.

    Values of ``secrets_file`` are used for this run and go before stored secrets.

    Raises:
        ConfigError, CLIError: something local is wrong, or a secret does not exist.
        PlatformError: the platform refused; ``details["issues"]`` lists problems of the config.
    """
    noun, path, subject, lower_subject = _WORDS[kind]
    workspace = open_workspace()
    config = load_config(config_path, kind, workspace.root)
    provided = values_of_file(config.secrets, secrets_file)
    with workspace.client as client:
        with status("Checking rollout..."):
            warnings = [
                *check_rollout(workspace.root, config.experiment["rollout"], config.experiment["entrypoint"]),
                *_missing_key(kind, config),
            ]
            source = describe_source(
                workspace.root,
                workspace.identity,
                config.experiment.get("branch"),
                config.experiment.get("commit_sha"),
            )
            scopes = describe_secrets(workspace, [name for name in config.secrets if name not in provided])
            scopes |= dict.fromkeys(provided, "Run")
        question = Question(
            f"Submit this {lower_subject}?",
            _summary(config, scopes),
            default=True,
            notes=source.notes,
            warnings=[*warnings, *source.warnings, *source.reminders],
        )
        if yes:  # nobody is asked, so nobody would see them
            for text in (*warnings, *source.warnings):
                warn("SUBMIT", text)
        if not confirmed(question, yes=yes):
            return OperationResult(f"{noun}.submit", status="cancelled", message="Cancelled.")
        with status(f"Submitting {lower_subject}..."):
            answer = _send(client, path, config, provided)
    return _result(noun, subject, workspace, config, answer)


def _missing_key(kind: RunKind, config: RunConfig) -> list[str]:
    """A warning only: the platform may serve a model of that name itself."""
    model = config.experiment["model_path"]
    variable = missing_key(model, [*config.secrets, *config.env]) if kind == "eval" else None
    if variable is None:
        return []
    return [
        f"{model} is called with {variable}, which neither [secrets] nor [env] names: unless the platform serves this model itself, "
        f"the run fails before its first row. Create it with: osmosis secret set {variable}, and list it under [secrets].required."
    ]


def _send(client: PlatformClient, path: str, config: RunConfig, provided: dict[str, str]) -> dict[str, Any]:
    body = config.request_body()
    if provided:
        body["secrets"] = {"required": config.secrets, "provided": provided}
    try:
        with without_values(provided.values()):
            return client.post(path, body)
    except PlatformError as error:
        if error.details.get("issues"):
            error.message = config.source.with_lines(error.message)
        raise explained(error) from error


def _summary(config: RunConfig, scopes: dict[str, str]) -> dict[str, str]:
    experiment = config.experiment
    summary = {
        "Rollout": experiment["rollout"],
        "Entrypoint": experiment["entrypoint"],
        "Model": experiment["model_path"],
        "Dataset": experiment["dataset"],
    }
    if "branch" in experiment:
        summary["Branch"] = experiment["branch"]
    if "commit_sha" in experiment:
        summary["Commit"] = experiment["commit_sha"]
    summary |= {f"env.{name}": config.env[name] for name in sorted(config.env)}
    return summary | {f"secret.{name}": scopes[name] for name in sorted(scopes)}


def _result(
    noun: str, subject: str, workspace: Workspace, config: RunConfig, answer: dict[str, Any]
) -> OperationResult:
    experiment, name, url = config.experiment, answer["name"], answer.get("platform_url")
    resource: dict[str, Any] = {
        "id": answer["id"],
        "name": name,
        "status": answer["status"],
        "model_name": experiment["model_path"],
        "dataset_name": experiment["dataset"],
        "created_at": answer["created_at"],
    }
    if url:
        resource["url"] = url
    resource |= workspace.context
    resource["config"] = {
        "rollout": experiment["rollout"],
        "entrypoint": experiment["entrypoint"],
        "model": experiment["model_path"],
        "dataset": experiment["dataset"],
        "branch": experiment.get("branch"),
        "commit_sha": experiment.get("commit_sha"),
    }
    steps: list[dict[str, Any]] = [{"action": f"{noun}_info", "name": name}, {"action": f"{noun}_list"}]
    text = [
        f"Status: {answer['status']}",
        f"Rollout: {experiment['rollout']}",
        f"Model: {experiment['model_path']}",
        f"Dataset: {experiment['dataset']}",
    ]
    if url:
        steps.append({"action": "open_url", "url": url})
        text.append(f"View: {url}")
    text.append(f"Follow it with: osmosis {noun} info {quote(name)}")
    for warning in answer.get("warnings") or []:
        text.append(f"Warning: {warning}")
    return OperationResult(
        f"{noun}.submit",
        resource=resource,
        message=f"{subject} submitted: {name}",
        next_steps=steps,
        next_text=text,
    )
