"""Benchmark configs: the layout is checked here, values of [execution] are the platform's."""

import pytest

from osmosis_ai.config import ConfigError
from osmosis_ai.config.benchmark import load_benchmark_config

EXPERIMENT = '[experiment]\nbenchmark = "tb"\n'
MODEL = 'model = { type = "provider", model = "openai/m", api_key_secret = "OPENAI_API_KEY" }'
AGENT = f'[[agents]]\nharness = "codex"\n{MODEL}\n'


@pytest.fixture
def load(tmp_path):
    def read(text, path="configs/benchmark/b.toml"):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return load_benchmark_config(path, tmp_path)

    return read


@pytest.fixture
def refused(load):
    def read(text, path="configs/benchmark/b.toml"):
        with pytest.raises(ConfigError) as caught:
            load(text, path)
        assert caught.value.code == "VALIDATION"
        return caught.value

    return read


def test_a_complete_config_becomes_a_request_body(load):
    config = load(
        EXPERIMENT
        + '[tasks]\ntask_names = ["a/b"]\n'
        + '[[agents]]\nharness = "cursor-cli"\nharness_api_key_secret = "CURSOR_API_KEY"\n[agents.model]\ntype = "endpoint"\n'
        + 'base_url = "https://h/v1"\nmodel = "m"\napi_key_secret = "KEY"\nextra_headers = { X-A = "1" }\n[agents.env]\nA = "2"\n'
        + '[[agents]]\n[agents.model]\ntype = "hosted"\nbase_model = "Qwen/Q"\nlora_model_name = "l"\n'
        + '[execution]\nattempts_per_task = "many"\njudge_api_key_secret = "JUDGE"\n[env]\nB = "3"\n'
    )
    assert config.request_body() == {
        "experiment_config": {"benchmark": "tb"},
        "tasks_config": {"task_names": ["a/b"]},
        "agents": [
            {
                "harness": "cursor-cli",
                "harness_api_key_secret": "CURSOR_API_KEY",
                "model": {
                    "type": "endpoint",
                    "base_url": "https://h/v1",
                    "model": "m",
                    "api_key_secret": "KEY",
                    "extra_headers": {"X-A": "1"},
                },
                "env": {"A": "2"},
            },
            {"model": {"type": "hosted", "base_model": "Qwen/Q", "lora_model_name": "l"}, "env": {}},
        ],
        "execution_config": {"attempts_per_task": "many", "judge_api_key_secret": "JUDGE"},
        "env_config": {"B": "3"},
    }
    assert config.secrets == ["KEY", "CURSOR_API_KEY", "JUDGE"]


def test_what_is_not_set_is_not_sent(load):
    body = load(EXPERIMENT + "[tasks]\n[execution]\n[env]\n" + AGENT).request_body()
    assert set(body) == {"experiment_config", "agents"}


@pytest.mark.parametrize(
    ("text", "path", "fragment"),
    [
        ("", "configs/eval/b.toml", "must live under `configs/benchmark/`"),
        ("", "configs/benchmark/b.txt", "must be a .toml file under"),
        ("a = ", "configs/benchmark/b.toml", "Invalid TOML in"),
        (AGENT, "configs/benchmark/b.toml", "Missing [experiment] section"),
        (f"experiment = 1\n{AGENT}", "configs/benchmark/b.toml", "[experiment] must be a table"),
        (EXPERIMENT, "configs/benchmark/b.toml", "Missing [[agents]] section"),
        (f"agents = 1\n{EXPERIMENT}", "configs/benchmark/b.toml", "must be an array of tables"),
        (f"{EXPERIMENT}[agents]\nx = 1", "configs/benchmark/b.toml", "must be an array of tables"),
    ],
)
def test_stages_before_the_schema(refused, text, path, fragment):
    assert fragment in refused(text, path).message


