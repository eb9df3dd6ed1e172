"""Tiny random models of real families: what is sampled is what is trained, whatever the batch form, and it reloads in PEFT.

A model that cannot be exact is refused with a reason.
"""

from __future__ import annotations

import asyncio
import functools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from tokenizers import Tokenizer, models
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PreTrainedTokenizerFast,
)

from osmosis_trainer.engines.local import LocalEngine
from osmosis_trainer.engines.model_limits import model_context
from osmosis_trainer.engines.protocol import Objective, SamplingParams, TrainingRow
from osmosis_trainer.errors import UnsupportedModelError
from osmosis_trainer.learner import lora

# peft 0.21 asks transformers for an attribute that was renamed.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")

VOCABULARY = 80
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": 1,
}
MODEL = {"head_dim": 8}
EXPERTS = {"moe_intermediate_size": 24, "num_experts": 4, "num_experts_per_tok": 2}
LOCAL_EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
ROUTED_EXPERTS = {
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
}
FULL, SLIDING = "full_attention", "sliding_attention"
THREE_N = {
    "layer_types": [SLIDING, FULL],
    "sliding_window": 12,
    "num_kv_shared_layers": 0,
    "hidden_size_per_layer_input": 8,
    "vocab_size_per_layer_input": VOCABULARY,
    "activation_sparsity_pattern": [0.0, 0.0],
    "intermediate_size": [48, 48],
}
LINEAR = {
    "layer_types": ["linear_attention", FULL],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", MODEL),
    "qwen2-moe": ("qwen2_moe", {**EXPERTS, "shared_expert_intermediate_size": 24}),
    "qwen3-moe": ("qwen3_moe", {**MODEL, **EXPERTS}),
    "qwen3-moe-dense": ("qwen3_moe", {**MODEL, **EXPERTS, "mlp_only_layers": [1]}),
    "mistral": ("mistral", {}),
    "mistral-window": ("mistral", {"sliding_window": 12}),
    "mixtral": ("mixtral", LOCAL_EXPERTS),
    "gemma": ("gemma", MODEL),
    "gemma3n": ("gemma3n_text", {**MODEL, **THREE_N}),
    "gemma2": (
        "gemma2",
        {**MODEL, "sliding_window": 12, "final_logit_softcapping": 3.0, "attn_logit_softcapping": 2.0},
    ),
    "gemma3": ("gemma3_text", {**MODEL, "sliding_window": 12, "layer_types": [SLIDING, FULL]}),
    "phi": ("phi", {}),
    "phi3": ("phi3", {}),
    "phimoe": ("phimoe", LOCAL_EXPERTS),
    "phi3-window": ("phi3", {"sliding_window": 12}),
    "gpt-oss": ("gpt_oss", {**MODEL, **LOCAL_EXPERTS, "sliding_window": 12}),
    "granite": ("granite", {"logits_scaling": 4.0}),
    "olmo3": ("olmo3", {"sliding_window": 12, "layer_types": [SLIDING, FULL]}),
    "qwen3.5": ("qwen3_5_text", {**MODEL, **LINEAR}),
    "qwen3.5-moe": (
        "qwen3_5_moe_text",
        {**MODEL, **EXPERTS, **LINEAR, "shared_expert_intermediate_size": 24},
    ),
    "qwen3-next": (
        "qwen3_next",
        {**MODEL, **EXPERTS, **LINEAR, "shared_expert_intermediate_size": 24},
    ),
    "glm4-moe": ("glm4_moe", {**MODEL, **ROUTED_EXPERTS}),
    "lfm2": ("lfm2", {"layer_types": ["conv", FULL]}),
}
# Families with layers that keep a state.
RECURRENT = {"qwen3.5", "qwen3.5-moe", "qwen3-next", "lfm2"}


def save_random(folder: Path, family: str, **changes: Any) -> Path:
    """A model of the family with random weights everywhere: norms and biases too, or a mistake in them would hide."""
    kind, own = FAMILIES.get(family, (family, {}))
    torch.manual_seed(4)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **(SHAPE | own | changes)))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.15 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    words = {f"w{i}": i for i in range(VOCABULARY)}
    PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="w0")), eos_token="w1", pad_token="w0"
    ).save_pretrained(folder)
    return folder


