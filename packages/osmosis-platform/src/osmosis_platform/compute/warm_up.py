"""Imports what a rollout will import, so that its compiled form is in the environment: run by the environment's interpreter.

Arguments are names of distributions. Compiling everything that is installed would take twenty times as long as compiling
what is used; not compiling at all would be paid again at every start, since runs cannot write to the environment.
"""

import contextlib
import importlib
import importlib.metadata
import sys

_SDK = (
    "osmosis_ai.rollout.backend.local",
    "osmosis_ai.rollout.server.app",
    "osmosis_ai.rollout.discovery.finder",
    "osmosis_ai.rollout.integrations.agents.openai_agents",
    "osmosis_ai.rollout.integrations.agents.strands",
    "uvicorn",
    "uvicorn.loops.uvloop",
    "uvicorn.protocols.http.auto",
)


def main(distributions: list[str]) -> None:
    """Import every module of the distributions; those that do not import are left for the rollout to complain about."""
    wanted = {name.lower().replace("_", "-") for name in distributions}
    modules = [
        module
        for module, owners in importlib.metadata.packages_distributions().items()
        if any(owner.lower().replace("_", "-") in wanted for owner in owners)
    ]
    for module in (*_SDK, *modules):
        with contextlib.suppress(BaseException):
            importlib.import_module(module)


if __name__ == "__main__":
    main(sys.argv[1:])
