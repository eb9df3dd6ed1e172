"""Reading an eval or training config file, in stages; the first stage that fails ends the reading.

Values of the tuning tables are not checked here: the platform judges them (:mod:`osmosis_ai.config.submission`), so an
older client can pass a key value that a newer platform allows.
"""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from osmosis_ai.config.errors import ConfigError
from osmosis_ai.config.issues import Issue, issue, issue_line, shown, suggest, suggest_key
from osmosis_ai.config.names import (
    branch_problem,
    commit_problem,
    duplicates,
    env_name_problem,
    secret_name_problem,
)
from osmosis_ai.config.paths import locate_config, locate_entrypoint
from osmosis_ai.config.schema import EXPERIMENT, SECTIONS, RunKind


@dataclass(frozen=True, slots=True)
class RunConfig:
    """A config file that passed all local stages; ``sections`` holds the tuning tables as written."""

    kind: RunKind
    path: Path
    experiment: dict[str, str]
    sections: dict[str, dict[str, Any]] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    secrets: list[str] = field(default_factory=list)

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


def read_toml(path: Path) -> dict[str, Any]:
    """The file as a dictionary.

    Raises:
        ConfigError: it is no valid UTF-8 TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"Invalid TOML in {path}: {error}", details={"path": str(path)}) from error
    except OSError as error:
        raise ConfigError(f"Cannot read {path}: {error.strerror}", details={"path": str(path)}) from error


def load_config(path: str | Path, kind: RunKind, workspace_dir: Path) -> RunConfig:
    """Read ``configs/<kind>/*.toml`` of a workspace and check everything that can be checked without the platform.

    Raises:
        ConfigError: the first failing stage, with the file, the key and the rule.
    """
    file = locate_config(path, kind, workspace_dir)
    document = read_toml(file)
    experiment = _experiment_table(document, kind, file)
    secrets = _secrets(document, kind, file)
    issues = [
        *_unknown_sections(document, kind),
        *_experiment_issues(experiment),
        *_section_issues(document, kind),
    ]
    if issues:
        raise invalid_config(kind, issues)
    env: dict[str, str] = document.get("env", {})
    check_env_names(env, "[env]", file)
    check_secret_names(secrets, env, file)
    locate_entrypoint(experiment["rollout"], experiment["entrypoint"], workspace_dir)
    sections = {name: document[name] for name in SECTIONS[kind] if name in document}
    return RunConfig(kind, file, experiment, sections, env, secrets)


def invalid_config(kind: str, issues: list[Issue]) -> ConfigError:
    """One error for all collected issues."""
    heading = f"Invalid {kind} config:"
    message = "\n".join([heading, *map(issue_line, issues)])
    return ConfigError(
        message, details={"error": heading.rstrip(":"), "issues": [dict(found) for found in issues]}
    )


def _experiment_table(document: dict[str, Any], kind: RunKind, file: Path) -> dict[str, Any]:
    if "experiment" not in document:
        raise ConfigError(f"Missing [experiment] section in {file}.", details={"path": str(file)})
    for name in ("experiment", *SECTIONS[kind], "env", "secrets"):
        if name in document and not isinstance(document[name], dict):
            raise ConfigError(f"[{name}] must be a table in {file}.", details={"path": str(file)})
    experiment: dict[str, Any] = document["experiment"]
    for key in EXPERIMENT:
        if key.required and (key.name not in experiment or experiment[key.name] == ""):
            raise ConfigError(
                f"Missing '{key.name}' in [experiment] of {file}: {key.purpose.lower()}.",
                details={"path": str(file), "field": f"experiment.{key.name}"},
            )
    return experiment


def _secrets(document: dict[str, Any], kind: RunKind, file: Path) -> list[str]:
    if "secrets" not in document:
        if kind == "training":
            return []
        raise ConfigError(
            f"Missing [secrets] section in {file}. Add it with the names of the secrets that the run needs: "
            "`required = []` when it needs none.",
            details={"path": str(file)},
        )
    table: dict[str, Any] = document["secrets"]
    if set(table) - {"required"}:
        extra = ", ".join(sorted(set(table) - {"required"}))
        raise ConfigError(f"[secrets] only supports the 'required' field, got: {extra} (in {file}).")
    if "required" not in table:
        raise ConfigError(
            f"Missing 'required' in [secrets] of {file}. Use `required = []` when no secret is needed."
        )
    required = table["required"]
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise ConfigError(f"[secrets].required must be a list of strings in {file}, got {required!r}.")
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


def check_env_names(env: dict[str, str], label: str, file: Path) -> None:
    """Refuse environment variable names that the platform does not accept.

    Raises:
        ConfigError: the first bad name.
    """
    for name in env:
        problem = env_name_problem(name)
        if problem is not None:
            raise ConfigError(f"{label} in {file}: {problem}", details={"field": f"env.{name}"})


def check_secret_names(secrets: list[str], env: dict[str, str], file: Path) -> None:
    """Refuse bad, repeated or ambiguous secret names.

    Raises:
        ConfigError: the first broken rule.
    """
    repeated = duplicates(secrets)
    if repeated:
        raise ConfigError(f"Duplicate secret name(s) in [secrets].required of {file}: {', '.join(repeated)}")
    for name in secrets:
        problem = secret_name_problem(name)
        if problem is not None:
            raise ConfigError(
                f"[secrets].required in {file}: {problem}", details={"field": "secrets.required"}
            )
    both = [name for name in secrets if name in env]
    if both:
        raise ConfigError(
            f"{', '.join(both)} appears in both [env] and [secrets] of {file}. Keep the secret and remove it from [env]."
        )
