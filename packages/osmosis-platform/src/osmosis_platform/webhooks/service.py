"""Rules of webhooks: one address per workspace, the events it gets, its secret, and deliveries that are tried again."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from osmosis_platform.accounts.models import User
from osmosis_platform.accounts.tokens import hint_of
from osmosis_platform.audit.service import record
from osmosis_platform.db.types import utc_now
from osmosis_platform.errors import Conflict, InvalidInput, NotFound
from osmosis_platform.jobs.models import Job
from osmosis_platform.secrets.keys import KeyRing, Sealed
from osmosis_platform.webhooks import signing
from osmosis_platform.webhooks.models import Webhook, WebhookDelivery
from osmosis_platform.workspaces.models import Workspace

EVENTS = {
    "training_run.completed": "a training run ended",
    "eval_run.completed": "an evaluation run ended",
    "dataset.ready": "a dataset can be used",
    "dataset.failed": "a dataset could not be used",
}
DEFAULT_EVENTS = ("training_run.completed", "eval_run.completed")
TEST_EVENT = "webhook.test"
QUEUE = "webhooks"
DELIVER_JOB = "webhooks.deliver"
TRIES = 3
KEPT_DAYS = 30
_PURPOSE = "webhooks"


def find(session: Session, workspace_id: str) -> Webhook | None:
    """The workspace's webhook, if it has one."""
    return session.scalar(select(Webhook).where(Webhook.workspace_id == workspace_id))


def required(session: Session, workspace_id: str) -> Webhook:
    """Like `find`; raises NotFound."""
    webhook = find(session, workspace_id)
    if webhook is None:
        raise NotFound("This workspace has no webhook. Enter an address first.", code="WEBHOOK_NOT_FOUND")
    return webhook


def save(
    session: Session,
    keys: KeyRing,
    workspace_id: str,
    by: User,
    *,
    url: str,
    events: Sequence[str],
    enabled: bool,
) -> str | None:
    """Set the workspace's webhook; returns the secret of a new one, which is never seen again.

    An empty `url` removes it with its deliveries. Whether the address may be sent to is for the caller to check. Raises InvalidInput.
    """
    webhook = find(session, workspace_id)
    if not url:
        if webhook is not None:
            _audit(session, webhook, "remove", by)
            session.execute(delete(WebhookDelivery).where(WebhookDelivery.webhook_id == webhook.id))
            session.delete(webhook)
        return None
    unknown = sorted(set(events) - EVENTS.keys())
    if unknown or not events:
        raise InvalidInput(f"Choose at least one of the events {', '.join(EVENTS)}.", field="events")
    chosen = [event for event in EVENTS if event in events]
    if webhook is not None:
        if (webhook.url, webhook.events, webhook.enabled) != (url, chosen, enabled):
            webhook.url, webhook.events, webhook.enabled = url, chosen, enabled
            _audit(session, webhook, "set", by)
        return None
    webhook = Webhook(workspace_id=workspace_id, url=url, events=chosen, enabled=enabled, creator_id=by.id)
    secret = _seal_new(webhook, keys)
    session.add(webhook)
    session.flush()
    _audit(session, webhook, "set", by)
    return secret


def renew_secret(session: Session, keys: KeyRing, workspace_id: str, by: User) -> str:
    """A new secret in place of the old one, which signs nothing any more. Raises NotFound."""
    webhook = required(session, workspace_id)
    secret = _seal_new(webhook, keys)
    _audit(session, webhook, "secret", by)
    return secret


def announce(
    session: Session,
    workspace_id: str,
    event: str,
    *,
    subject: str,
    page: str | None,
    data: Callable[[], dict[str, Any]],
) -> None:
    """Queue an event in the transaction that makes it true; `data` is asked only where somebody wants to know."""
    webhook = find(session, workspace_id)
    if webhook is not None and webhook.enabled and event in webhook.events:
        _queue(session, webhook, event, subject, page, data())