def prompts() -> list[list[int]]:
    """Two prompts with a beginning in common, longer than the families' sliding windows."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(2, VOCABULARY, (40,), generator=generator).tolist()
    return [tokens[:20], [*tokens[:16], *tokens[30:]]]


async def sample_groups(engine: LocalEngine, count: int = 3, tokens: int = 9) -> list[TrainingRow]:
    """Rows of two prompt groups, sampled together."""
    asked = [(group, prompt, k) for group, prompt in enumerate(prompts()) for k in range(count)]
    samples = await asyncio.gather(
        *(engine.sample(prompt, SamplingParams(tokens, seed=10 * group + k)) for group, prompt, k in asked)
    )
    return [
        TrainingRow(
            token_ids=prompt + sample.token_ids,
            mask=[0] * len(prompt) + [1] * len(sample.token_ids),
            logprobs=[0.0] * len(prompt) + sample.logprobs,
            advantage=[1.0, -1.0, 0.5][k],
            group=group,
            row_id=f"{group}-{k}",
        )
        for (group, prompt, k), sample in zip(asked, samples, strict=True)
    ]


async def train_a_little(engine: LocalEngine) -> None:
    """Two steps, after which no LoRA matrix is zero."""
    for _ in range(2):
        await engine.forward_backward(await sample_groups(engine), Objective())
        await engine.optim_step(lr=2e-2, max_grad_norm=1.0)
        await engine.publish()


def largest_gap(left: list[list[float]], right: list[list[float]]) -> float:
    """Largest absolute difference of two ragged lists of log-probabilities."""
    return max(
        abs(a - b)
        for mine, theirs in zip(left, right, strict=True)
        for a, b in zip(mine, theirs, strict=True)
    )


def gradient(engine: LocalEngine) -> torch.Tensor:
    """The accumulated gradient as one vector."""
    assert engine._learner is not None
    return torch.cat([p.grad.flatten() for p in engine._learner.parameters.values() if p.grad is not None])


# Slow: what each of these is made of is in another family too.
RARE = {
    "gpt-oss",
    "qwen2-moe",
    "qwen3-moe",
    "qwen3.5-moe",
    "mixtral",
    "glm4-moe",
    "gemma",
    "phi3-window",
    "granite",
    "olmo3",
    "phi",
    "phimoe",
    "gemma3n",
    "lfm2",
}


def families() -> list[Any]:
    """Every family; the rarer ones run in the slow suite."""
    return [
        pytest.param(name, marks=[pytest.mark.slow] if name in RARE else [], id=name) for name in FAMILIES
    ]


@pytest.mark.parametrize("family", families())
async def test_sampler_learner_batch_forms_and_peft_agree(family: str, tmp_path: Path, make_engine: Any):
    base = save_random(tmp_path / "base", family)
    engine = make_engine(base, batch_form="padded", token_budget=1)
    assert engine.decoder_name == decoder_of(family)
    await train_a_little(engine)
    rows = await sample_groups(engine)
    sampled = [[p for p, m in zip(row.logprobs, row.mask, strict=True) if m] for row in rows]
    alone = await engine.score(rows)
    assert largest_gap(sampled, alone) <= 1e-5
    base_alone = await make_engine(base).score(rows)
    assert largest_gap(base_alone, alone) > 1e-2, "the adapter does nothing"

    await engine.save_state(tmp_path / "state")
    await engine.forward_backward(rows, Objective("is"))
    wanted = gradient(engine)
    for form in ("padded",) if family in RECURRENT else ("padded", "packed", "shared"):
        other = make_engine(base, batch_form=form)
        await other.load_state(tmp_path / "state")
        assert largest_gap(await other.score(rows), alone) <= 5e-6, form
        metrics = await other.forward_backward(rows, Objective("is"))
        assert metrics["micro_batches"] == 1
        got = gradient(other)
        assert float((got - wanted).norm() / wanted.norm()) <= 1e-5, form

    await engine.export_adapter(tmp_path / "adapter")
    assert largest_gap(peft_scores(base, tmp_path / "adapter", rows), alone) <= 1e-5
    await served_beside_others(engine, tmp_path / "adapter")


FUSED = {"llama", "qwen2", "qwen3", "mistral"}


def decoder_of(family: str) -> str:
    """The name of the decoder that runs a family."""
    return "fused" if family in FUSED else "recurrent" if family in RECURRENT else "modules"


def peft_scores(base: Path, adapter: Path, rows: list[TrainingRow]) -> list[list[float]]:
    """Log-probabilities of the trained tokens by PEFT and transformers alone."""
    model = PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), adapter
    ).eval()
    scores = []
    for row in rows:
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([row.token_ids])).logits[0]
        logprobs = torch.log_softmax(logits, -1)
        scores.append(
            [
                float(logprobs[i - 1, token])
                for i, (token, m) in enumerate(zip(row.token_ids, row.mask, strict=True))
                if m
            ]
        )
    return scores


async def served_beside_others(engine: LocalEngine, folder: Path) -> None:
    """The exported adapter, the policy it came from and the base model in one pass: the first two are the same."""
    await engine.load_adapter("copy", folder)
    prompt = prompts()[0]
    greedy = SamplingParams(9, temperature=0.0)
    alone = await engine.sample(prompt, greedy, adapter="policy")
    base_alone = await engine.sample(prompt, greedy, adapter=None)
    copy, policy, base = await asyncio.gather(
        *(engine.sample(prompt, greedy, adapter=name) for name in ("copy", "policy", None))
    )
    assert copy.token_ids == policy.token_ids == alone.token_ids
    assert base.token_ids == base_alone.token_ids
    assert largest_gap([copy.logprobs, policy.logprobs], [alone.logprobs] * 2) <= 1e-5
    assert largest_gap([base.logprobs], [base_alone.logprobs]) <= 1e-5
    assert abs(base.logprobs[0] - policy.logprobs[0]) > 1e-4


@pytest.mark.parametrize("family", families())
async def test_every_linear_layer_and_expert_is_trained(family: str, tmp_path: Path, make_engine: Any):
    base = save_random(tmp_path / "base", family)
    model = AutoModelForCausalLM.from_pretrained(base)
    head = model.get_output_embeddings()
    wanted = {
        name
        for name, module in model.named_modules()
        if type(module).forward is nn.Linear.forward and module is not head
    }
    experts = {name for name, p in model.named_parameters() if p.dim() == 3 and ".experts." in name}
    assert bool(experts) == (family in WITH_EXPERTS)
    engine = make_engine(base)
    await train_a_little(engine)
    trained = set()
    for path, module in engine._learner.base.named_modules():
        if hasattr(module, "lora_B") and bool(module.lora_B["default"].weight.any()):
            parameter = getattr(module, "parameter_name", None)
            path = path.replace(".base_layer", "")
            trained.add(path if parameter is None else f"{path}.{parameter}")
    assert trained == wanted | experts
    assert all("lm_head" not in name and "embed_tokens" not in name for name in engine._learner.parameters)


WITH_EXPERTS = {
    "qwen2-moe",
    "qwen3-moe",
    "qwen3-moe-dense",
    "mixtral",
    "phimoe",
    "gpt-oss",
    "qwen3.5-moe",
    "qwen3-next",
    "glm4-moe",
}


@pytest.mark.parametrize("form", ["packed", "shared"])
def test_rows_of_models_with_states_share_no_sequence(form: str, tmp_path: Path, make_engine: Any):
    base = save_random(tmp_path, "qwen3.5")
    with pytest.raises(UnsupportedModelError, match=f"batch_form '{form}' is not exact .* keep a state"):
        make_engine(base, batch_form=form)


async def test_a_state_is_continued_only_where_it_ends(tmp_path: Path, make_engine: Any):
    """A conversation's next turn continues its slot; an edited history, or the same prompt again, begins anew."""
    engine = make_engine(save_random(tmp_path, "qwen3.5"))
    prompt = prompts()[0]
    # Two others end first, and the conversation moves into the slot of one of them.
    others = ([11, 12, 13], [14, 15, 16, 17])
    asked = [(other, SamplingParams(2, seed=0)) for other in others] + [(prompt, SamplingParams(6, seed=1))]
    *_, first = await asyncio.gather(*(engine.sample(ids, params) for ids, params in asked))
    later = [*prompt, *first.token_ids, 5, 6, 7]
    edited = [*later[:10], 9, *later[11:]]
    # Three lengths at once beside idle slots; the last token that was sampled was never computed.
    texts = (later, edited, prompt)
    turns = await asyncio.gather(*(engine.sample(ids, SamplingParams(6, seed=2)) for ids in texts))
    assert [turn.cached_tokens for turn in turns] == [len(prompt) + 5, 0, 0]
    rows = [
        TrainingRow(
            [*ids, *turn.token_ids],
            [0] * len(ids) + [1] * 6,
            [0.0] * len(ids) + turn.logprobs,
            1.0,
            0,
            str(i),
        )
        for i, (ids, turn) in enumerate(zip(texts, turns, strict=True))
    ]
    assert largest_gap(await engine.score(rows), [turn.logprobs for turn in turns]) <= 1e-5


