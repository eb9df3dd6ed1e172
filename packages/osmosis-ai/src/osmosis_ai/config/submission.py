"""What the platform checks in a submit request: every value, all problems at once, defaults filled in."""

import math
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from osmosis_ai.config.engine_rules import check_engine
from osmosis_ai.config.issues import Issue, issue, shown, suggest, suggest_key
from osmosis_ai.config.names import (
    branch_problem,
    commit_problem,
    duplicates,
    env_name_problem,
    rollout_name_problem,
    secret_name_problem,
    variable_problem,
)
from osmosis_ai.config.schema import (
    EXPERIMENT,
    LR_WARN_BELOW,
    SECTIONS,
    TINY_LR_DEFAULT,
    TINY_LR_MAX,
    Key,
    RunKind,
    is_tiny_model,
)

_LONGEST_VALUE = 1000


@dataclass(frozen=True, slots=True)
class Submission:
    """An accepted submit request.

    ``config`` holds ``experiment`` and every tuning table of the kind with all defaults filled in: the ``config`` of a
    worker spec. ``provided`` are one-off secret values of this run: never store them in clear, never echo them.
    """

    kind: RunKind
    config: dict[str, dict[str, Any]]
    env: dict[str, str] = field(default_factory=dict)
    secrets: list[str] = field(default_factory=list)
    provided: dict[str, str] = field(default_factory=dict, repr=False)
    warnings: list[str] = field(default_factory=list)

    @property
    def experiment(self) -> dict[str, Any]:
        """``rollout``, ``entrypoint``, ``model_path``, ``dataset`` and, if given, ``branch`` or ``commit_sha``."""
        return self.config["experiment"]


def validate_submission(kind: RunKind, body: Any) -> Submission | list[Issue]:
    """Check the body of ``POST /api/cli/eval-runs`` or ``/training-runs``.

    Returns the submission, or the issues when there is at least one; it raises nothing.
    """
    if not isinstance(body, dict):
        return [issue("body", f"must be a JSON object, got {type(body).__name__}")]
    issues = _unknown_parts(kind, body)
    experiment = _experiment(
        _part(body, "experiment_config", issues, required=True),
        issues,
        present=isinstance(body.get("experiment_config"), dict),
    )
    model = str(experiment.get("model_path", ""))
    warnings: list[str] = []
    config: dict[str, dict[str, Any]] = {"experiment": experiment}
    names = {section: [key.name for key in keys] for section, keys in SECTIONS[kind].items()}
    for section, keys in SECTIONS[kind].items():
        given = _part(body, f"{section}_config", issues)
        config[section] = check_table(section, keys, given, issues, names)
    if kind == "training":
        _check_learning_rate(_part(body, "training_config", []), config["training"], model, issues, warnings)
        _check_lengths(config, issues)
        check_engine(config, _part(body, "secrets", []), issues)
    env = _env(_part(body, "env_config", issues), issues)
    secrets, provided = _secrets(_part(body, "secrets", issues), env, issues)
    if issues:
        return issues
    return Submission(kind, config, env, secrets, provided, warnings)


def check_table(
    section: str,
    keys: tuple[Key, ...],
    given: dict[str, Any],
    issues: list[Issue],
    names: dict[str, list[str]],
) -> dict[str, Any]:
    """The table with defaults filled in; problems are appended to ``issues``."""
    known = {key.name for key in keys}
    for name in given:
        if name not in known:
            issues.append(issue(f"{section}.{name}", "Unrecognized key", suggest_key(section, name, names)))
    filled: dict[str, Any] = {}
    for key in keys:
        value = given.get(key.name)
        path = f"{section}.{key.name}"
        if key.type == "table":
            filled[key.name] = _nested(path, key, value, issues)
        elif value is None:
            filled[key.name] = key.default
        else:
            problem = value_problem(key, value)
            if problem is not None and path != "training.lr":  # the range of lr depends on the model
                issues.append(issue(path, problem))
            filled[key.name] = value
    return filled


def value_problem(key: Key, value: Any) -> str | None:
    """Why a value is refused, or None. Booleans are not numbers; numbers must be finite and in range."""
    if key.type == "bool":
        return None if isinstance(value, bool) else f"must be true or false, got {shown(value)}"
    if key.type == "str":
        if not isinstance(value, str):
            return f"must be a string, got {shown(value)}"
        if key.choices and value not in key.choices:
            close = suggest(value, key.choices)
            return f"must be one of {key.range_text}, got {shown(value)}" + (
                f"; did you mean {close!r}?" if close else ""
            )
        return None
    if key.type == "int" and (isinstance(value, bool) or not isinstance(value, int)):
        return f"must be a whole number, got {shown(value)}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"must be a number, got {shown(value)}"
    if not math.isfinite(value):
        return f"must be a finite number, got {shown(value)}"
    low = key.minimum is not None and (value < key.minimum or (key.above and value == key.minimum))
    high = key.maximum is not None and value > key.maximum
    return f"must be {key.range_text}, got {shown(value)}" if low or high else None


def _nested(path: str, key: Key, value: Any, issues: list[Issue]) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        issues.append(issue(path, f"must be {key.range_text}, got {shown(value)}"))
        return {}
    filled = check_table(path, key.keys, value, issues, {path: [inner.name for inner in key.keys]})
    return {name: inner for name, inner in filled.items() if inner is not None}


