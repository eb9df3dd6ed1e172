"""The list of providers is that of the LiteLLM that is installed."""

import ast
import importlib.util
import json
from pathlib import Path

import pytest

from osmosis_ai.provider_names import PROVIDERS, cannot_be_called, has_known_provider, similar_provider

# They start a login in a browser, which nobody can answer in a run.
WANT_A_PERSON = {"chatgpt", "github_copilot"}


def test_the_list_is_that_of_litellm() -> None:
    """Read from its sources: importing it takes seconds."""
    spec = importlib.util.find_spec("litellm")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    tree = ast.parse((package / "types" / "utils.py").read_text(encoding="utf-8"))
    (enum,) = [node for node in tree.body if getattr(node, "name", None) == "LlmProviders"]
    names = {ast.literal_eval(node.value) for node in ast.walk(enum) if isinstance(node, ast.Assign)}
    by_file = json.loads((package / "llms" / "openai_like" / "providers.json").read_text(encoding="utf-8"))
    assert names | set(by_file) == PROVIDERS | WANT_A_PERSON
    assert not PROVIDERS & WANT_A_PERSON


@pytest.mark.parametrize(
    ("model", "known", "similar"),
    [
        ("openai/gpt-5-mini", True, "openai"),
        ("openrouter/meta/llama", True, "openrouter"),
        ("OpenAI/gpt-5-mini", False, "openai"),
        ("antropic/claude", False, "anthropic"),
        ("openai/", False, "openai"),
        ("openai", False, "openai"),
        ("/x", False, None),
        ("nope/nope", False, None),
        ("github_copilot/gpt", False, None),
    ],
)
def test_known_and_similar_providers(model: str, known: bool, similar: str | None) -> None:
    assert (has_known_provider(model), similar_provider(model)) == (known, similar)


@pytest.mark.parametrize(
    ("model", "names", "certain"),
    [
        ("openai/gpt-5-mini", (), True),
        ("openai/gpt-5-mini", ("OPENAI_API_KEY",), False),
        ("gemini/gemini-x", ("GOOGLE_API_KEY",), False),
        ("anthropic/claude-x", ("OPENAI_API_KEY",), True),
        ("bedrock/claude-x", (), False),  # a role of the machine may do
        ("ollama/llama", (), False),
    ],
)
def test_only_a_provider_that_takes_nothing_but_its_key_cannot_be_called(
    model: str, names: tuple[str, ...], certain: bool
) -> None:
    assert cannot_be_called(model, names) is certain