def test_the_language_part_of_a_model_with_vision_is_loaded_alone(tmp_path: Path, make_engine: Any):
    """Qwen3.5 and 3.6 are published with a vision tower."""
    text = AutoConfig.for_model("qwen3_5_text", **SHAPE, **MODEL, **LINEAR)
    vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 32}
    torch.manual_seed(4)
    whole = AutoModelForImageTextToText.from_config(
        AutoConfig.for_model("qwen3_5", text_config=text.to_dict(), vision_config=vision)
    ).eval()
    save_random(tmp_path, "qwen3.5")  # for its tokenizer
    whole.save_pretrained(tmp_path)
    engine = make_engine(tmp_path)
    assert model_context(tmp_path) == engine.max_context == 128
    ids = torch.tensor([prompts()[0]])
    with torch.no_grad():
        ours = engine._learner.base(input_ids=ids).logits
        assert torch.equal(ours, whole(input_ids=ids).logits)


@pytest.mark.slow
def test_heads_of_several_sizes_are_refused(tmp_path: Path, make_engine: Any):
    base = save_random(
        tmp_path, "gemma4_text", **MODEL, vocab_size_per_layer_input=VOCABULARY, layer_types=[SLIDING, FULL]
    )
    with pytest.raises(UnsupportedModelError, match=r"'gemma4_text' cannot be sampled exactly .*head_dim"):
        make_engine(base)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text"}}, "takes more than text"),
        ({"model_type": "t5"}, "no language model that can be loaded: Unrecognized configuration class"),
        ({"model_type": "of_tomorrow"}, "no language model that can be loaded: .*of_tomorrow"),
    ],
)
def test_what_is_no_text_model_is_refused(
    config: dict[str, Any], reason: str, tmp_path: Path, make_engine: Any
):
    save_random(tmp_path, "llama")
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedModelError, match=reason):
        make_engine(tmp_path)


