"""Finding the workflow and the grader of a rollout entrypoint.

``python -m osmosis_ai.rollout.discovery <rollout_dir> <entrypoint>`` does it in a process of its own, which is the right way for
code that is not trusted or has other dependencies, and prints one JSON line.
"""

from osmosis_ai.rollout.discovery.finder import DiscoveredRollout, Problem, discover_rollout

__all__ = ["DiscoveredRollout", "Problem", "discover_rollout"]