def send_test(session: Session, workspace_id: str, by: User) -> None:
    """Queue a test event, also where deliveries are turned off. Raises NotFound."""
    webhook = required(session, workspace_id)
    name = session.get_one(Workspace, workspace_id).name
    data = {"workspace": name, "message": f"Webhooks of the workspace {name} reach this address."}
    _queue(session, webhook, TEST_EVENT, name, None, data)
    _audit(session, webhook, "test", by)


def redeliver(session: Session, workspace_id: str, delivery_id: str, by: User) -> None:
    """Send an event once more, under the same id. Raises NotFound, or Conflict while it is still on its way."""
    delivery = find_delivery(session, workspace_id, delivery_id)
    if delivery.status == "pending":
        raise Conflict("This event is still on its way.", code="DELIVERY_PENDING")
    delivery.status = "pending"
    _enqueue(session, delivery)
    _audit(session, required(session, workspace_id), "redeliver", by, event=delivery.event)


def find_delivery(session: Session, workspace_id: str, delivery_id: str) -> WebhookDelivery:
    """A delivery of the workspace's webhook; raises NotFound."""
    delivery = session.scalar(
        select(WebhookDelivery)
        .join(Webhook, Webhook.id == WebhookDelivery.webhook_id)
        .where(Webhook.workspace_id == workspace_id, WebhookDelivery.id == delivery_id)
    )
    if delivery is None:
        raise NotFound(f"There is no delivery with the id {delivery_id}.", code="DELIVERY_NOT_FOUND")
    return delivery


def secret_of(webhook: Webhook, keys: KeyRing) -> str:
    """The secret in clear; raises SecretUnreadable."""
    sealed = Sealed(webhook.key_id, webhook.nonce, webhook.ciphertext)
    return keys.unseal(sealed, _bound_to(webhook), _PURPOSE).decode()


def reencrypt(session: Session, keys: KeyRing) -> int:
    """Encrypt every secret with the current master key; returns how many."""
    found = list(session.scalars(select(Webhook)))
    for webhook in found:
        _seal(webhook, keys, secret_of(webhook, keys))
    return len(found)


def _seal_new(webhook: Webhook, keys: KeyRing) -> str:
    secret = signing.new_secret()
    webhook.hint = hint_of(secret)
    _seal(webhook, keys, secret)
    return secret


def _seal(webhook: Webhook, keys: KeyRing, secret: str) -> None:
    sealed = keys.seal(secret.encode(), _bound_to(webhook), _PURPOSE)
    webhook.key_id, webhook.nonce, webhook.ciphertext = sealed.key_id, sealed.nonce, sealed.ciphertext


def _bound_to(webhook: Webhook) -> bytes:
    return json.dumps(["webhook", webhook.workspace_id]).encode()


def _queue(
    session: Session, webhook: Webhook, event: str, subject: str, page: str | None, data: dict[str, Any]
) -> None:
    old = WebhookDelivery.created_at < utc_now() - timedelta(days=KEPT_DAYS)
    session.execute(delete(WebhookDelivery).where(WebhookDelivery.webhook_id == webhook.id, old))
    delivery = WebhookDelivery(webhook_id=webhook.id, event=event, subject=subject, page=page, data=data)
    session.add(delivery)
    session.flush()
    _enqueue(session, delivery)


def _enqueue(session: Session, delivery: WebhookDelivery) -> None:
    # The end of a run knows only its transaction, not the queue: its threads find the job within a second.
    payload = {"delivery_id": delivery.id}
    session.add(Job(queue=QUEUE, kind=DELIVER_JOB, payload=payload, max_attempts=TRIES))


def _audit(session: Session, webhook: Webhook, verb: str, by: User, **details: str) -> None:
    action = f"webhook.{verb}"
    record(session, action, webhook.url, user_id=by.id, workspace_id=webhook.workspace_id, **details)
