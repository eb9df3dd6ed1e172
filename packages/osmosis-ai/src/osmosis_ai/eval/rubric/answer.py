"""Reading the answer of a judge, strictly."""

import math
import re
from typing import Any, NamedTuple

from osmosis_ai.datasets.exact_json import parse

_THOUGHTS = re.compile(r"<(think(?:ing)?)>.*?</\1>", re.DOTALL | re.IGNORECASE)
_END_OF_THOUGHTS = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_FENCED = re.compile(r"```[a-zA-Z]*\s*\n?(.*?)\s*```", re.DOTALL)
_SHOWN = 200


class Judgement(NamedTuple):
    """A finite score, not yet clamped, and why."""

    score: float
    explanation: str


def parse_answer(text: str | None) -> Judgement:
    """The judgement in the text of an answer; thoughts and code fences around it are dropped.

    Raises:
        ValueError: the text is not one JSON object with a finite numeric ``score`` and a non-blank ``explanation``.
    """
    document = _document(text or "")
    if not document:
        raise ValueError("the judge's answer is empty, so it is not valid JSON")
    try:
        answer = parse(document.encode())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the judge's answer is not valid JSON ({error}): {_shown(document)}") from None
    if not isinstance(answer, dict):
        raise ValueError(f"the judge's answer is not a JSON object: {_shown(document)}")
    return Judgement(_score(answer.get("score"), document), _explanation(answer.get("explanation"), document))


def _document(text: str) -> str:
    rest = _THOUGHTS.sub("", text)
    # Chat templates that open the thoughts themselves leave only their end in the answer.
    rest = _END_OF_THOUGHTS.split(rest)[-1].strip()
    fenced = _FENCED.fullmatch(rest)
    return fenced.group(1).strip() if fenced else rest


def _score(value: Any, document: str) -> float:
    if isinstance(value, int | float):
        try:
            score = float(value)
        except OverflowError:
            score = math.inf
        if math.isfinite(score):
            return score
    raise ValueError(f"the judge's answer has no finite numeric 'score': {_shown(document)}")


def _explanation(value: Any, document: str) -> str:
    if isinstance(value, str) and value.strip():
        return value.strip()
    raise ValueError(f"the judge's answer has no 'explanation' text: {_shown(document)}")


def _shown(document: str) -> str:
    return document if len(document) <= _SHOWN else f"{document[:_SHOWN]}..."
