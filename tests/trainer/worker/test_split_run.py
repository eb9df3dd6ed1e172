"""The whole loop on the split engine: two learner processes, and a sampling server that speaks vLLM's wire format."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from safetensors.torch import load_file

from osmosis_trainer.tiny import TINY_MULTIPLY, model_path


async def test_a_run_on_two_learners_and_a_server_learns(
    make_run: Any, platform: Any, sampling_server: ModuleType
) -> None:
    tiny = model_path(TINY_MULTIPLY)
    server = sampling_server.SamplingServer(tiny)
    split = {
        "engine": "split",
        "split_servers": await server.start(),
        "split_learners": 2,
        "max_steps": 4,
        "validation_rows": 0,
        "max_staleness": 1,
    }
    run = make_run(advanced=split, training={"lr": 4e-3, "n_samples_per_prompt": 8})
    run.spec["base_model"] = {"name": TINY_MULTIPLY, "path": str(tiny)}
    try:
        assert await run.work() == 0
    finally:
        await server.kill()
    assert platform.of("failed") == []
    assert any("2 learner process(es) on cpu in float32" in line for line in platform.log())
    rewards = platform.values("rollout/raw_reward")
    assert set(rewards) == {1, 2, 3, 4}
    # The first two steps are sampled by the base model.
    assert rewards[3] + rewards[4] > rewards[1] + rewards[2] + 0.2, rewards
    # Sampler and learner are two programs that agree on every token of the same policy.
    assert all(gap < 1e-4 for gap in platform.values("train/sampler_gap_max").values())
    assert set(platform.values("train/mismatch_masked_ratio").values()) == {0.0}
    assert platform.values("train/staleness_kl")[4] > 1e-4
    assert platform.values("rollout/staleness") == {1: 0.0, 2: 1.0, 3: 1.0, 4: 1.0}
    # Every version was loaded once, under a name of its own, and nothing of the run is left.
    loads = [line for line in server.history if line.startswith("load")]
    assert len(loads) == len(set(loads)) == 5
    assert server.loaded == {}
    final = platform.of("checkpoint")[-1]
    weights = load_file(f"{final['path']}/adapter_model.safetensors")
    assert any(value.abs().max() > 0 for name, value in weights.items() if "lora_B" in name)
