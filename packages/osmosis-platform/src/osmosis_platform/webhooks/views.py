"""The page of a workspace's webhook: its address and events, its secret, and what was delivered."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import RedirectResponse
from sqlalchemy import select

from osmosis_platform.errors import InvalidInput
from osmosis_platform.http.paging import Offset, page_of
from osmosis_platform.http.scope import PlatformDep
from osmosis_platform.web.pages import render
from osmosis_platform.web.viewer import Csrf, Viewer, ViewerDep, page_at
from osmosis_platform.webhooks import service
from osmosis_platform.webhooks.addresses import resolve
from osmosis_platform.webhooks.jobs import body_of
from osmosis_platform.webhooks.models import Webhook, WebhookDelivery

router = APIRouter(include_in_schema=False)
PATH = "/{workspace}/settings/webhooks"


@router.get(PATH)
def webhook_page(request: Request, platform: PlatformDep, viewer: ViewerDep, offset: Offset = 0) -> Response:
    """The webhook and its deliveries, newest first."""
    viewer.require_role("admin", "manage webhooks")
    return _page(request, platform, viewer, offset=offset)


@router.post(PATH, dependencies=[Csrf])
def save_webhook(
    request: Request,
    platform: PlatformDep,
    viewer: ViewerDep,
    url: Annotated[str, Form()] = "",
    event: Annotated[list[str] | None, Form()] = None,
    enabled: Annotated[str, Form()] = "",
) -> Response:
    """Set the address and its events; an empty address removes the webhook. A new one answers with its secret, this once."""
    viewer.require_role("admin", "manage webhooks")
    typed = {"url": url.strip(), "events": event or [], "enabled": enabled == "yes"}
    try:
        if typed["url"]:
            resolve(url.strip(), anywhere=platform.settings.webhooks_anywhere)
        with platform.database.write() as session:
            secret = service.save(session, platform.keys, viewer.workspace_id, viewer.user, **typed)  # type: ignore[arg-type]
    except InvalidInput as problem:
        return _page(request, platform, viewer, error=problem.message, typed=typed, status=problem.status)
    if secret is not None:
        return _page(request, platform, viewer, secret=secret, status=201)
    return _back(viewer)


@router.post(PATH + "/secret", dependencies=[Csrf])
def renew_secret(request: Request, platform: PlatformDep, viewer: ViewerDep) -> Response:
    """Make a new secret; the answer is the only place that has it."""
    viewer.require_role("admin", "manage webhooks")
    with platform.database.write() as session:
        secret = service.renew_secret(session, platform.keys, viewer.workspace_id, viewer.user)
    return _page(request, platform, viewer, secret=secret, status=201)


@router.post(PATH + "/test", dependencies=[Csrf])
def send_test(platform: PlatformDep, viewer: ViewerDep) -> Response:
    """Send a test event."""
    viewer.require_role("admin", "manage webhooks")
    with platform.database.write() as session:
        service.send_test(session, viewer.workspace_id, viewer.user)
    platform.jobs.wake()
    return _back(viewer)


@router.get(PATH + "/deliveries/{delivery_id}")
def delivery_page(request: Request, platform: PlatformDep, viewer: ViewerDep, delivery_id: str) -> Response:
    """One delivery: what was sent, and each try."""
    viewer.require_role("admin", "manage webhooks")
    with platform.database.read() as session:
        delivery = service.find_delivery(session, viewer.workspace_id, delivery_id)
        data = {"delivery": _row(delivery), "body": json.loads(body_of(platform, delivery))}
    return render(request, "webhook_delivery.html", data, viewer=viewer, room="settings")


@router.post(PATH + "/deliveries/{delivery_id}/redeliver", dependencies=[Csrf])
def redeliver(platform: PlatformDep, viewer: ViewerDep, delivery_id: str) -> Response:
    """Send an event once more."""
    viewer.require_role("admin", "manage webhooks")
    with platform.database.write() as session:
        service.redeliver(session, viewer.workspace_id, delivery_id, viewer.user)
    platform.jobs.wake()
    return _back(viewer)


def _back(viewer: Viewer) -> Response:
    return RedirectResponse(f"/{viewer.workspace}/settings/webhooks", status_code=303)


def _page(
    request: Request,
    platform: PlatformDep,
    viewer: Viewer,
    *,
    secret: str | None = None,
    error: str | None = None,
    typed: dict[str, Any] | None = None,
    offset: int = 0,
    status: int = 200,
) -> Response:
    page = page_at(offset)
    with platform.database.read() as session:
        webhook = service.find(session, viewer.workspace_id)
        query = (
            select(WebhookDelivery)
            .where(WebhookDelivery.webhook_id == (webhook.id if webhook else ""))
            .order_by(WebhookDelivery.created_at.desc(), WebhookDelivery.id)
        )
        found, total = page_of(session, query, page)
        data: dict[str, Any] = {
            "webhook": _facts(webhook) if webhook else None,
            "deliveries": [_row(delivery) for delivery in found],
            "page": {"limit": page.limit, "offset": page.offset, "total": total},
            "secret": secret,
            "error": error,
        }
    shown = typed or data["webhook"] or {"url": "", "events": list(service.DEFAULT_EVENTS), "enabled": True}
    chrome: dict[str, Any] = {
        "shown": shown,
        "offered": service.EVENTS,
        "anywhere": platform.settings.webhooks_anywhere,
    }
    return render(request, "webhooks.html", data, status=status, viewer=viewer, room="settings", **chrome)


def _facts(webhook: Webhook) -> dict[str, Any]:
    return {
        "url": webhook.url,
        "events": webhook.events,
        "enabled": webhook.enabled,
        "secret_hint": webhook.hint,
        "updated_at": webhook.updated_at.isoformat(),
    }


def _row(delivery: WebhookDelivery) -> dict[str, Any]:
    return {
        "id": delivery.id,
        "event": delivery.event,
        "subject": delivery.subject,
        "page": delivery.page,
        "status": delivery.status,
        "tries": delivery.tries,
        "created_at": delivery.created_at.isoformat(),
    }
