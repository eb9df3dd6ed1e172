"""Start-up counts: a command imports only what it needs."""

import subprocess
import sys

import pytest

NEVER_AT_START = {
    "httpx",
    "rich",
    "pydantic",
    "fastapi",
    "uvicorn",
    "pyarrow",
    "litellm",
    "openai",
    "urllib.request",
    "osmosis_ai.rollout",
    "osmosis_ai.datasets",
}
SCRIPT = """
import sys
from osmosis_ai.cli.main import main
code = main(sys.argv[1:])
sys.stderr.write("MODULES " + " ".join(sys.modules) + "\\n")
"""


def modules(*arguments, cwd, env=None):
    answer = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=cwd,
        env=env,
        check=True,
    )
    return set(answer.stderr.rsplit("MODULES ", 1)[1].split())


@pytest.mark.parametrize(
    ("arguments", "more"),
    [
        (["--version"], {"click", "osmosis_ai.cli.tree", "importlib.metadata"}),
        (["--help"], {"osmosis_ai.cli.commands.dataset", "osmosis_ai.platform"}),
        (["dataset", "--help"], {"osmosis_ai.cli.commands.train", "osmosis_ai.platform"}),
        (["dataset", "lst"], {"osmosis_ai.platform"}),
        (["--json", "template", "list"], set()),
    ],
)
def test_what_a_command_does_not_import(tmp_path, arguments, more):
    loaded = modules(*arguments, cwd=tmp_path)
    assert loaded & (NEVER_AT_START | more) == set()


@pytest.mark.parametrize("command", ["dataset list", "train info x", "eval info x"])
def test_scripts_do_not_wait_for_terminal_or_schema_libraries(workspace, platform, command):
    platform.on("GET", "/eval-runs/x", {"eval_run": {"id": "x"}})
    for path, key in (
        ("/datasets", "datasets"),
        ("/training-runs", "training_runs"),
        ("/eval-runs", "eval_runs"),
        ("/environment-secrets", "environment_secrets"),
        ("/models/base", "models"),
        ("/models/lora", "models"),
    ):
        platform.page(path, key, [])
    loaded = modules("--json", *command.split(), cwd=workspace)
    assert loaded & (NEVER_AT_START - {"urllib.request"}) == set()


def test_command_modules_write_nothing_themselves():
    """Results, prompts and errors go through cli/output, which knows the mode."""
    import ast
    from pathlib import Path

    import osmosis_ai.cli

    package = Path(osmosis_ai.cli.__file__).parents[1]
    for path in [*(package / "cli").rglob("*.py"), *(package / "eval" / "rubric").rglob("*.py")]:
        if path.parent.name == "output" or path.name in {"main.py", "prompts.py", "tree.py"}:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                assert name not in {
                    "print",
                    "sys.stdout.write",
                    "sys.stderr.write",
                    "click.echo",
                    "click.secho",
                }, f"{path}:{node.lineno}"


def test_the_version_is_that_of_the_distribution():
    import tomllib
    from pathlib import Path

    from osmosis_ai import __version__

    project = Path(__file__).parents[3] / "packages/osmosis-ai/pyproject.toml"
    assert __version__ == tomllib.loads(project.read_text())["project"]["version"]
