"""Reading a benchmark config: which benchmark, which tasks, and up to eight agents to compare.

The layout is checked here; ranges of ``[execution]``, and what the chosen benchmark allows, are the platform's to judge.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from osmosis_ai.config.benchmark_secrets import secret_errors
from osmosis_ai.config.errors import ConfigError
from osmosis_ai.config.issues import Issue, issue, shown, suggest, suggest_key
from osmosis_ai.config.loader import env_name_errors
from osmosis_ai.config.paths import locate_config
from osmosis_ai.config.source import ConfigSource, read_source, together

MAX_AGENTS = 8
DEFAULT_ATTEMPTS_PER_TASK = 1
DEFAULT_MAX_CONCURRENT_ATTEMPTS = 4


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    return text


def _no_authorization(headers: dict[str, str]) -> dict[str, str]:
    if any(name.lower() == "authorization" for name in headers):
        raise ValueError("must not contain Authorization; name a secret as api_key_secret instead")
    return headers


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    def written(self) -> dict[str, Any]:
        """The keys that the file sets."""
        return self.model_dump(exclude_unset=True)


class Experiment(_Table):
    """``[experiment]``: a benchmark of the workspace by key, name or id."""

    benchmark: str


class Tasks(_Table):
    """``[tasks]``: names and categories are joined; a named task set goes before both."""

    task_names: list[Annotated[str, AfterValidator(_not_blank)]] = []
    categories: list[Annotated[str, AfterValidator(_not_blank)]] = []
    task_set: Literal["parity"] | None = None


class ProviderModel(_Table):
    """A model of a provider, such as ``openai/gpt-5.2``."""

    type: Literal["provider"]
    model: str
    api_key_secret: str

    @property
    def label(self) -> str:
        """The model as people read it."""
        return self.model


class EndpointModel(_Table):
    """A model behind an OpenAI-compatible address."""

    type: Literal["endpoint"]
    base_url: str
    model: str
    api_key_secret: str
    extra_headers: Annotated[dict[str, str], AfterValidator(_no_authorization)] = {}

    @property
    def label(self) -> str:
        """The model as people read it."""
        return self.model


class HostedModel(_Table):
    """A deployed LoRA model of the workspace; it needs no key."""

    type: Literal["hosted"]
    base_model: str
    lora_model_name: str

    @property
    def label(self) -> str:
        """The model as people read it."""
        return f"{self.base_model}:{self.lora_model_name}"


class Agent(_Table):
    """One ``[[agents]]`` entry. Without a harness the benchmark's official scaffold runs."""

    harness: str | None = None
    harness_api_key_secret: str | None = None
    model: Annotated[ProviderModel | EndpointModel | HostedModel, Field(discriminator="type")]
    env: dict[str, str] = {}


class Execution(_Table):
    """``[execution]``: values are passed on as written, the platform checks their ranges."""

    attempts_per_task: Any = None
    max_concurrent_attempts: Any = None
    timeout_multiplier: Any = None
    max_retries: Any = None
    pass_threshold: Any = None
    judge_model: Any = None
    judge_api_key_secret: str | None = None


class _Document(_Table):
    experiment: Experiment
    tasks: Tasks = Tasks()
    agents: Annotated[list[Agent], Field(min_length=1, max_length=MAX_AGENTS)]
    execution: Execution = Execution()
    env: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class BenchmarkConfig:
    """A benchmark config that passed all local checks."""

    path: Path
    experiment: Experiment
    tasks: Tasks
    agents: list[Agent]
    execution: Execution
    env: dict[str, str]

    @property
    def secrets(self) -> list[str]:
        """Names of the secrets that models, harnesses and the judge need, each once."""
        names: dict[str, None] = {}
        for agent in self.agents:
            for name in (getattr(agent.model, "api_key_secret", None), agent.harness_api_key_secret):
                if name is not None:
                    names[name] = None
        if self.execution.judge_api_key_secret is not None:
            names[self.execution.judge_api_key_secret] = None
        return list(names)

    def agent_documents(self) -> list[dict[str, Any]]:
        """The agents as they are sent: ``env`` always, other keys only when set."""
        return [{**agent.written(), "env": agent.env} for agent in self.agents]

    def request_body(self) -> dict[str, Any]:
        """The body of a submit request; tables without values are left out."""
        body: dict[str, Any] = {
            "experiment_config": self.experiment.written(),
            "agents": self.agent_documents(),
        }
        for key, table in (("tasks_config", self.tasks), ("execution_config", self.execution)):
            if written := table.written():
                body[key] = written
        if self.env:
            body["env_config"] = self.env
        return body


