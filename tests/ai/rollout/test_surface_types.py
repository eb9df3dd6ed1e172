"""Names, fields, defaults and rules of the public data models, contexts and base classes, row by row."""

import asyncio
import numbers
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

import osmosis_ai.rollout as rollout
from osmosis_ai.rollout import context, types
from osmosis_ai.rollout.context import RolloutContext, get_rollout_context, rollout_contextvar
from osmosis_ai.rollout.types import config, output, protocol, sample

INIT = {"initial_messages": [], "chat_completions_url": "", "completion_callback_url": "u"}

FIELDS: dict[Any, dict[str, Any]] = {
    types.ConcurrencyConfig: {"max_concurrent": None},
    types.BaseConfig: {"name": ..., "description": None},
    types.RolloutSample: {
        "messages": [],
        "trajectory_messages": [],
        "label": None,
        "reward": None,
        "remove_sample": False,
        "metrics": {},
        "extra_fields": {},
    },
    types.ExecutionRequest: {
        "id": ...,
        "prompt": ...,
        "label": None,
        "metadata": None,
        "agent_timeout_sec": None,
        "grader_timeout_sec": None,
    },
    types.ExecutionResult: {
        "status": ...,
        "sample": None,
        "err_message": None,
        "err_category": None,
        "extra_fields": None,
    },
    types.AgentWorkflowOutput: {"messages": None, "metrics": {}, "info": {}},
    types.RolloutInitRequest: {
        "initial_messages": ...,
        "chat_completions_url": ...,
        "completion_callback_url": ...,
        "grader_callback_url": None,
        "rollout_id": None,
        "label": None,
        "metadata": None,
        "controller_api_key": None,
        "llm_api_key": None,
        "agent_timeout_sec": None,
        "grader_timeout_sec": None,
        "extra_fields": None,
    },
    types.RolloutInitResponse: {},
    types.RolloutCompleteRequest: {
        "status": ...,
        "rollout_id": None,
        "extra_fields": None,
        "err_message": None,
        "err_category": None,
    },
    types.GraderInitRequest: {
        "sample": ...,
        "completion_callback_url": ...,
        "rollout_id": None,
        "extra_fields": None,
        "controller_api_key": None,
    },
    types.GraderInitResponse: {},
    types.GraderCompleteRequest: {
        "status": ...,
        "rollout_id": None,
        "sample": None,
        "err_message": None,
        "err_category": None,
    },
    types.RolloutStatusResponse: {"rollout_id": ..., "status": ..., "reward": None, "err_message": None},
    types.CancelRolloutsRequest: {"ids": None, "prefix": None, "all": False},
    types.CancelRolloutsResponse: {"dispositions": ...},
}
VALUES = {
    "status": "success",
    "sample": {},
    "dispositions": {},
    "initial_messages": [],
    "prompt": [],
}


@pytest.mark.parametrize("model", FIELDS, ids=lambda model: model.__name__)
def test_fields_and_defaults(model: type[BaseModel]) -> None:
    fields = FIELDS[model]
    assert list(model.model_fields) == list(fields)
    required = {name for name, default in fields.items() if default is ...}
    assert {name for name, info in model.model_fields.items() if info.is_required()} == required
    made = model(**{name: VALUES.get(name, "x") for name in required})
    for name, default in fields.items():
        if default is not ...:
            assert getattr(made, name) == default
    for name in required:
        with pytest.raises(ValidationError):
            model(**{other: VALUES.get(other, "x") for other in required - {name}})


@pytest.mark.parametrize(
    "model", [m for m in FIELDS if m not in (types.AgentWorkflowOutput, types.BaseConfig)], ids=str
)
def test_unknown_fields_are_ignored(model: type[BaseModel]) -> None:
    required = {
        name: VALUES.get(name, "x") for name, info in model.model_fields.items() if info.is_required()
    }
    assert not hasattr(model(**required, newer=1), "newer")


@pytest.mark.parametrize(
    ("enum", "values"),
    [
        (
            types.RolloutStatus,
            ["queued", "running", "grading", "success", "failure", "cancelled", "unknown"],
        ),
        (types.GraderStatus, ["pending", "success", "failure"]),
        (types.RolloutErrorCategory, ["timeout", "validation_error", "http_error", "agent_error"]),
    ],
)
def test_enumerations(enum: Any, values: list[str]) -> None:
    assert list(enum) == values
    assert list(enum.__members__) == [value.upper() for value in values]
    assert all(isinstance(member, str) for member in enum)


def test_where_the_types_are() -> None:
    assert types.MessageDict == dict[str, Any]
    assert types.Messages == list[dict[str, Any]]
    for name in FIELDS:
        assert getattr(types, name.__name__) is name
    assert config.GraderConfig is rollout.GraderConfig
    assert protocol.RolloutInitRequest is rollout.RolloutInitRequest
    assert sample.RolloutSample is rollout.RolloutSample
    assert output.coerce_output is types.coerce_output
    assert set(rollout.__all__) <= set(dir(rollout))
    with pytest.raises(AttributeError, match=r"module 'osmosis_ai\.rollout' has no attribute 'Nothing'"):
        _ = rollout.Nothing  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", [types.AgentWorkflowConfig, types.GraderConfig])
