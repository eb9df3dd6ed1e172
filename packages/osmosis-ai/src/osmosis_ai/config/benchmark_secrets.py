"""Which secrets a benchmark config may name, and where: a resolved secret must never meet a plain value of the same name."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from osmosis_ai.config.errors import ConfigError
from osmosis_ai.config.names import secret_name_problem

if TYPE_CHECKING:
    from osmosis_ai.config.benchmark import Agent, BenchmarkConfig

# Names that the benchmark runner sets itself.
RESERVED_MODEL_SECRETS = frozenset(
    {
        "HF_TOKEN",
        "DAYTONA_API_KEY",
        "DAYTONA_API_URL",
        "SKYPILOT_SERVICE_ACCOUNT_TOKEN",
        "SKYPILOT_API_SERVER_ENDPOINT",
    }
)
RESERVED_ENV = frozenset({"HF_TOKEN"})
# Harnesses that log in by themselves, and the variable that each of them reads.
HARNESS_SECRETS = {"cursor-cli": "CURSOR_API_KEY", "mini-swe-agent": "MSWEA_API_KEY"}


def secret_errors(config: "BenchmarkConfig") -> Iterator[ConfigError]:
    """Every broken rule in order, with the key in ``details["field"]``."""
    for name in RESERVED_ENV & config.env.keys():
        yield _problem("env", f"{name} is reserved by the benchmark runner and cannot be set in [env].")
    for index, agent in enumerate(config.agents):
        yield from _agent_errors(f"agents.{index}", agent, config.env | agent.env)
    judge = config.execution.judge_api_key_secret
    if judge is not None:
        field = "execution.judge_api_key_secret"
        yield from _name_errors(field, judge)
        if any(judge in config.env | agent.env for agent in config.agents):
            yield _problem(field, f"{judge} must not be a variable of [env] or [agents.env] too.")


def _agent_errors(field: str, agent: "Agent", env: dict[str, str]) -> Iterator[ConfigError]:
    key = getattr(agent.model, "api_key_secret", None)
    if key is not None:
        where = f"{field}.model.{agent.model.type}.api_key_secret"
        yield from _name_errors(where, key)
        if key in RESERVED_MODEL_SECRETS:
            yield _problem(where, f"{key} is reserved by the benchmark runner; use a secret of another name.")
        if key in env:
            yield _problem(where, f"{key} must not be a variable of this agent's environment too.")
    if agent.harness_api_key_secret is not None:
        yield from _name_errors(f"{field}.harness_api_key_secret", agent.harness_api_key_secret)
    for name in RESERVED_ENV & agent.env.keys():
        yield _problem(f"{field}.env", f"{name} is reserved by the benchmark runner and cannot be set here.")
    yield from _harness_errors(field, agent, env)


def _harness_errors(field: str, agent: "Agent", env: dict[str, str]) -> Iterator[ConfigError]:
    expected = HARNESS_SECRETS.get(agent.harness or "")
    if expected is None:
        return
    if expected in env:
        yield _problem(
            f"{field}.env", f"{expected} must not be a plain variable: it comes from harness_api_key_secret."
        )
    if agent.harness_api_key_secret != expected:
        yield _problem(
            f"{field}.harness_api_key_secret",
            f'the harness {agent.harness} needs harness_api_key_secret = "{expected}".',
        )


def _name_errors(field: str, name: str) -> Iterator[ConfigError]:
    problem = secret_name_problem(name)
    if problem is not None:
        yield _problem(field, problem)


def _problem(field: str, text: str) -> ConfigError:
    return ConfigError(f"{field}: {text}", details={"field": field})
