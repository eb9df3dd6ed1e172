"""Reading an eval or training config file, in stages; the first that fails gives the error, later ones what else is wrong.

Values of the tuning tables are not checked here: the platform judges them (:mod:`osmosis_ai.config.submission`), so an
older client can pass a key value that a newer platform allows.
"""

from collections.abc import Iterator
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
from osmosis_ai.config.source import ConfigSource, read_source, together

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
        ConfigError: all problems of the first failing stage, with the file, the line, the key and the rule; those of later
            stages are in its details.
    """
    source = read_source(locate_config(path, kind, workspace_dir))
    return _checked(source, kind, [*_stages(source, kind), *_path_errors(source, workspace_dir)])


def check_config(source: ConfigSource, kind: RunKind) -> RunConfig:
    """Check everything in a config that needs neither a workspace nor the platform.

    Raises:
        ConfigError: as `load_config` does.
    """
    return _checked(source, kind, [*_stages(source, kind)])


def _checked(source: ConfigSource, kind: RunKind, errors: list[ConfigError]) -> RunConfig:
    document = source.document
    if errors:
        raise together(errors, _value_issues(source, kind))
    sections = {name: document[name] for name in SECTIONS[kind] if name in document}
    required = document.get("secrets", {}).get("required", [])
    return RunConfig(kind, source.path, document["experiment"], sections, document.get("env", {}), required)


def _stages(source: ConfigSource, kind: RunKind) -> Iterator[ConfigError]:
    """What each stage has found, in their order."""
    document = source.document
    yield from _table_errors(source, kind)
    yield from _secrets_errors(source, kind)
    issues = [
        *_unknown_sections(document, kind),
        *_experiment_issues(_table(document, "experiment")),
        *_section_issues(document, kind),
    ]
    if issues:
        yield source.invalid(kind, issues)
    env = _table(document, "env")
    yield from env_name_errors(source, [("env", "[env]", env)])
    required = _table(document, "secrets").get("required")
    if isinstance(required, list):
        yield from _secret_name_errors(source, required, env)


def _table(document: dict[str, Any], name: str) -> dict[str, Any]:
    """A table of the file; empty when it is missing or no table."""
    table = document.get(name)
    return table if isinstance(table, dict) else {}


def _table_errors(source: ConfigSource, kind: RunKind) -> Iterator[ConfigError]:
    document = source.document
    if "experiment" not in document:
        yield source.refused(f"Missing [experiment] section in {source.path}.", "experiment")
    for name in ("experiment", *SECTIONS[kind], "env", "secrets"):
        if name in document and not isinstance(document[name], dict):
            yield source.refused(f"[{name}] must be a table in {source.where(name)}.", name)
    experiment = document.get("experiment")
    if not isinstance(experiment, dict):
        return
    for key in EXPERIMENT:
        if key.required and (key.name not in experiment or experiment[key.name] == ""):
            field = f"experiment.{key.name}"
            purpose = _WHEN_EMPTY.get(key.name) if key.name in experiment else None
            purpose = purpose or key.purpose[:1].lower() + key.purpose[1:]
            yield source.refused(
                f"Missing '{key.name}' in [experiment] of {source.where(field)}: {purpose}.", field
            )


def _secrets_errors(source: ConfigSource, kind: RunKind) -> Iterator[ConfigError]:
    if "secrets" not in source.document:
        if kind == "eval":
            yield source.refused(
                f"Missing [secrets] section in {source.path}. Add it with the names of the secrets that the run needs: "
                "`required = []` when it needs none.",
                "secrets",
            )
        return
    table = source.document["secrets"]
    if not isinstance(table, dict):
        return
    extra = sorted(set(table) - {"required"})
    if extra:
        field = f"secrets.{extra[0]}"
        yield source.refused(
            f"[secrets] only supports the 'required' field, got: {', '.join(extra)} (in {source.where(field)}).",
            field,
        )
    if "required" not in table:
        yield source.refused(
            f"Missing 'required' in [secrets] of {source.where('secrets')}. Use `required = []` when no secret is needed.",
            "secrets",
        )
        return
    required = table["required"]
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        field = "secrets.required"
        yield source.refused(
            f"[secrets].required must be a list of strings in {source.where(field)}, got {required!r}.", field
        )


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
        for name in _table(document, section):
            if name not in names[section]:
                issues.append(
                    issue(f"{section}.{name}", "Unrecognized key", suggest_key(section, name, names))
                )
    for name, value in _table(document, "env").items():
        if not isinstance(value, str):
            issues.append(issue(f"env.{name}", f"must be a string, got {shown(value)}"))
    return issues


def env_name_errors(
    source: ConfigSource, tables: list[tuple[str, str, dict[str, Any]]]
) -> Iterator[ConfigError]:
    """One error for all environment variable names that the platform does not accept.

    ``tables`` are paths, labels and variables.
    """
    problems = [
        (f"{path}.{name}", f"{label}: {problem}")
        for path, label, env in tables
        for name in env
        if (problem := env_name_problem(name)) is not None
    ]
    if problems:
        yield source.all_refused(problems)


def _secret_name_errors(
    source: ConfigSource, required: list[Any], env: dict[str, Any]
) -> Iterator[ConfigError]:
    key, label = "secrets.required", "[secrets].required"
    names = [(index, name) for index, name in enumerate(required) if isinstance(name, str)]
    problems = []
    repeated = duplicates(name for _, name in names)
    if repeated:
        problems.append((key, f"Duplicate secret name(s) in {label}: {', '.join(repeated)}"))
    for index, name in names:
        problem = secret_name_problem(name)
        if problem is not None:
            problems.append((f"{key}.{index}", f"{label}: {problem}"))
    for name in dict.fromkeys(name for _, name in names):
        if name in env:
            text = f"{name} appears in both [env] and [secrets]. Keep the secret and remove it from [env]."
            problems.append((f"env.{name}", text))
    if problems:
        yield source.all_refused(problems)


def _path_errors(source: ConfigSource, workspace_dir: Path) -> Iterator[ConfigError]:
    experiment = _table(source.document, "experiment")
    rollout, entrypoint = experiment.get("rollout"), experiment.get("entrypoint")
    if not (isinstance(rollout, str) and isinstance(entrypoint, str) and rollout and entrypoint):
        return
    try:
        locate_entrypoint(rollout, entrypoint, workspace_dir)
    except ConfigError as error:
        yield source.pointed(error)


def _value_issues(source: ConfigSource, kind: RunKind) -> list[Issue]:
    """What the platform would say about the values of the tuning tables of a file that is refused anyway."""
    from osmosis_ai.config.submission import validate_submission

    document = source.document
    body = {f"{name}_config": _table(document, name) for name in ("experiment", *SECTIONS[kind])}
    found = validate_submission(kind, {**body, "secrets": _table(document, "secrets")})
    if not isinstance(found, list):
        return []
    return [source.placed(value) for value in found if value["key"].partition(".")[0] in SECTIONS[kind]]
