"""Imports every table, so that metadata is complete for migrations and tests."""

from osmosis_platform.accounts import models as accounts
from osmosis_platform.adapters import models as adapters
from osmosis_platform.audit import models as audit
from osmosis_platform.datasets import models as datasets
from osmosis_platform.db.base import Base
from osmosis_platform.dev_servers import models as dev_servers
from osmosis_platform.hugging_face import models as hugging_face
from osmosis_platform.inference import models as inference
from osmosis_platform.jobs import models as jobs
from osmosis_platform.repositories import models as repositories
from osmosis_platform.rollouts import models as rollouts
from osmosis_platform.runs import models as runs
from osmosis_platform.secrets import models as secrets
from osmosis_platform.storage import models as storage
from osmosis_platform.webhooks import models as webhooks
from osmosis_platform.workspaces import models as workspaces

metadata = Base.metadata
__all__ = [
    "accounts",
    "adapters",
    "audit",
    "datasets",
    "dev_servers",
    "hugging_face",
    "inference",
    "jobs",
    "metadata",
    "repositories",
    "rollouts",
    "runs",
    "secrets",
    "storage",
    "webhooks",
    "workspaces",
]
