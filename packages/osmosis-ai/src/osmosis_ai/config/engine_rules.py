"""What an engine cannot do, said when a training is submitted instead of when it starts."""

from typing import Any
from urllib.parse import urlsplit

from osmosis_ai.config.issues import Issue, issue, shown

TINKER_ALPHA = 32.0
_TINKER_KEYS = ("tinker_url", "tinker_key", "tinker_model")
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
    if advanced["engine"] != "tinker":
        issues += [
            issue(f"advanced.{name}", f'needs engine = "tinker", got {shown(advanced["engine"])}')
            for name in _TINKER_KEYS
            if advanced[name] is not None
        ]
        return
    for section, name, only, why in _TINKER_FIXED:
        value = config[section][name]
        if value != only:
            wanted = "must be left out" if only is None else f"must be {only:g}"
            issues.append(
                issue(f"{section}.{name}", f'{wanted} with engine "tinker": {why}; got {shown(value)}')
            )
    _check_address(advanced["tinker_url"], issues)
    key = advanced["tinker_key"]
    required = secrets.get("required")
    if isinstance(key, str) and key not in (required if isinstance(required, list) else []):
        issues.append(issue("advanced.tinker_key", f"{shown(key)} must be listed in secrets.required"))


def _check_address(url: Any, issues: list[Issue]) -> None:
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
                "advanced.tinker_url",
                "must be an http:// or https:// address without user, password or query",
            )
        )