@pytest.mark.parametrize(
    ("text", "key", "message"),
    [
        (f"[experiment]\n{AGENT}", "experiment.benchmark", "is invalid: field required"),
        (f"[experiment]\nbenchmark = 1\n{AGENT}", "experiment.benchmark", "must be a string, got 1"),
        (f"{EXPERIMENT}{AGENT}[llm]\nx = 1", "llm", "Unrecognized key"),
        (f"{EXPERIMENT}branch = 'b'\n{AGENT}", "experiment.branch", "Unrecognized key"),
        (
            f"{EXPERIMENT}[tasks]\ntask_set = 'full'\n{AGENT}",
            "tasks.task_set",
            "is invalid: input should be 'parity'",
        ),
        (
            f"{EXPERIMENT}[tasks]\ntask_names = [' ']\n{AGENT}",
            "tasks.task_names.0",
            "is invalid: must not be blank",
        ),
        (f"{EXPERIMENT}[[agents]]\nharness = 'x'", "agents.0.model", "is invalid: field required"),
        (
            f"{EXPERIMENT}[[agents]]\nmodel = {{ type = 'provider', model = 'm' }}",
            "agents.0.model.provider.api_key_secret",
            "is invalid: field required",
        ),
        (f"{EXPERIMENT}{AGENT}env = {{ A = 1 }}", "agents.0.env.A", "must be a string, got 1"),
        (f"{EXPERIMENT}{AGENT}name = 'x'", "agents.0.name", "Unrecognized key"),
        (f"{EXPERIMENT}{AGENT}[execution]\nseed = 1", "execution.seed", "Unrecognized key"),
        (f"agents = []\n{EXPERIMENT}", "agents", "at least 1 item"),
        (f"{EXPERIMENT}{AGENT * 9}", "agents", "at most 8 items"),
    ],
)
def test_issues_are_collected_with_their_path(refused, text, key, message):
    error = refused(text)
    assert error.message.startswith("Invalid benchmark config:\n  - ")
    assert error.details["error"] == "Invalid benchmark config"
    [issue] = error.details["issues"]
    assert issue["key"] == key
    assert message in issue["message"]


def test_all_issues_come_at_once(refused):
    error = refused(f"{EXPERIMENT}a = 1\n{AGENT}b = 2\n[c]\n")
    assert {issue["key"] for issue in error.details["issues"]} == {"experiment.a", "agents.0.b", "c"}


@pytest.mark.parametrize("name", ["Authorization", "authorization", "AUTHORIZATION"])
def test_extra_headers_cannot_hold_a_login(refused, name):
    model = f'type = "endpoint", base_url = "https://h", model = "m", api_key_secret = "K", extra_headers = {{ {name} = "x" }}'
    assert "Authorization" in refused(f"{EXPERIMENT}[[agents]]\nmodel = {{ {model} }}").message


@pytest.mark.parametrize(
    ("env", "agent", "execution", "fragment"),
    [
        ("a = '1'", AGENT, "", "Invalid env var name"),
        ("", AGENT + "env = { _OSMOSIS_A = '1' }", "", "[agents.env] of agent 1"),
        ("", AGENT.replace("OPENAI_API_KEY", "openai"), "", "Invalid secret name"),
        ("", AGENT.replace("OPENAI_API_KEY", "HF_TOKEN"), "", "reserved"),
        ("", AGENT.replace("OPENAI_API_KEY", "SKYPILOT_API_SERVER_ENDPOINT"), "", "reserved"),
        ("OPENAI_API_KEY = '1'", AGENT, "", "agents.0.model.provider.api_key_secret"),
        ("", AGENT + "env = { OPENAI_API_KEY = '1' }", "", "agents.0.model.provider.api_key_secret"),
        ("JUDGE = '1'", AGENT, "judge_api_key_secret = 'JUDGE'", "execution.judge_api_key_secret"),
        (
            "",
            AGENT + "env = { JUDGE = '1' }",
            "judge_api_key_secret = 'JUDGE'",
            "execution.judge_api_key_secret",
        ),
        ("", AGENT, "judge_api_key_secret = 'judge'", "Invalid secret name"),
        ("HF_TOKEN = '1'", AGENT, "", "HF_TOKEN"),
        ("", AGENT + "env = { HF_TOKEN = '1' }", "", "HF_TOKEN"),
        ("", AGENT.replace("codex", "cursor-cli"), "", 'harness_api_key_secret = "CURSOR_API_KEY"'),
        (
            "",
            AGENT.replace("codex", "mini-swe-agent") + "harness_api_key_secret = 'OTHER'",
            "",
            'harness_api_key_secret = "MSWEA_API_KEY"',
        ),
        (
            "CURSOR_API_KEY = '1'",
            AGENT.replace("codex", "cursor-cli") + "harness_api_key_secret = 'CURSOR_API_KEY'",
            "",
            "plain variable",
        ),
        ("", AGENT + "harness_api_key_secret = 'lower'", "", "Invalid secret name"),
    ],
)
def test_secrets_and_variables_do_not_meet(refused, env, agent, execution, fragment):
    assert fragment in refused(f"{EXPERIMENT}{agent}\n[execution]\n{execution}\n[env]\n{env}\n").message


def test_another_agents_variable_is_no_conflict(load):
    other = AGENT.replace("OPENAI_API_KEY", "OTHER") + "env = { OPENAI_API_KEY = '1' }\n"
    assert load(f"{EXPERIMENT}{AGENT}{other}").secrets == ["OPENAI_API_KEY", "OTHER"]


def test_a_harness_secret_of_another_harness_is_left_to_the_platform(load):
    assert load(f"{EXPERIMENT}{AGENT}harness_api_key_secret = 'CURSOR_API_KEY'").secrets == [
        "OPENAI_API_KEY",
        "CURSOR_API_KEY",
    ]
