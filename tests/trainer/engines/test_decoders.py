"""Every supported family is reproduced exactly; what cannot be is refused with a reason."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from osmosis_trainer.engines.local import choose
from osmosis_trainer.engines.local.adapters import LoraWeights
from osmosis_trainer.engines.local.choose import build_decoder, decoder_gap, new_cache
from osmosis_trainer.engines.local.forward import Pass
from osmosis_trainer.engines.local.fused import FusedDecoder
from osmosis_trainer.engines.local.modules import ModuleDecoder
from osmosis_trainer.errors import UnsupportedModelError

SMALL = {
    "vocab_size": 80,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def random_model(kind: str, **changes: Any) -> Any:
    torch.manual_seed(0)
    shape = {"vocab_size": 80, "hidden_size": 48} if kind == "mamba" else SMALL
    config = AutoConfig.for_model(kind, **(shape | changes))
    attention = "eager" if kind == "mamba" else "sdpa"
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            # Norms and biases start at one and zero, which would hide a mistake in them.
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("llama", {}),
        ("llama", {"attention_bias": True}),
        (
            "llama",
            {
                "rope_parameters": {
                    "rope_type": "llama3",
                    "rope_theta": 10000.0,
                    "factor": 8.0,
                    "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 32,
                }
            },
        ),
        ("mistral", {"sliding_window": None}),
        ("mistral", {"sliding_window": 128}),
        ("qwen2", {}),
        ("qwen3", {"head_dim": 16}),
        ("qwen3", {"head_dim": 16, "tie_word_embeddings": True}),
    ],
)
def test_llama_shaped_families_run_fused(kind: str, changes: dict[str, Any]):
    assert build_decoder(random_model(kind, **changes), 128).name == "fused"


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("granite", {}),
        ("olmo2", {}),
        ("phi3", {}),
        ("gpt_neox", {"num_key_value_heads": 4}),
        ("qwen3", {"hidden_act": "gelu"}),
        ("mistral", {"sliding_window": 16}),
    ],
)
def test_other_families_run_through_their_modules(kind: str, changes: dict[str, Any]):
    assert build_decoder(random_model(kind, **changes), 128).name == "modules"


@pytest.mark.parametrize(
    ("kind", "changes", "reason"),
    [
        ("mamba", {}, "'mamba' has no attention heads"),
    ],
)
def test_models_that_cannot_be_exact_are_refused(kind: str, changes: dict[str, Any], reason: str):
    with pytest.raises(UnsupportedModelError, match=reason):
        build_decoder(random_model(kind, **changes), 128)


def test_a_decoder_that_is_off_is_not_used(monkeypatch: pytest.MonkeyPatch):
    model = random_model("qwen3", head_dim=16)
    honest = FusedDecoder.__init__

    def broken(self: FusedDecoder, *arguments: Any) -> None:
        honest(self, *arguments)
        self.layers[1].head_norm = None

    monkeypatch.setattr(FusedDecoder, "__init__", broken)
    assert build_decoder(model, 128).name == "modules"
    monkeypatch.setattr(choose, "ModuleDecoder", lambda model: FusedDecoder(model, 128))
    with pytest.raises(UnsupportedModelError, match=r"fused decoder off by .* nats; .* decoder off by"):
        build_decoder(model, 128)


def test_decoders_agree_in_double_precision():
    model = random_model("qwen3", head_dim=16).double()
    # transformers computes the norms in single precision whatever the model's type is.
    assert decoder_gap(FusedDecoder(model, 128), model) < 1e-5
    assert decoder_gap(ModuleDecoder(model), model) < 1e-11


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("make", [lambda m: FusedDecoder(m, 128), ModuleDecoder])
def test_rows_of_one_pass_use_their_own_adapters(make: Any, dtype: torch.dtype):
    model = random_model("qwen3", head_dim=16).to(dtype)
    generator = torch.Generator().manual_seed(1)

    def adapter(name: str, rank: int, paths: tuple[str, ...]) -> LoraWeights:
        modules = {}
        for path, module in model.named_modules():
            if path.endswith(paths):
                a = torch.randn(rank, module.in_features, generator=generator, dtype=dtype)
                b = 0.1 * torch.randn(module.out_features, rank, generator=generator, dtype=dtype)
                modules[path] = (a, b)
        return LoraWeights(name, 1, modules)

    everywhere = adapter("everywhere", 4, ("_proj",))
    partial = adapter("partial", 2, ("k_proj", "down_proj", "up_proj"))
    ids = torch.randint(0, 80, (4, 9), generator=generator)
    columns = torch.arange(9).repeat(4, 1)
    slots = torch.arange(4)
    last = torch.full((4,), 8)
    groups = [(everywhere, torch.tensor([0, 3])), (None, torch.tensor([1])), (partial, torch.tensor([2]))]
    decoder = make(model)
    cache = new_cache(model.config, 4, 32, dtype, model.device)
    got = decoder.logits(Pass(ids, columns, slots, 9, last, groups), cache)
    # The reference adds each adapter to the weights and runs the model itself.
    for weights, rows in groups:
        originals = {}
        for path, (a, b) in (weights.modules if weights else {}).items():
            parameter = model.get_submodule(path).weight
            originals[path] = parameter.detach().clone()
            with torch.no_grad():
                parameter.add_(b @ a)
        with torch.no_grad():
            wanted = model(input_ids=ids[rows]).logits[:, -1]
        assert torch.allclose(
            got[rows], wanted, atol=1e-9 if dtype == torch.float64 and decoder.name == "modules" else 1e-4
        )
        for path, original in originals.items():
            with torch.no_grad():
                model.get_submodule(path).weight.copy_(original)
