"""Reading an eval or training config file, in stages; the first stage that fails ends the reading.

Values of the tuning tables are not checked here: the platform judges them (:mod:`osmosis_ai.config.submission`), so an
older client can pass a key value that a newer platform allows.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from osmosis_ai.config.errors import ConfigError
from osmosis_ai.config.issues import Issue, issue, shown, suggest, suggest_key
from osmosis_ai.config.names import (
    branch_problem,
    commit_problem,
    duplicates,
    env_name_problem,
    secret_name_problem,
)
from osmosis_ai.config.paths import locate_config, locate_entrypoint
from osmosis_ai.config.schema import EXPERIMENT, SECTIONS, RunKind
from osmosis_ai.config.source import ConfigSource, read_source

_WHEN_EMPTY = {
    "rollout": "'' is not a valid rollout name, it must be the name of one folder under rollouts/",
    "entrypoint": "entrypoint must resolve under rollouts/<rollout>/, got ''",
}


@dataclass(frozen=True, slots=True)
class RunConfig:
    """A config file that passed all local stages; ``sections`` holds the tuning tables as written."""

    kind: RunKind
    path: Path
    experiment: dict[str, str]
    sections: dict[str, dict[str, Any]] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    secrets: list[str] = field(default_factory=list)

    @property
    def source(self) -> ConfigSource:
        """The file as it is now, to say where a key stands."""
        return read_source(self.path)

    def request_body(self) -> dict[str, Any]:
        """The body of a submit request; tables without values are left out."""
        body: dict[str, Any] = {"experiment_config": dict(self.experiment)}
        for name in SECTIONS[self.kind]:
            if self.sections.get(name):
                body[f"{name}_config"] = self.sections[name]
        if self.env:
            body["env_config"] = self.env
        if self.secrets:
            body["secrets"] = {"required": self.secrets}
        return body


def load_config(path: str | Path, kind: RunKind, workspace_dir: Path) -> RunConfig:
    """Read ``configs/<kind>/*.toml`` of a workspace and check everything that can be checked without the platform.

    Raises:
        ConfigError: all problems of the first failing stage, with the file, the line, the key and the rule.
    """
    source = read_source(locate_config(path, kind, workspace_dir))
    config = check_config(source, kind)
    try:
        locate_entrypoint(config.experiment["rollout"], config.experiment["entrypoint"], workspace_dir)
    except ConfigError as error:
        raise source.pointed(error) from error
    return config


def check_config(source: ConfigSource, kind: RunKind) -> RunConfig:
    """Check everything in a config that needs neither a workspace nor the platform.

    Raises:
        ConfigError: all problems of the first failing stage, with the line, the key and the rule.
    """
    document = source.document
    experiment = _experiment_table(source, kind)
    secrets = _secrets(source, kind)
    issues = [
        *_unknown_sections(document, kind),
        *_experiment_issues(experiment),
        *_section_issues(document, kind),
    ]
    if issues:
        raise source.invalid(kind, issues)
    env: dict[str, str] = document.get("env", {})
    check_env_names(source, [("env", "[env]", env)])
    _check_secret_names(source, secrets, env)
    sections = {name: document[name] for name in SECTIONS[kind] if name in document}
    return RunConfig(kind, source.path, experiment, sections, env, secrets)


def _experiment_table(source: ConfigSource, kind: RunKind) -> dict[str, Any]:
    document = source.document
    if "experiment" not in document:
        raise source.refused(f"Missing [experiment] section in {source.path}.", "experiment")
    for name in ("experiment", *SECTIONS[kind], "env", "secrets"):
        if name in document and not isinstance(document[name], dict):
            raise source.refused(f"[{name}] must be a table in {source.where(name)}.", name)
    experiment: dict[str, Any] = document["experiment"]
    for key in EXPERIMENT:
        if key.required and (key.name not in experiment or experiment[key.name] == ""):
            field = f"experiment.{key.name}"
            purpose = _WHEN_EMPTY.get(key.name) if key.name in experiment else None
            purpose = purpose or key.purpose[:1].lower() + key.purpose[1:]
            raise source.refused(
                f"Missing '{key.name}' in [experiment] of {source.where(field)}: {purpose}.", field
            )
    return experiment


def _secrets(source: ConfigSource, kind: RunKind) -> list[str]:
    if "secrets" not in source.document:
        if kind == "training":
            return []
        raise source.refused(
            f"Missing [secrets] section in {source.path}. Add it with the names of the secrets that the run needs: "
            "`required = []` when it needs none.",
            "secrets",
        )
    table: dict[str, Any] = source.document["secrets"]
    extra = sorted(set(table) - {"required"})
    if extra:
        field = f"secrets.{extra[0]}"
        raise source.refused(
            f"[secrets] only supports the 'required' field, got: {', '.join(extra)} (in {source.where(field)}).",
            field,
        )
    if "required" not in table:
        raise source.refused(
            f"Missing 'required' in [secrets] of {source.where('secrets')}. Use `required = []` when no secret is needed.",
            "secrets",
        )
    required = table["required"]
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        field = "secrets.required"
        raise source.refused(
            f"[secrets].required must be a list of strings in {source.where(field)}, got {required!r}.", field
        )
    return required


def _unknown_sections(document: dict[str, Any], kind: RunKind) -> list[Issue]:
    known = ["experiment", *SECTIONS[kind], "env", "secrets"]
    return [
        issue(name, "Unrecognized section", suggest(name, known)) for name in document if name not in known
    ]


def _experiment_issues(experiment: dict[str, Any]) -> list[Issue]:
    issues: list[Issue] = []
    for key in EXPERIMENT:
        value = experiment.get(key.name)
        path = f"experiment.{key.name}"
        if key.name not in experiment:
            continue
        if not isinstance(value, str):
            issues.append(issue(path, f"must be a string, got {shown(value)}"))
            continue
        checks = {"branch": branch_problem, "commit_sha": commit_problem}
        problem = checks[key.name](value) if key.name in checks else None
        if problem is not None:
            issues.append(issue(path, problem))
    if "branch" in experiment and "commit_sha" in experiment:
        issues.append(issue("experiment", "Provide either branch or commit_sha, not both"))
    names = [key.name for key in EXPERIMENT]
    for name in experiment:
        if name not in names:
            issues.append(
                issue(
                    f"experiment.{name}",
                    "Unrecognized key",
                    suggest_key("experiment", name, {"experiment": names}),
                )
            )
    return issues


def _section_issues(document: dict[str, Any], kind: RunKind) -> list[Issue]:
    issues: list[Issue] = []
    names = {section: [key.name for key in keys] for section, keys in SECTIONS[kind].items()}
    for section in SECTIONS[kind]:
        if section == "advanced":
            continue  # backend settings: passed through, the platform knows them
        for name in document.get(section, {}):
            if name not in names[section]:
                issues.append(
                    issue(f"{section}.{name}", "Unrecognized key", suggest_key(section, name, names))
                )
    for name, value in document.get("env", {}).items():
        if not isinstance(value, str):
            issues.append(issue(f"env.{name}", f"must be a string, got {shown(value)}"))
    return issues


def check_env_names(source: ConfigSource, tables: list[tuple[str, str, dict[str, str]]]) -> None:
    """Refuse environment variable names that the platform does not accept; ``tables`` are paths, labels and variables.

    Raises:
        ConfigError: all bad names.
    """
    problems = [
        (f"{path}.{name}", f"{label}: {problem}")
        for path, label, env in tables
        for name in env
        if (problem := env_name_problem(name)) is not None
    ]
    if problems:
        raise source.all_refused(problems)


def _check_secret_names(source: ConfigSource, secrets: list[str], env: dict[str, str]) -> None:
    key, label = "secrets.required", "[secrets].required"
    problems = []
    repeated = duplicates(secrets)
    if repeated:
        problems.append((key, f"Duplicate secret name(s) in {label}: {', '.join(repeated)}"))
    for index, name in enumerate(secrets):
        problem = secret_name_problem(name)
        if problem is not None:
            problems.append((f"{key}.{index}", f"{label}: {problem}"))
    for name in dict.fromkeys(secrets):
        if name in env:
            text = f"{name} appears in both [env] and [secrets]. Keep the secret and remove it from [env]."
            problems.append((f"env.{name}", text))
    if problems:
        raise source.all_refused(problems)
