"""Durable work of webhooks: one try of a delivery per attempt of its job."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import httpx
from sqlalchemy.orm import Session

from osmosis_platform.context import Platform
from osmosis_platform.db.types import utc_now
from osmosis_platform.errors import InvalidInput
from osmosis_platform.jobs.queue import ClaimedJob
from osmosis_platform.jobs.runner import RetryLater, Work
from osmosis_platform.version import VERSION
from osmosis_platform.webhooks import service, signing
from osmosis_platform.webhooks.addresses import Destination, resolve
from osmosis_platform.webhooks.models import Webhook, WebhookDelivery

TRY_SECONDS = 5.0
# Before the second and the third try.
DELAYS = (10.0, 60.0)


class _Undeliverable(Exception):
    """A try failed; the text says why."""

    def __init__(self, reason: str, status: int | None = None) -> None:
        super().__init__(reason)
        self.status = status


def handle_delivery(job: ClaimedJob, platform: Platform) -> None:
    """Send the delivery named in the payload once; raises RetryLater when that failed and may succeed later."""
    with platform.database.read() as session:
        delivery = session.get(WebhookDelivery, job.payload["delivery_id"])
        if delivery is None or delivery.status != "pending":
            return
        webhook = session.get_one(Webhook, delivery.webhook_id)
        body = body_of(platform, delivery)
        secret = service.secret_of(webhook, platform.keys)
    started = time.monotonic()
    status, error = None, None
    try:
        status = asyncio.run(_send(webhook.url, secret, delivery.id, body, platform))
    except _Undeliverable as problem:
        status, error = problem.status, str(problem)
    tried = {
        "at": utc_now().isoformat(),
        "status": status,
        "error": error,
        "milliseconds": round((time.monotonic() - started) * 1000),
    }
    with platform.database.write() as session:
        kept = session.get(WebhookDelivery, delivery.id)
        if kept is None:  # the webhook was removed meanwhile
            return
        kept.tries = [*kept.tries, tried]
        if error is None:
            kept.status = "delivered"
    if error is not None:
        raise RetryLater(error, DELAYS[min(job.attempt, len(DELAYS)) - 1])


def delivery_given_up(session: Session, job: ClaimedJob, _reason: str) -> None:
    """Every try failed: the log of deliveries says so, and it can be sent again by hand."""
    delivery = session.get(WebhookDelivery, job.payload["delivery_id"])
    if delivery is not None and delivery.status == "pending":
        delivery.status = "failed"


def body_of(platform: Platform, delivery: WebhookDelivery) -> bytes:
    """What is sent: event, when it happened, and its data, with the address of its page."""
    data: dict[str, Any] = dict(delivery.data)
    if delivery.page is not None:
        data["platform_url"] = platform.settings.resolved_public_url + delivery.page
    envelope = {"event": delivery.event, "timestamp": delivery.created_at.isoformat(), "data": data}
    return json.dumps(envelope, ensure_ascii=False).encode()


async def _send(url: str, secret: str, delivery_id: str, body: bytes, platform: Platform) -> int:
    """One try within `TRY_SECONDS`, looking up the host included; returns the status, always 2xx. Raises _Undeliverable."""
    anywhere = platform.settings.webhooks_anywhere
    try:
        async with asyncio.timeout(TRY_SECONDS):
            destination = await asyncio.to_thread(resolve, url, anywhere=anywhere)
            status = await _post(destination, secret, delivery_id, body)
    except TimeoutError as error:
        raise _Undeliverable(f"No answer within {TRY_SECONDS:.0f} seconds.") from error
    except InvalidInput as error:
        raise _Undeliverable(error.message) from error
    except httpx.HTTPError as error:
        raise _Undeliverable(f"The connection failed: {type(error).__name__}.") from error
    if 300 <= status < 400:
        raise _Undeliverable(f"The answer {status} is a redirect, which is not followed.", status)
    if not 200 <= status < 300:
        raise _Undeliverable(f"The answer was {status}.", status)
    return status


async def _post(destination: Destination, secret: str, delivery_id: str, body: bytes) -> int:
    headers = {
        "Host": destination.host_header,
        "Content-Type": "application/json",
        "User-Agent": f"Osmosis-Webhooks/{VERSION}",
        **signing.signed_headers(secret, delivery_id, int(time.time()), body),
    }
    async with (
        httpx.AsyncClient(trust_env=False, follow_redirects=False, timeout=TRY_SECONDS) as client,
        client.stream(
            "POST",
            destination.url,
            content=body,
            headers=headers,
            extensions={"sni_hostname": destination.host},
        ) as answer,
    ):
        return answer.status_code  # what the receiver says beside that is not read


WORK = {service.DELIVER_JOB: Work(handle_delivery, delivery_given_up)}