def test_configs(kind: Any) -> None:
    made = kind(name="n", tools=[len])
    assert (made.description, made.tools, made.concurrency.max_concurrent) == (None, [len], None)
    assert made.concurrency is not kind(name="n").concurrency
    made.description = "d"
    for field, bad in (("name", 5), ("name", None), ("concurrency", 3)):
        with pytest.raises(ValidationError):
            setattr(made, field, bad)
    for bad in (0, -1, "many"):
        with pytest.raises(ValidationError):
            types.ConcurrencyConfig(max_concurrent=bad)

    class Tool:
        pass

    class Own(kind):
        name: str = "own"
        tool: Tool = Tool()

    assert isinstance(Own().tool, Tool)
    with pytest.raises(ValidationError):
        Own().tool = 5


@pytest.mark.parametrize("kind", [int, float])
def test_any_registered_number_is_made_safe(kind: type, caplog: pytest.LogCaptureFixture) -> None:
    class Foreign:
        def __float__(self) -> float:
            return 2.0

        def __int__(self) -> int:
            return 2

        def __hash__(self) -> int:
            return 2

    (numbers.Integral if kind is int else numbers.Real).register(Foreign)  # type: ignore[type-abstract]
    made = rollout.RolloutSample(metrics={"n": Foreign(), Foreign(): 1, True: 2}, reward=0.5)
    safe = made.json_safe_copy()
    assert safe is not made
    assert safe.metrics == {"n": 2, "2" if kind is int else "2.0": 1, "true": 2}
    assert type(safe.metrics["n"]) is kind
    assert (safe.reward, caplog.records) == (0.5, [])


@pytest.mark.parametrize("field", ["agent_timeout_sec", "grader_timeout_sec"])
@pytest.mark.parametrize(
    ("value", "kept"), [("nan", False), ("inf", False), ("-inf", False), (0, True), (-3.5, True)]
)
def test_timeouts_are_finite(field: str, value: Any, kept: bool) -> None:
    for model, required in (
        (types.RolloutInitRequest, INIT),
        (types.ExecutionRequest, {"id": "r", "prompt": []}),
    ):
        if kept:
            assert getattr(model(**required, **{field: value}), field) == value
        else:
            with pytest.raises(ValidationError):
                model(**required, **{field: float(value)})


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"metrics": {"k": float("nan")}}, ("finite_number", ("metrics", "k"))),
        ({"metrics": {"k": float("inf")}}, ("finite_number", ("metrics", "k"))),
        ({"other": 1}, ("extra_forbidden", ("other",))),
    ],
)
def test_outputs_refuse(value: dict[str, Any], problem: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        types.AgentWorkflowOutput(**value)
    assert [(error["type"], error["loc"]) for error in caught.value.errors()] == [problem]


def test_a_nested_output_is_validated_again() -> None:
    class Outer(BaseModel):
        output: types.AgentWorkflowOutput

    changed = types.AgentWorkflowOutput(metrics={"a": 1.0})
    changed.metrics["a"] = float("nan")
    with pytest.raises(ValidationError, match="finite"):
        Outer(output=changed)


def test_contexts_take_their_arguments_in_this_order() -> None:
    assert [context.CHAT_COMPLETIONS_URL_ENV, context.API_KEY_ENV, context.ROLLOUT_ID_ENV] == [
        "OSMOSIS_CHAT_COMPLETIONS_URL",
        "OSMOSIS_API_KEY",
        "OSMOSIS_ROLLOUT_ID",
    ]
    source: Any = object()  # anything may be a source
    ctx = RolloutContext("url", "secret", "id", source)
    assert (ctx.chat_completions_url, ctx.api_key, ctx.rollout_id, ctx.sample_source) == (
        "url",
        "secret",
        "id",
        source,
    )
    assert "secret" in repr(ctx)
    assert (RolloutContext().chat_completions_url, RolloutContext().api_key, RolloutContext().rollout_id) == (
        "",
        None,
        "",
    )
    graded = rollout.GraderContext("label", rollout.RolloutSample(), "project", {"m": 1}, None)
    assert (graded.label, graded.project_path, graded.metadata) == ("label", "project", {"m": 1})
    agent: Any = rollout.AgentWorkflowContext([{"role": "user"}], None, {"m": 1}, None)
    assert (agent.prompt, agent.config, agent.metadata, agent.artifacts_dir) == (
        [{"role": "user"}],
        None,
        {"m": 1},
        None,
    )
    assert rollout.GraderContext() == rollout.GraderContext(None, None, None, None, None)
    with pytest.raises(TypeError):
        rollout.AgentWorkflowContext()  # type: ignore[call-arg]
    with pytest.raises(ValidationError):
        graded.set_reward(float("nan"))


async def test_contexts_reach_no_executor_thread_and_let_errors_pass() -> None:
    async def run() -> None:
        with RolloutContext(rollout_id="r"):
            raise KeyError(await asyncio.get_running_loop().run_in_executor(None, get_rollout_context))

    with pytest.raises(KeyError) as caught:
        await run()
    assert caught.value.args == (None,)
    assert rollout_contextvar.get() is None


@pytest.mark.parametrize(
    ("base", "method"),
    [
        (rollout.AgentWorkflow, "run"),
        (rollout.Grader, "grade"),
        (rollout.SampleSource, "get_sample"),
        (rollout.ExecutionBackend, "execute"),
    ],
)
def test_base_classes_are_abstract(base: Any, method: str) -> None:
    with pytest.raises(TypeError, match=method):
        base()

    async def implementation(self: Any, *args: Any) -> None: ...

    made = type("Own", (base,), {method: implementation})()
    if base in (rollout.AgentWorkflow, rollout.Grader):
        assert made.config is None
        assert type(made)("given").config == "given"
