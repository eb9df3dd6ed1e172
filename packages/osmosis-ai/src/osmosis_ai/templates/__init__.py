"""Files that Osmosis writes for a user: the workspace template, its starters, and the scaffold of a rollout."""

from osmosis_ai.templates.errors import TemplateError
from osmosis_ai.templates.scaffold import NewRollout, init_rollout
from osmosis_ai.templates.source import AGENT_FILES, workspace_source, write_workspace
from osmosis_ai.templates.starters import STARTERS, AppliedStarter, apply_starter, starter_files

__all__ = [
    "AGENT_FILES",
    "STARTERS",
    "AppliedStarter",
    "NewRollout",
    "TemplateError",
    "apply_starter",
    "init_rollout",
    "starter_files",
    "workspace_source",
    "write_workspace",
]