def _part(body: dict[str, Any], name: str, issues: list[Issue], *, required: bool = False) -> dict[str, Any]:
    value = body.get(name)
    if isinstance(value, dict):
        return value
    if value is not None or required:
        issues.append(
            issue(name.removesuffix("_config"), "must be a table" if value is not None else "is required")
        )
    return {}


def _unknown_parts(kind: RunKind, body: dict[str, Any]) -> list[Issue]:
    known = [
        "experiment_config",
        *(f"{section}_config" for section in SECTIONS[kind]),
        "env_config",
        "secrets",
    ]
    return [issue(name, "Unrecognized section", suggest(name, known)) for name in body if name not in known]


def _experiment(given: dict[str, Any], issues: list[Issue], *, present: bool) -> dict[str, Any]:
    """`present` is false when the table itself was missing or wrong, which has been said already."""
    names = [key.name for key in EXPERIMENT]
    for name in given:
        if name not in names:
            issues.append(
                issue(
                    f"experiment.{name}",
                    "Unrecognized key",
                    suggest_key("experiment", name, {"experiment": names}),
                )
            )
    clean: dict[str, Any] = {}
    for key in EXPERIMENT:
        value = given.get(key.name)
        if value is None:
            if key.required and present:
                issues.append(issue(f"experiment.{key.name}", "is required"))
            continue
        problem = _experiment_problem(key.name, value)
        if problem is not None:
            issues.append(issue(f"experiment.{key.name}", problem))
        clean[key.name] = value
    if "branch" in clean and "commit_sha" in clean:
        issues.append(issue("experiment", "Provide either branch or commit_sha, not both"))
    return clean


def _experiment_problem(name: str, value: Any) -> str | None:
    if not isinstance(value, str):
        return f"must be a string, got {shown(value)}"
    if len(value) > _LONGEST_VALUE or not value.isprintable():
        return f"must be printable text of at most {_LONGEST_VALUE} characters"
    if name == "branch":
        return branch_problem(value)
    if name == "commit_sha":
        return commit_problem(value)
    if not value.strip():
        return "must not be empty"
    if name == "rollout":
        return rollout_name_problem(value)
    if name == "entrypoint":
        path = PurePosixPath(value)
        if path.is_absolute() or ".." in path.parts or "\\" in value or path.suffix != ".py":
            return f"must be a .py file inside the rollout's folder, got {shown(value)}"
    return None


def _check_learning_rate(
    given: dict[str, Any], training: dict[str, Any], model: str, issues: list[Issue], warnings: list[str]
) -> None:
    """The range of lr depends on the base model: adapters of tiny models need far larger steps."""
    key = next(key for key in SECTIONS["training"]["training"] if key.name == "lr")
    tiny = is_tiny_model(model)
    if given.get("lr") is None:
        training["lr"] = TINY_LR_DEFAULT if tiny else key.default
        return
    lr = given["lr"]
    relaxed = Key(
        "lr", "float", key.default, key.purpose, 0, TINY_LR_MAX if tiny else key.maximum, above=True
    )
    problem = value_problem(relaxed, lr)
    if problem is not None:
        issues.append(issue("training.lr", problem))
    elif lr < LR_WARN_BELOW:
        warnings.append(
            f"training.lr = {lr:g} is a rate for training all parameters. Adapters learn at about {key.default:g}; "
            "this run will hardly change the model."
        )


def _check_lengths(config: dict[str, dict[str, Any]], issues: list[Issue]) -> None:
    longest, answer = config["training"]["max_response_length"], config["advanced"]["max_completion_tokens"]
    if isinstance(longest, int) and isinstance(answer, int) and answer > longest:
        issues.append(
            issue(
                "advanced.max_completion_tokens",
                f"must not exceed training.max_response_length ({longest}), got {answer}",
            )
        )


def _env(given: dict[str, Any], issues: list[Issue]) -> dict[str, str]:
    for name, value in given.items():
        problem = env_name_problem(name)
        if problem is None and not isinstance(value, str):
            problem = f"must be a string, got {shown(value)}"
        problem = problem or variable_problem(value)
        if problem is not None:
            issues.append(issue(f"env.{name}", problem))
    return dict(given)


def _secrets(
    given: dict[str, Any], env: dict[str, str], issues: list[Issue]
) -> tuple[list[str], dict[str, str]]:
    for name in given:
        if name not in {"required", "provided"}:
            issues.append(
                issue(
                    f"secrets.{name}",
                    "Unrecognized key",
                    suggest_key("secrets", name, {"secrets": ["required"]}),
                )
            )
    required = given.get("required") or []
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        issues.append(issue("secrets.required", "must be a list of strings"))
        return [], {}
    for name in required:
        problem = secret_name_problem(name)
        if problem is not None:
            issues.append(issue("secrets.required", problem))
        elif name in env:
            issues.append(issue("secrets.required", f"{name} appears in both [env] and [secrets]"))
    repeated = duplicates(required)
    if repeated:
        issues.append(issue("secrets.required", f"Duplicate secret name(s): {', '.join(repeated)}"))
    provided = given.get("provided") or {}
    if not isinstance(provided, dict) or not all(isinstance(value, str) for value in provided.values()):
        issues.append(issue("secrets.provided", "must map secret names to strings"))
        return required, {}
    for name, value in provided.items():
        problem = variable_problem(value)
        if problem is not None:
            issues.append(issue(f"secrets.provided.{name}", problem))
        if name not in required:
            issues.append(issue("secrets.provided", f"{name} is not listed in secrets.required"))
    return required, provided
