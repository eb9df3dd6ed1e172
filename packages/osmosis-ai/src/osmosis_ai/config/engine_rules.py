"""What an engine cannot do, said when a training is submitted instead of when it starts."""

from typing import Any
from urllib.parse import urlsplit

from osmosis_ai.config.issues import Issue, issue, shown
from osmosis_ai.config.schema import TRAINING_ADVANCED

TINKER_ALPHA = 32.0
_OWN_KEYS = {
    owner: {key.name: key.default for key in TRAINING_ADVANCED if key.name.startswith(f"{owner}_")}
    for owner in ("tinker", "split")
}
# Settings that a server of the Tinker API cannot honour: section, key, the one value it can, and why.
_TINKER_FIXED = (
    ("advanced", "lora_alpha", TINKER_ALPHA, "the Tinker API has no field for it"),
    ("advanced", "torch_threads", None, "the server computes"),
    ("sampling", "rollout_temperature", 1.0, "the server's learner knows temperature 1 only"),
    ("sampling", "rollout_top_p", 1.0, "the server's learner knows the whole distribution only"),
)


def check_engine(config: dict[str, dict[str, Any]], secrets: dict[str, Any], issues: list[Issue]) -> None:
    """Append an issue for every setting that the chosen engine cannot honour.

    ``config`` has all defaults filled in; ``secrets`` is the table of the same name as it was submitted.
    """
    advanced = config["advanced"]
    engine = advanced["engine"]
    for owner, names in _OWN_KEYS.items():
        if engine != owner:
            issues += [
                issue(f"advanced.{name}", f'needs engine = "{owner}", got {shown(engine)}')
                for name, default in names.items()
                if advanced[name] != default
            ]
    if engine == "tinker":
        _check_tinker(config, issues)
    if engine == "split":
        _check_split(config, issues)
    for name in ("tinker_key", "split_key"):
        key, required = advanced[name], secrets.get("required")
        if isinstance(key, str) and key not in (required if isinstance(required, list) else []):
            issues.append(issue(f"advanced.{name}", f"{shown(key)} must be listed in secrets.required"))


def _check_tinker(config: dict[str, dict[str, Any]], issues: list[Issue]) -> None:
    for section, name, only, why in _TINKER_FIXED:
        value = config[section][name]
        if value != only:
            wanted = "must be left out" if only is None else f"must be {only:g}"
            issues.append(
                issue(f"{section}.{name}", f'{wanted} with engine "tinker": {why}; got {shown(value)}')
            )
    _check_address("tinker_url", config["advanced"]["tinker_url"], issues)


def _check_split(config: dict[str, dict[str, Any]], issues: list[Issue]) -> None:
    listed = config["advanced"]["split_servers"]
    if isinstance(listed, str):
        urls = [url.strip().rstrip("/") for url in listed.split(",")]
        for url in urls:
            _check_address("split_servers", url, issues)
        if len(set(urls)) < len(urls):
            issues.append(issue("advanced.split_servers", "names a server twice"))
    if config["advanced"]["split_sharding"] == "fsdp" and config["advanced"]["split_learners"] == 1:
        issues.append(
            issue(
                "advanced.split_sharding",
                "spreads the base model over learner processes: set split_learners to 2 or more, or leave it out",
            )
        )
    if config["advanced"]["split_dialect"] == "sglang" and config["sampling"]["rollout_top_p"] != 1.0:
        issues.append(
            issue(
                "sampling.rollout_top_p",
                "must be 1 with SGLang servers: their log-probabilities leave top-p out; "
                f"got {shown(config['sampling']['rollout_top_p'])}",
            )
        )


def _check_address(key: str, url: Any, issues: list[Issue]) -> None:
    if not isinstance(url, str):
        return
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
        good = good and not parts.query and not parts.fragment
    except ValueError:
        good = False
    if not good:
        # The value is not repeated: it may hold a password.
        issues.append(
            issue(
                f"advanced.{key}",
                "must be an http:// or https:// address without user, password or query",
            )
        )