async def test_layers_computed_again_keep_windows_and_experts(tmp_path: Path, make_engine: Any):
    for family in ("gemma3", "qwen3-moe"):
        base = save_random(tmp_path / family, family)
        plain, thrifty = make_engine(base), make_engine(base, recompute=True)
        rows = await sample_groups(plain)
        for engine in (plain, thrifty):
            await engine.forward_backward(rows, Objective("is"))
        assert torch.equal(gradient(plain), gradient(thrifty))


@pytest.mark.filterwarnings("ignore:The following (rank|alpha)_pattern keys:RuntimeWarning")
def test_layers_that_peft_leaves_out_are_a_refusal(tmp_path: Path, make_engine: Any, monkeypatch: Any):
    """PEFT takes `gate_proj` of a dense layer beside fused experts for an old name of these."""
    base = save_random(tmp_path, "qwen3-moe-dense")
    monkeypatch.setattr(lora, "_names_of_experts", lambda model, names: set())
    with pytest.raises(UnsupportedModelError, match=r"PEFT puts no LoRA on model\.layers\.1\.mlp\.gate_proj"):
        make_engine(base)
    assert make_engine(base, lora=None).decoder_name == "modules"


async def test_an_adapter_of_some_experts_only_is_served(tmp_path: Path, make_engine: Any):
    """Other trainers adapt fewer parameters; matrices are found by the names in the adapter's config."""
    base = save_random(tmp_path / "base", "qwen3-moe")
    torch.manual_seed(2)
    adapted = get_peft_model(
        AutoModelForCausalLM.from_pretrained(base),
        LoraConfig(
            r=3,
            lora_alpha=12,
            target_modules=["q_proj"],
            target_parameters=["mlp.experts.down_proj"],
            init_lora_weights=False,
        ),
    )
    adapted.save_pretrained(tmp_path / "adapter")
    engine = make_engine(base, lora=None)
    await engine.load_adapter("some", tmp_path / "adapter")
    prompt = prompts()[0]
    answer = await engine.sample(prompt, SamplingParams(8, seed=1), adapter="some")
    mask = [0] * len(prompt) + [1] * 8
    row = TrainingRow(prompt + answer.token_ids, mask, [0.0] * len(mask), 1.0, 0, "row")
    assert largest_gap(peft_scores(base, tmp_path / "adapter", [row]), [answer.logprobs]) <= 1e-5


async def test_ranks_of_their_own_for_experts_are_refused(tmp_path: Path, make_engine: Any):
    base = save_random(tmp_path / "base", "qwen3-moe")
    engine = make_engine(base)
    await engine.export_adapter(tmp_path / "adapter")
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    config["rank_pattern"] = {"experts": 8}
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedModelError, match="ranks of their own"):
        await engine.load_adapter("odd", tmp_path / "adapter")


def test_unknown_changes_of_the_logits_are_refused(tmp_path: Path, make_engine: Any, monkeypatch: Any):
    """A model that does more to its logits than is known cannot be trained, though it can be sampled."""
    from transformers import GraniteForCausalLM

    honest = GraniteForCausalLM.forward

    @functools.wraps(honest)
    def odd(self: Any, *arguments: Any, **named: Any) -> Any:
        out = honest(self, *arguments, **named)
        out.logits = out.logits * 1.5
        return out

    base = save_random(tmp_path, "granite")
    make_engine(base)
    monkeypatch.setattr(GraniteForCausalLM, "forward", odd)
    with pytest.raises(UnsupportedModelError, match="change the logits after the output head"):
        make_engine(base)
    assert make_engine(base, lora=None).decoder_name == "modules"
