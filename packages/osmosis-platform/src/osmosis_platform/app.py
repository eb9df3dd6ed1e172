"""The web application over an open platform: every domain's routes behind the same plumbing."""

from __future__ import annotations

from fastapi import APIRouter, Depends, FastAPI

from osmosis_platform import health
from osmosis_platform.accounts import account_views, github_views, token_views
from osmosis_platform.accounts import api as accounts_api
from osmosis_platform.accounts import views as accounts_views
from osmosis_platform.adapters import api as adapters_api
from osmosis_platform.adapters import views as adapters_views
from osmosis_platform.audit import views as audit_views
from osmosis_platform.benchmarks import api as benchmarks_api
from osmosis_platform.context import Platform
from osmosis_platform.datasets import api as datasets_api
from osmosis_platform.datasets import upload_views
from osmosis_platform.datasets import views as datasets_views
from osmosis_platform.dev_servers import api as dev_servers_api
from osmosis_platform.evaluation import api as evaluation_api
from osmosis_platform.evaluation import compare_views as evaluation_compare_views
from osmosis_platform.http.body_limit import BodyLimit
from osmosis_platform.http.errors import install_error_handlers
from osmosis_platform.http.middleware import RequestMiddleware
from osmosis_platform.http.openapi import ErrorBody, refusals
from osmosis_platform.http.routing import restore_slashes
from osmosis_platform.http.versions import VersionPolicy
from osmosis_platform.hugging_face import views as hugging_face_views
from osmosis_platform.inference import api as inference_api
from osmosis_platform.inference import playground
from osmosis_platform.inference import views as inference_views
from osmosis_platform.live import views as live_views
from osmosis_platform.repositories import api as repositories_api
from osmosis_platform.repositories import connect_views, push_hook
from osmosis_platform.repositories import views as git_views
from osmosis_platform.rollouts import api as rollouts_api
from osmosis_platform.rollouts import views as rollouts_views
from osmosis_platform.runs import api as runs_api
from osmosis_platform.runs import manage_views as manage_run_views
from osmosis_platform.runs import new_views as new_run_views
from osmosis_platform.runs import views as runs_views
from osmosis_platform.secrets import api as secrets_api
from osmosis_platform.secrets import views as secrets_views
from osmosis_platform.storage import api as storage_api
from osmosis_platform.training import api as training_api
from osmosis_platform.training import compare_views as training_compare_views
from osmosis_platform.version import VERSION
from osmosis_platform.web.pages import mount_static
from osmosis_platform.webhooks import views as webhook_views
from osmosis_platform.workspaces import api as workspaces_api
from osmosis_platform.workspaces import create_views, invite_views, logo_views, member_views, settings_views
from osmosis_platform.workspaces import views as workspaces_views

APIS: tuple[APIRouter, ...] = (
    accounts_api.router,
    workspaces_api.router,
    secrets_api.router,
    datasets_api.router,
    repositories_api.router,
    push_hook.router,
    rollouts_api.router,
    runs_api.router,
    evaluation_api.router,
    training_api.router,
    adapters_api.router,
    benchmarks_api.router,
    dev_servers_api.router,
    inference_api.router,
    storage_api.router,
)
# After the APIs: a page's address begins with the name of a workspace, which could be any word.
PAGES: tuple[APIRouter, ...] = (
    accounts_views.router,
    github_views.router,
    account_views.router,
    token_views.router,
    invite_views.router,
    create_views.router,
    workspaces_views.router,
    upload_views.router,
    datasets_views.router,
    rollouts_views.router,
    git_views.router,
    connect_views.router,
    new_run_views.router,
    manage_run_views.router,
    runs_views.router,
    evaluation_compare_views.router,
    training_compare_views.router,
    adapters_views.router,
    secrets_views.router,
    inference_views.router,
    playground.router,
    settings_views.router,
    logo_views.router,
    member_views.router,
    audit_views.router,
    webhook_views.router,
    hugging_face_views.router,
    live_views.router,
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
        responses=refusals(ErrorBody),
        dependencies=[Depends(restore_slashes)],
    )
    app.state.platform = platform
    install_error_handlers(app)
    app.add_middleware(BodyLimit)
    app.add_middleware(
        RequestMiddleware,
        versions=VersionPolicy.of(
            settings.minimum_cli_version, settings.deprecated_cli_version, settings.latest_cli_version
        ),
    )
    app.include_router(health.router)
    mount_static(app)
    for router in (*APIS, *PAGES):
        app.include_router(router)
    return app
