"""Webhooks tell a receiver what happened: signed, again after a failure, never into the platform's own network."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from typing import Any

import pytest
from sqlalchemy import select

from osmosis_platform.audit.models import AuditEvent
from osmosis_platform.context import Platform
from osmosis_platform.datasets.announcements import announce_outcome
from osmosis_platform.datasets.models import Dataset
from osmosis_platform.db.types import utc_now
from osmosis_platform.errors import InvalidInput
from osmosis_platform.jobs.models import Job
from osmosis_platform.jobs.queue import ClaimedJob
from osmosis_platform.jobs.runner import RetryLater
from osmosis_platform.runs.models import Run, RunMetric
from osmosis_platform.runs.service import finish
from osmosis_platform.runs.status import transition
from osmosis_platform.secrets.rotation import rotate
from osmosis_platform.webhooks import jobs, service
from osmosis_platform.webhooks.addresses import check_url, is_public, resolve
from osmosis_platform.webhooks.models import Webhook, WebhookDelivery

PAGE = "/acme/settings/webhooks"
EVERYTHING = list(service.EVENTS)


@dataclass
class Receiver:
    """A real HTTP server that answers with `answers`, one after the other, and keeps what it was sent."""

    url: str = ""
    answers: list[int] = field(default_factory=list)
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            found.requests.append(({k.lower(): v for k, v in self.headers.items()}, body))
            self.send_response(found.answers.pop(0) if found.answers else 204)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://localhost:{server.server_port}/hook?to=us"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield found
    server.shutdown()
    server.server_close()


@pytest.fixture
def amy(browser: Callable[[str], Any], platform: Platform, workshop: Any) -> Any:
    platform.settings = platform.settings.model_copy(update={"webhooks_anywhere": True})
    return browser("amy")


def work(platform: Platform) -> ClaimedJob:
    """The oldest waiting delivery, taken now, as the runner would once its time has come."""
    with platform.database.write() as session:
        job = session.scalars(
            select(Job).where(Job.queue == "webhooks", Job.status == "queued").order_by(Job.created_at)
        ).first()
        assert job is not None, "nothing is to be delivered"
        job.status, job.attempts = "running", job.attempts + 1
        return ClaimedJob(job.id, job.queue, job.kind, job.payload, job.attempts, job.max_attempts, 1)


def deliveries(platform: Platform) -> list[WebhookDelivery]:
    with platform.database.read() as session:
        return list(session.scalars(select(WebhookDelivery).order_by(WebhookDelivery.created_at)))


def submit(platform: Platform, workshop: Any, amy: Any, kind: str) -> str:
    body = workshop.body("tiny/model")
    answer = amy.client.post(f"/api/cli/{kind}-runs", json=body, headers=workshop.town.amy.scoped())
    return str(answer.json()["id"])


def test_a_run_that_ends_is_told_once_and_signed(
    amy: Any, platform: Platform, workshop: Any, receiver: Receiver
) -> None:
    created = amy.post(PAGE, url=receiver.url, event=EVERYTHING, enabled="yes")
    assert created.status_code == 201
    secret = created.json()["secret"]
    assert secret.startswith("whsec_")
    run_id = submit(platform, workshop, amy, "eval")
    with platform.database.write() as session:
        run = session.get_one(Run, run_id)
        transition(run, "running")
        run.results = {"score": 0.5, "pass_rate": 0.25, "failures": [{"error_message": "secret?"}]}
        assert finish(session, run, "finished")
        assert not finish(session, run, "finished")
    jobs.handle_delivery(work(platform), platform)
    [(headers, body)] = receiver.requests
    told = json.loads(body)
    [delivery] = deliveries(platform)
    assert (delivery.status, [t["status"] for t in delivery.tries]) == ("delivered", [204])
    assert told["event"] == "eval_run.completed"
    assert told["timestamp"] == delivery.created_at.isoformat()
    assert told["data"]["platform_url"] == f"{platform.settings.resolved_public_url}/acme/evaluation/{run_id}"
    assert told["data"] | {"platform_url": ""} == {
        "id": run_id, "name": run.name, "status": "finished", "model_name": "tiny/model", "platform_url": "",
        "started_at": run.started_at.isoformat(), "completed_at": run.completed_at.isoformat(), "duration_seconds": 0,
        "dataset": {"id": workshop.dataset_id, "name": "sums"}, "rollout": {"id": run.rollout_id, "name": "echo"},
        "latest_metrics": {"score": 0.5, "pass_rate": 0.25},
    }  # fmt: skip
    # What a receiver does, after the specification: https://www.standardwebhooks.com
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    key = base64.b64decode(secret.removeprefix("whsec_"))
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    assert headers["webhook-id"] == delivery.id
    assert headers["content-type"] == "application/json"
    assert headers["host"] == receiver.url.split("/")[2]


def test_crashes_are_failures_and_events_that_were_not_chosen_stay(
    amy: Any, platform: Platform, workshop: Any, receiver: Receiver
) -> None:
    amy.post(PAGE, url=receiver.url, event=["training_run.completed", "dataset.failed"], enabled="yes")
    training, evaluation = (
        submit(platform, workshop, amy, "training"),
        submit(platform, workshop, amy, "eval"),
    )
    with platform.database.write() as session:
        run = session.get_one(Run, training)
        transition(run, "running")
        for step, value in ((1, 0.25), (12, 0.5), (9, 0.125)):
            session.add(
                RunMetric(
                    run_id=run.id, key="rollout/raw_reward", step=step, value=value, timestamp=utc_now()
                )
            )
        finish(session, run, "crashed", error="out of memory")
        finish(session, session.get_one(Run, evaluation), "stopped")
        dataset = session.get_one(Dataset, workshop.dataset_id)
        announce_outcome(session, dataset)
        dataset.status, dataset.error = "error", "line 3 is bad"
        announce_outcome(session, dataset)
    found = {delivery.event: delivery.data for delivery in deliveries(platform)}
    assert found.keys() == {"training_run.completed", "dataset.failed"}
    assert found["training_run.completed"]["status"] == "failed"
    assert found["training_run.completed"]["latest_metrics"] == {"rollout/raw_reward": 0.5}
    assert found["dataset.failed"]["error"] == "line 3 is bad"
    amy.post(PAGE, url=receiver.url, event=EVERYTHING)  # the box "deliver events" is not ticked
    with platform.database.write() as session:
        announce_outcome(session, session.get_one(Dataset, workshop.dataset_id))
    assert len(deliveries(platform)) == 2


def test_failures_are_tried_again_then_given_up_then_sent_by_hand(
    amy: Any, platform: Platform, receiver: Receiver
) -> None:
    amy.post(PAGE, url=receiver.url, event=EVERYTHING, enabled="yes")
    receiver.answers = [500, 302, 410]
    assert amy.post(f"{PAGE}/test").status_code == 303
    waits = []
    for _ in range(3):
        job = work(platform)
        with pytest.raises(RetryLater) as later:
            jobs.handle_delivery(job, platform)
        waits.append(later.value.delay)
        with platform.database.write() as session:
            session.get_one(Job, job.id).status = "queued"
    assert waits[:2] == [10.0, 60.0]
    assert job.max_attempts == 3
    with platform.database.write() as session:
        session.get_one(Job, job.id).status = "failed"
        jobs.delivery_given_up(session, job, "x")
    [delivery] = deliveries(platform)
    assert delivery.status == "failed"
    assert [t["status"] for t in delivery.tries] == [500, 302, 410]
    assert "redirect" in delivery.tries[1]["error"]
    assert len({headers["webhook-id"] for headers, _ in receiver.requests}) == 1
    assert len(receiver.requests) == 3, "a redirect is not followed"
    again = f"{PAGE}/deliveries/{delivery.id}/redeliver"
    assert amy.post(again).status_code == 303
    assert amy.post(again).status_code == 409
    jobs.handle_delivery(work(platform), platform)
    [delivery] = deliveries(platform)
    assert (delivery.status, len(delivery.tries)) == ("delivered", 4)
    shown = amy.json(f"{PAGE}/deliveries/{delivery.id}")
    assert shown["body"]["event"] == "webhook.test"
    assert shown["body"]["data"]["workspace"] == "acme"
    assert "The answer 302" in amy.get(f"{PAGE}/deliveries/{delivery.id}").text


def test_nobody_at_the_other_end_is_a_failure_with_its_reason(amy: Any, platform: Platform) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        amy.post(PAGE, url=f"http://127.0.0.1:{closed.getsockname()[1]}/", event=EVERYTHING, enabled="yes")
        amy.post(f"{PAGE}/test")
        with pytest.raises(RetryLater, match="The connection failed"):
            jobs.handle_delivery(work(platform), platform)


def test_a_name_that_turned_private_gets_nothing(amy: Any, platform: Platform, receiver: Receiver) -> None:
    amy.post(PAGE, url=receiver.url, event=EVERYTHING, enabled="yes")
    amy.post(f"{PAGE}/test")
    platform.settings = platform.settings.model_copy(update={"webhooks_anywhere": False})
    with platform.database.write() as session:
        session.scalars(select(Webhook)).one().url = "https://localhost/hook"
    with pytest.raises(RetryLater, match="inside a private network"):
        jobs.handle_delivery(work(platform), platform)
    assert receiver.requests == []


def test_the_secret_is_shown_once_and_only_ciphertext_is_kept(
    amy: Any, platform: Platform, receiver: Receiver
) -> None:
    secret = amy.post(PAGE, url=receiver.url, event=EVERYTHING, enabled="yes").json()["secret"]
    page = amy.get(PAGE).text
    assert secret not in page
    assert secret[-4:] in page
    assert amy.post(PAGE, url=receiver.url, event=["dataset.ready"], enabled="yes").status_code == 303
    rotate(platform.database, platform.keys)
    with platform.database.read() as session:
        webhook = session.scalars(select(Webhook)).one()
    assert secret[6:].encode() not in webhook.ciphertext
    assert service.secret_of(webhook, platform.keys) == secret
    renewed = amy.post(f"{PAGE}/secret").json()["secret"]
    assert renewed != secret
    assert amy.post(PAGE, url="").status_code == 303
    assert amy.json(PAGE)["webhook"] is None
    assert amy.post(f"{PAGE}/test").status_code == 404
    with platform.database.read() as session:
        actions = list(session.scalars(select(AuditEvent.action).order_by(AuditEvent.created_at)))
    assert actions == ["webhook.set", "webhook.set", "keys.rotate", "webhook.secret", "webhook.remove"]


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/", "https://example.com:8443/", "ftp://example.com/", "https://", "example.com", "https://a b.com",
        "https://user:pw@example.com/", "https://example.com/#x", "https://example.com/\n", "https://[::1", "https://exämple.com",
    ],
)  # fmt: skip
def test_addresses_that_are_no_webhook(url: str) -> None:
    with pytest.raises(InvalidInput):
        check_url(url, anywhere=False)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "10.1.2.3", "169.254.169.254", "[::1]", "0.0.0.0", "localhost", "2130706433"]
)
def test_private_addresses_are_refused(amy: Any, platform: Platform, host: str) -> None:
    platform.settings = platform.settings.model_copy(update={"webhooks_anywhere": False})
    with pytest.raises(InvalidInput, match="private network"):
        resolve(f"https://{host}/", anywhere=False)
    answer = amy.post(PAGE, url=f"https://{host}/", event=EVERYTHING, enabled="yes", html=True)
    assert answer.status_code == 400
    assert "private network" in answer.text


def test_which_addresses_are_public() -> None:
    inside = [
        "192.168.0.1", "172.16.0.1", "100.64.0.1", "224.0.0.1", "255.255.255.255", "fd00::1", "fe80::1", "ff02::1",
        "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "::",
    ]  # fmt: skip
    assert [a for a in inside if is_public(ip_address(a))] == []
    outside = [
        "93.184.215.14",
        "2606:2800:21f:cb07:6820:80da:af6b:8b2c",
        "::ffff:93.184.215.14",
        "64:ff9b::5db8:d70e",
    ]
    assert [a for a in outside if not is_public(ip_address(a))] == []
