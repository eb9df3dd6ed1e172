"""The web application over an open platform: every domain's routes behind the same plumbing."""

from __future__ import annotations

import importlib
import importlib.util
import logging

from fastapi import APIRouter, Depends, FastAPI

from osmosis_platform.context import Platform
from osmosis_platform.health import router as health
from osmosis_platform.http.body_limit import BodyLimit
from osmosis_platform.http.errors import install_error_handlers
from osmosis_platform.http.middleware import RequestMiddleware
from osmosis_platform.http.routing import restore_slashes
from osmosis_platform.http.versions import VersionPolicy
from osmosis_platform.version import VERSION
from osmosis_platform.web.pages import mount_static

DOMAINS = (
    "accounts",
    "workspaces",
    "secrets",
    "datasets",
    "repositories",
    "rollouts",
    "runs",
    "evaluation",
    "training",
    "adapters",
    "inference",
    "storage",
)


def create_app(platform: Platform) -> FastAPI:
    """The application. Routers carry their full paths; endpoints find the platform with `http.scope.PlatformDep`."""
    settings = platform.settings
    app = FastAPI(
        title="Osmosis platform",
        version=VERSION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        dependencies=[Depends(restore_slashes)],
    )
    app.state.platform = platform
    install_error_handlers(app)
    app.add_middleware(BodyLimit)
    app.add_middleware(
        RequestMiddleware,
        versions=VersionPolicy.of(settings.minimum_cli_version, settings.deprecated_cli_version),
    )
    app.include_router(health)
    mount_static(app)
    for router in _routers():
        app.include_router(router)
    return app


def _routers() -> list[APIRouter]:
    found = []
    for face in ("api", "views"):
        for domain in DOMAINS:
            name = f"osmosis_platform.{domain}.{face}"
            if importlib.util.find_spec(name) is not None:
                try:
                    found.append(importlib.import_module(name).router)
                except ImportError as error:
                    logging.getLogger(__name__).warning("%s is left out: %s", name, error)
    return found
