"""What a container has to install beside a bundle.

A bundle carries the SDK itself: the protocol between host and container is the SDK's, so both must run the same one. What
remains of a requirement for the SDK is what the SDK and the named extras need.
"""

from collections.abc import Iterable, Iterator
from importlib.metadata import requires

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from osmosis_ai.consts import PACKAGE_NAME
from osmosis_ai.packaging.errors import BundleError

# For the host of a rollout. A container runs the workflow and the grader only.
_HOST_EXTRAS = frozenset({"server", "harbor", "eval-run"})


def container_requirements(dependencies: Iterable[str]) -> list[str]:
    """The dependencies of a project with those on the SDK resolved, without repetitions, in order.

    Raises:
        BundleError: for a dependency that is no requirement.
    """
    own: list[str] = []
    extras: set[str] = set()
    for text in dependencies:
        try:
            requirement = Requirement(text)
        except (InvalidRequirement, TypeError) as error:
            raise BundleError(f"the dependency {text!r} cannot be read: {error}") from error
        if canonicalize_name(requirement.name) == PACKAGE_NAME:
            extras |= requirement.extras
        else:
            own.append(str(requirement))
    return list(dict.fromkeys([*_of_sdk(frozenset(extras)), *own]))


def _of_sdk(extras: frozenset[str]) -> Iterator[str]:
    for text in requires(PACKAGE_NAME) or []:
        requirement = Requirement(text)
        marker, requirement.marker = requirement.marker, None
        if marker is not None and not any(marker.evaluate({"extra": name}) for name in extras - _HOST_EXTRAS):
            continue
        if canonicalize_name(requirement.name) == PACKAGE_NAME:
            yield from _of_sdk(frozenset(requirement.extras) - extras)
        else:
            yield str(requirement)
