"""Test the integrations against the oldest and the newest agent frameworks that the SDK's extras admit.

    python tools/test_frameworks.py [NAME...]     # no names: all environments

The bounds come from `packages/osmosis-ai/pyproject.toml`. Each environment is made anew in `.venv-frameworks/NAME` (uv's cache makes
that cheap); what the index really serves is installed, so this needs one, and says which versions it tested.
"""

import os
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
SDK = ROOT / "packages" / "osmosis-ai"
TESTS = ROOT / "tests" / "ai" / "rollout" / "integrations"
TEST_TOOLS = ["pytest", "pytest-asyncio", "jsonschema"]


@dataclass(frozen=True)
class Environment:
    """One set of versions, and the test files that run on it."""

    name: str
    extras: tuple[str, ...]
    oldest: bool

    @property
    def files(self) -> list[Path]:
        return [
            path
            for extra in self.extras
            for path in sorted(TESTS.glob(f"test_{extra.replace('-', '_')}_*.py"))
        ]


ENVIRONMENTS = [
    Environment("strands-oldest", ("strands",), oldest=True),
    Environment("openai-agents-oldest", ("openai-agents",), oldest=True),
    Environment("newest", ("strands", "openai-agents"), oldest=False),
]


def lower_bounds(extra: str) -> list[str]:
    """The extra's requirements, each at the version its range begins with."""
    project = tomllib.loads((SDK / "pyproject.toml").read_text())["project"]
    pins = []
    for text in project["optional-dependencies"][extra]:
        requirement = Requirement(text)
        lowest = next(bound.version for bound in requirement.specifier if bound.operator == ">=")
        pins.append(f"{requirement.name}=={lowest}")
    return pins


def test(environment: Environment, uv: str) -> bool:
    """Make the environment and run its tests; whether they passed."""
    folder = ROOT / ".venv-frameworks" / environment.name
    python = folder / "bin" / "python"
    pins = [pin for extra in environment.extras for pin in lower_bounds(extra)] if environment.oldest else []
    subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, folder], check=True)
    subprocess.run(
        [
            *(uv, "pip", "install", "--quiet", "--upgrade", "--python", python, *TEST_TOOLS, *pins),
            *("--editable", f"{SDK}[{','.join(('server', *environment.extras))}]"),
        ],
        check=True,
    )
    frozen = subprocess.run(
        [uv, "pip", "freeze", "--quiet", "--python", python], check=True, capture_output=True, text=True
    ).stdout
    tested = [line for line in frozen.splitlines() if line.startswith(("strands-agents", "openai", "mcp=="))]
    print(f"{environment.name}: {', '.join(tested)}", flush=True)
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *environment.files], cwd=ROOT, check=False
    )
    return done.returncode == 0


def main(names: list[str]) -> int:
    known = {environment.name for environment in ENVIRONMENTS}
    if unknown := set(names) - known:
        print(
            f"unknown environment {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}",
            file=sys.stderr,
        )
        return 2
    uv = os.environ.get("UV", "uv")
    chosen = [environment for environment in ENVIRONMENTS if not names or environment.name in names]
    failed = [environment.name for environment in chosen if not test(environment, uv)]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
