"""What a model's own files say about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from osmosis_platform.adapters.model_files import model_facts


def safetensors(path: Path, shapes: dict[str, list[int]]) -> None:
    header = {
        name: {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]} for name, shape in shapes.items()
    }
    content = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path.write_bytes(len(content).to_bytes(8, "little") + content)


def test_sizes_add_up_over_files(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 4096}))
    safetensors(tmp_path / "model-1.safetensors", {"a": [10, 20], "bias": []})
    safetensors(tmp_path / "model-2.safetensors", {"b": [5]})
    assert model_facts(tmp_path) == {"parameters": 206, "context_window": 4096}


@pytest.mark.parametrize("config", ["{", "[]", '{"max_position_embeddings": "many"}', '{"text_config": 3}'])
def test_what_is_not_told_is_left_out(tmp_path: Path, config: str) -> None:
    (tmp_path / "config.json").write_text(config)
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 20)
    assert model_facts(tmp_path) == {}
    assert model_facts(tmp_path / "nowhere") == {}


def test_the_detail_of_a_base_model_tells_its_size(
    tmp_path: Path, client: httpx.Client, workshop: Any
) -> None:
    folder = tmp_path / "model"
    (folder / "config.json").write_text(json.dumps({"text_config": {"max_position_embeddings": 2048}}))
    safetensors(folder / "model.safetensors", {"a": [3, 3]})
    shown = client.get("/api/cli/models/base/tiny%2Fmodel", headers=workshop.town.ada.scoped()).json()
    assert (shown["parameters"], shown["context_window"]) == (9, 2048)