_LAYOUT: dict[str, type[_Table]] = {
    "": _Document,
    "experiment": Experiment,
    "tasks": Tasks,
    "agents": Agent,
    "agents.model.provider": ProviderModel,
    "agents.model.endpoint": EndpointModel,
    "agents.model.hosted": HostedModel,
    "execution": Execution,
}
_TABLES = {path: list(table.model_fields) for path, table in _LAYOUT.items()}
_VARIANT = re.compile(r"(?<=\.model)\.(provider|endpoint|hosted)(?=\.)")


def load_benchmark_config(path: str | Path, workspace_dir: Path) -> BenchmarkConfig:
    """Read ``configs/benchmark/*.toml`` and check everything that can be checked without the platform.

    Raises:
        ConfigError: the first failing stage, with the file, the key and the rule; problems of later stages are in its details.
    """
    source = read_source(locate_config(path, "benchmark", workspace_dir))
    errors = [*_table_errors(source)]
    parsed = None
    try:
        parsed = _Document.model_validate(source.document)
    except ValidationError as error:
        told = {found.details["field"] for found in errors}
        issues = [_issue(found) for found in error.errors() if str(found["loc"][0]) not in told]
        if issues:
            errors.append(source.invalid("benchmark", issues))
    errors += env_name_errors(source, _variables(source.document))
    config = None
    if parsed is not None:
        config = BenchmarkConfig(
            source.path, parsed.experiment, parsed.tasks, parsed.agents, parsed.execution, parsed.env
        )
        errors += [source.pointed(error) for error in secret_errors(config)]
    if errors or config is None:
        raise together(errors)
    return config


def _variables(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """Every table of environment variables with its path and what people call it."""
    agents = document.get("agents")
    tables = [("env", "[env]", document.get("env"))] + [
        (f"agents.{index}.env", f"[agents.env] of agent {index + 1}", agent.get("env"))
        for index, agent in enumerate(agents if isinstance(agents, list) else [])
        if isinstance(agent, dict)
    ]
    return [(path, label, env) for path, label, env in tables if isinstance(env, dict)]


def _table_errors(source: ConfigSource) -> Iterator[ConfigError]:
    document = source.document
    if "experiment" not in document:
        yield source.refused(f"Missing [experiment] section in {source.path}.", "experiment")
    elif not isinstance(document["experiment"], dict):
        yield source.refused(f"[experiment] must be a table in {source.where('experiment')}.", "experiment")
    if "agents" not in document:
        yield source.refused(
            f"Missing [[agents]] section in {source.path}: name at least one agent.", "agents"
        )
        return
    agents = document["agents"]
    if not isinstance(agents, list) or not all(isinstance(agent, dict) for agent in agents):
        yield source.refused(f"[[agents]] must be an array of tables in {source.where('agents')}.", "agents")


def _issue(found: ErrorDetails) -> Issue:
    key = ".".join(str(part) for part in found["loc"])
    if found["type"] == "extra_forbidden":
        return issue(key, "Unrecognized key", _meant(key))
    if found["type"] == "string_type":
        return issue(key, f"must be a string, got {shown(found['input'])}")
    text = found["msg"].removeprefix("Value error, ")
    return issue(key, f"is invalid: {text[:1].lower()}{text[1:]}")


def _meant(key: str) -> str | None:
    """The path probably meant: a close key of the same table, else the same key of another table."""
    table, _, name = key.rpartition(".")
    numbers = re.findall(r"\.(\d+)(?=\.|$)", table)
    known = re.sub(r"\.\d+(?=\.|$)", "", table)
    if not table:
        return suggest(name, _TABLES[""])
    meant = suggest_key(known, name, {path: names for path, names in _TABLES.items() if path})
    if meant is None:
        return None
    meant = _VARIANT.sub("", meant)
    return meant.replace("agents.", f"agents.{numbers[0]}.", 1) if numbers else meant
