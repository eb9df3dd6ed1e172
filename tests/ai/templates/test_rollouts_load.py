"""What the package writes as rollouts can be discovered, and the starters grade as they say."""

import ast
import json
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from osmosis_ai.rollout import GraderContext, RolloutSample
from osmosis_ai.templates import STARTERS, init_rollout


def discover(folder):
    answer = subprocess.run(
        [sys.executable, "-m", "osmosis_ai.rollout.discovery", str(folder), "main.py"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return json.loads(answer.stdout)


def test_a_scaffold_is_a_loadable_pair(tmp_path):
    found = discover(init_rollout("calc", tmp_path).folder)
    assert found["problems"] == []
    assert (found["workflow"], found["grader"]) == ("RolloutWorkflow", "RolloutGrader")
    assert found["agent_name"] == "calc"


@pytest.mark.slow
@pytest.mark.parametrize("name", STARTERS)
def test_starters_are_loadable_pairs(template, name):
    found = discover(template / "rollouts" / name)
    assert found["problems"] == []
    assert (found["workflow"], found["grader"], found["agent_name"]) == (
        "MultiplyWorkflow",
        "MultiplyGrader",
        name,
    )


def test_starters_grade_alike(template):
    """The graders of all starters are one piece of code, tested below."""
    files = ["main.py" if "harbor" not in name else "multiply_agent/grader.py" for name in STARTERS]
    sources = [
        (template / "rollouts" / name / file).read_text() for name, file in zip(STARTERS, files, strict=True)
    ]
    graders = {
        source[source.index("def final_text") :].partition("workflow_config")[0].strip() for source in sources
    }
    assert len(graders) == 1


@pytest.fixture(scope="module")
def starter(template):
    """The grader of a starter without its agent: importing a framework takes seconds and adds nothing here."""
    tree = ast.parse((template / "rollouts" / STARTERS[0] / "main.py").read_text())
    wanted = ("final_text", "last_number", "MultiplyGrader")
    tree.body = [
        node
        for node in tree.body
        if (isinstance(node, ast.Assign) and "re.compile" in ast.unparse(node))
        or (
            isinstance(node, ast.Import | ast.ImportFrom)
            and ast.unparse(node).split()[1].split(".")[0] in {"re", "collections", "typing"}
        )
        or ast.unparse(node).startswith("from osmosis_ai.rollout import")
        or getattr(node, "name", None) in wanted
    ]
    names: dict[str, Any] = {}
    exec(compile(tree, "main.py", "exec"), names)
    return SimpleNamespace(**{name: names[name] for name in wanted})


@pytest.mark.parametrize(
    ("messages", "label", "reward"),
    [
        ([{"role": "assistant", "content": "The answer is 1081."}], "1081", 1.0),
        ([{"role": "assistant", "content": "23 times 47 is 1,081"}], "1081", 1.0),
        ([{"role": "assistant", "content": [{"type": "output_text", "text": "It is 1081."}]}], " 1081 ", 1.0),
        ([{"role": "assistant", "content": [{"text": "1081"}]}], "1081", 1.0),
        ([{"role": "assistant", "content": "1081, or was it 12?"}], "1081", 0.0),
        ([{"role": "assistant", "content": "The answer is 10810."}], "1081", 0.0),
        ([{"role": "assistant", "content": "I do not know."}], "1081", 0.0),
        ([{"role": "user", "content": "1081"}], "1081", 0.0),
        ([{"role": "assistant", "content": "1081"}, {"role": "assistant", "content": None}], "1081", 0.0),
        ([], "1081", 0.0),
    ],
)
async def test_reward_is_one_for_the_last_number_of_the_final_answer(starter, messages, label, reward):
    sample = RolloutSample(messages=messages)
    ctx = GraderContext(label=label, sample=sample)
    await starter.MultiplyGrader().grade(ctx)
    assert ctx.sample.reward == reward
