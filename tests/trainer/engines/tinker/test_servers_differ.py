"""What servers do differently is measured when the engine opens, and made up for or refused."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch

from osmosis_trainer.engines.protocol import Objective, TrainingRow
from osmosis_trainer.engines.tinker import TinkerEngine
from osmosis_trainer.engines.tinker.errors import ProbeError, ServerError
from osmosis_trainer.engines.tinker.reduction import REDUCTIONS, StepShape, recognise
from osmosis_trainer.errors import ConfigError


async def gradient_of_a_step(engine: TinkerEngine, server: Any) -> torch.Tensor:
    rows = [
        TrainingRow(
            [5 + n, 6, *range(10, 10 + length)],
            [0, 0] + [1] * length,
            [-4.0] * (length + 2),
            1.0 - n / 2,
            0,
            str(n),
        )
        for n, length in enumerate((3, 17, 9))
    ]
    server.gradients.clear()
    await engine.forward_backward(rows, Objective(loss="is"))
    await engine.optim_step(lr=0.0, max_grad_norm=1e3)
    [gradient] = server.gradients
    return torch.cat([part.flatten() for part in gradient.values()])


async def test_the_gradient_is_the_same_whatever_the_server_divides_by(
    open_tinker: Callable[..., Any], server: Any
) -> None:
    told: list[str] = []
    expected = await gradient_of_a_step(await open_tinker(told.append), server)
    assert "adds up the losses of a step as sum and clips gradients" in told[0]
    for name in ("mean over rows of row means", "mean over tokens"):
        server.reduction = name
        engine = await open_tinker(told.append)
        assert f"as {name} and clips" in told[-1]
        got = await gradient_of_a_step(engine, server)
        assert float((got - expected).norm() / expected.norm()) < 1e-5, name
        await engine.close()


@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_reduction_is_recognised_through_the_noise_of_low_precision(name: str) -> None:
    factor = REDUCTIONS[name]
    alone, among = (StepShape(1, 12), 12), (StepShape(8, 45), 24)
    true = factor(*among) / factor(*alone)
    for noise in (0.8, 1.0, 1.25):
        assert recognise(true * noise, alone, among) == name


@pytest.mark.parametrize("ratio", [0.0, -1.0, float("nan"), float("inf"), 3.0, 0.01])
def test_other_ratios_are_not_taken_for_a_known_reduction(ratio: float) -> None:
    assert recognise(ratio, (StepShape(1, 12), 12), (StepShape(8, 45), 24)) is None


async def test_a_server_that_does_not_clip_is_refused_unless_nothing_is_to_be_clipped(
    open_tinker: Callable[..., Any], server: Any
) -> None:
    server.clips = False
    with pytest.raises(ConfigError, match=r"max_grad_norm = 1 cannot be honoured; set it to 1000"):
        await open_tinker()
    assert server.models == {}
    engine = await open_tinker(max_grad_norm=1000.0)
    assert len(server.models) == 1
    await engine.close()
    assert server.models == {}


async def test_the_wrong_key_model_or_address_is_said_and_nothing_is_made(
    open_tinker: Callable[..., Any], server: Any
) -> None:
    with pytest.raises(ConfigError, match="refuses the API key") as refused:
        await open_tinker(api_key="tml-secret-value")
    assert "tml-secret-value" not in str(refused.value)
    with pytest.raises(ConfigError, match="refuses requests without an API key"):
        await open_tinker(api_key=None)
    with pytest.raises(
        ConfigError, match=r"no model 'tiny/bas'; it has other/model, tiny/base\. Set .*tinker_model"
    ):
        await open_tinker(base_model="tiny/bas")
    with pytest.raises(ConfigError, match="no server of the Tinker API"):
        await open_tinker(url=f"{server.url}/elsewhere")
    with pytest.raises(ServerError, match=r"cannot be reached \(ConnectError\) to GET"):
        await open_tinker(url="http://127.0.0.1:9", patience_s=0.0)
    assert server.models == {}
    assert "create_session" not in server.calls


async def test_a_sampler_with_older_weights_fails_the_publication(
    open_tinker: Callable[..., Any], server: Any, train: Callable[..., Any]
) -> None:
    engine = await open_tinker()
    await train(engine, 1)
    server.stale = True
    with pytest.raises(ProbeError, match="does not sample from the weights it trains"):
        await train(engine, 1)
    assert engine.policy_version == 1


async def test_the_shorter_of_the_contexts_holds(open_tinker: Callable[..., Any], server: Any) -> None:
    server.context = 100
    assert (await open_tinker()).max_context == 100
    assert (await open_tinker(max_context=70)).max_context == 70


async def test_the_key_is_never_logged_or_shown(
    open_tinker: Callable[..., Any], server: Any, tinker_server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    told: list[str] = []
    server.faults["forward"] = [503]
    engine = await open_tinker(told.append)
    assert tinker_server.KEY not in "".join([*told, caplog.text, repr(engine.settings)])
    assert "trying again" in caplog.text
