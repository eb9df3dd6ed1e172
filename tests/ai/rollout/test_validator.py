"""Checks on a workflow and grader before they run: every problem, each with its code and place."""

import pytest

from osmosis_ai.rollout import AgentWorkflow, AgentWorkflowConfig, Grader
from osmosis_ai.rollout.validator import resolved_agent_name, validate_backend


class Good(AgentWorkflow):
    async def run(self, ctx):
        return None


class Sync(AgentWorkflow):
    def run(self, ctx):
        return None


class Broken(AgentWorkflow):
    def __init__(self, config=None):
        raise KeyError("no")

    async def run(self, ctx):
        return None


class GoodGrader(Grader):
    async def grade(self, ctx):
        return None


class BadGrader(Grader):
    def __init__(self, config=None):
        raise KeyError("no")

    def grade(self, ctx):
        return None


@pytest.mark.parametrize(
    ("workflow", "grader", "problems"),
    [
        (Good, GoodGrader, []),
        (Good, None, [("MISSING_GRADER", "grader_cls")]),
        (Sync, GoodGrader, [("WORKFLOW_RUN_NOT_ASYNC", "workflow_cls.run")]),
        (Broken, GoodGrader, [("WORKFLOW_INIT_FAILED", "workflow_cls")]),
        (AgentWorkflow, GoodGrader, [("INVALID_WORKFLOW_CLASS", "workflow_cls")]),
        (
            "Good",
            dict,
            [("INVALID_WORKFLOW_CLASS", "workflow_cls"), ("INVALID_GRADER_CLASS", "grader_cls")],
        ),
        (
            Good,
            BadGrader,
            [("GRADER_GRADE_NOT_ASYNC", "grader_cls.grade"), ("GRADER_INIT_FAILED", "grader_cls")],
        ),
    ],
)
def test_a_validator_collects_all_problems(workflow, grader, problems):
    result = validate_backend(workflow, AgentWorkflowConfig(name="n"), grader)
    assert [(error.code, error.field) for error in result.errors] == problems
    assert (result.valid, result.warnings) == (not problems, [])


def test_names_of_agents():
    assert resolved_agent_name(Good, AgentWorkflowConfig(name=" n ")) == "n"
    assert resolved_agent_name(Good, AgentWorkflowConfig(name="  ")) == "Good"
    assert resolved_agent_name(Good, None) == "Good"
    (error,) = validate_backend(Good, AgentWorkflowConfig(name="n" * 257), GoodGrader).errors
    assert (error.code, error.field) == ("INVALID_AGENT_NAME", "name")
