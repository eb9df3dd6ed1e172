"""The agent skills of a workspace: well-formed, linked, and naming only commands and skills that exist."""

import re
import shlex

import click
import pytest

from osmosis_ai.cli.tree import root
from osmosis_ai.templates import workspace_source, write_workspace

SKILLS = ("create-rollouts", "debug-rollouts", "evaluate-rollouts", "plan-training", "submit-training")
FOLDER = workspace_source() / ".agents" / "skills"
COMMAND = re.compile(r"osmosis ((?:[a-z]+ ?)+[^`#|\n]*)")


def text(name):
    return (FOLDER / name / "SKILL.md").read_text(encoding="utf-8")


def test_there_is_one_skill_per_stage():
    assert sorted(path.name for path in FOLDER.iterdir()) == list(SKILLS)
    guide = (workspace_source() / "AGENTS.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`([a-z]+-[a-z]+)`", guide)) == set(SKILLS)


@pytest.mark.parametrize("name", SKILLS)
def test_the_head_says_what_it_is_and_when_to_use_it(name):
    head = re.match(r"---\nname: (.+)\ndescription: (.+)\n---\n", text(name))
    assert head is not None
    assert head[1] == name
    assert 80 < len(head[2]) <= 1024
    assert "Use it" in head[2]


def commands(page):
    """Every `osmosis ...` of a page as words."""
    code = "\n".join(re.findall(r"```sh\n(.*?)```", page, re.DOTALL) + re.findall(r"`(osmosis [^`]+)`", page))
    for line in code.splitlines():
        for part in re.split(r"#|&&", line):
            if part.strip().startswith("osmosis "):
                yield shlex.split(part)[1:]


@pytest.mark.parametrize("name", [*SKILLS, "AGENTS.md"])
def test_commands_and_options_exist(name):
    page = (workspace_source() / name).read_text() if name == "AGENTS.md" else text(name)
    found = [words for words in commands(page) if words[0] != "<command>"]
    assert found
    for words in found:
        command, rest = root, [word for word in words if word not in ("--json", "--plain")]
        while isinstance(command, click.Group):
            command = command.get_command(click.Context(command), rest.pop(0))
            assert command is not None, words
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in rest if word.startswith("-")} <= known, words
        # It parses, placeholders and all.
        command.make_context("osmosis", list(rest), resilient_parsing=False)


@pytest.mark.parametrize("name", SKILLS)
def test_other_skills_that_are_named_exist(name):
    named = set(re.findall(r"`((?:create|debug|evaluate|plan|submit)-[a-z]+)`", text(name)))
    assert named <= set(SKILLS)


def test_a_written_workspace_shows_the_skills_to_every_assistant(tmp_path):
    files = write_workspace(tmp_path / "space")
    for name in SKILLS:
        assert f".agents/skills/{name}/SKILL.md" in files
        link = tmp_path / "space" / ".claude" / "skills" / name
        assert link.is_symlink()
        assert (link / "SKILL.md").read_text() == text(name)
