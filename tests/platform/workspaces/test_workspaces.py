"""Workspaces, members, roles and the quickstart."""

from __future__ import annotations

import httpx
import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from osmosis_platform.app import APIS, PAGES
from osmosis_platform.audit.models import AuditEvent
from osmosis_platform.context import Platform
from osmosis_platform.errors import Conflict, Forbidden, InvalidInput, PlatformError
from osmosis_platform.workspaces import service
from osmosis_platform.workspaces.models import Membership


def membership(session: Session, town, name: str) -> Membership:  # type: ignore[no-untyped-def]
    found = service.membership_of(session, town.acme.id, getattr(town, name).user.id)
    assert found is not None
    return found


def test_creator_is_owner(platform: Platform, town) -> None:  # type: ignore[no-untyped-def]
    with platform.database.write() as session:
        service.create_workspace(session, "team-2", town.max.user)
        mine = service.workspaces_of(session, town.max.user.id)
    assert [(item.workspace.name, item.role) for item in mine] == [("acme", "member"), ("team-2", "owner")]
    assert mine[0].repository is not None


@pytest.mark.parametrize("name", ["", "-a", "Acme", "a_b", "a/b", "a" * 64, "api", "login", "é"])
def test_bad_names(platform: Platform, town, name: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InvalidInput), platform.database.write() as session:
        service.create_workspace(session, name, town.max.user)


def test_no_workspace_can_take_the_address_of_a_page() -> None:
    routes = [route for router in (*APIS, *PAGES) for route in router.routes]
    paths = [str(getattr(route, "path", "")) for route in routes]
    words = {path.split("/")[1] for path in paths if path.startswith("/")} - {"", "{workspace}"}
    assert {"api", "sign-in", "v1"} <= words
    assert words <= service.RESERVED


def test_taken_name(platform: Platform, town) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(Conflict), platform.database.write() as session:
        service.create_workspace(session, "acme", town.max.user)


@pytest.mark.parametrize(
    ("who", "whom", "role", "error"),
    [
        ("ada", "max", "owner", None),
        ("amy", "max", "admin", None),
        ("amy", "max", "owner", Forbidden),
        ("amy", "ada", "member", Forbidden),
        ("max", "max", "admin", Forbidden),
        ("ada", "ada", "member", Conflict),
        ("ada", "max", "king", InvalidInput),
    ],
)
def test_roles(  # type: ignore[no-untyped-def]
    platform: Platform, town, who: str, whom: str, role: str, error: type[PlatformError] | None
) -> None:
    def change() -> None:
        with platform.database.write() as session:
            by = membership(session, town, who)
            service.set_role(session, town.acme.id, getattr(town, whom).user.id, role, by=by)

    if error is not None:
        with pytest.raises(error):
            change()
        return
    change()
    with platform.database.read() as session:
        assert membership(session, town, whom).role == role
        event = session.scalars(select(AuditEvent).where(AuditEvent.action == "member.role")).one()
        assert (event.target, event.details) == ("max@example.com", {"before": "member", "after": role})


@pytest.mark.parametrize(
    ("who", "whom", "error"),
    [
        ("amy", "max", None),
        ("max", "max", None),
        ("max", "amy", Forbidden),
        ("amy", "ada", Forbidden),
        ("ada", "ada", Conflict),
    ],
)
def test_removal(  # type: ignore[no-untyped-def]
    platform: Platform, client: httpx.Client, town, who: str, whom: str, error: type[PlatformError] | None
) -> None:
    person = getattr(town, whom)

    def remove() -> None:
        with platform.database.write() as session:
            service.remove_member(session, town.acme.id, person.user.id, by=membership(session, town, who))

    if error is not None:
        with pytest.raises(error):
            remove()
    else:
        remove()
    answer = client.get("/api/cli/environment-secrets", headers=person.scoped())
    assert answer.status_code == (200 if error else 403)


def test_adding_a_member(platform: Platform, town) -> None:  # type: ignore[no-untyped-def]
    with platform.database.write() as session:
        amy = membership(session, town, "amy")
        service.add_member(session, town.acme.id, town.eve.user, "member", by=amy)
        with pytest.raises(Conflict):
            service.add_member(session, town.acme.id, town.eve.user, "member", by=amy)
        assert [user.name for user, _ in service.members_of(session, town.acme.id)] == [
            "Ada",
            "Amy",
            "Eve",
            "Max",
        ]


def test_list_is_the_callers(client: httpx.Client, town) -> None:  # type: ignore[no-untyped-def]
    (acme,) = client.get("/api/cli/workspaces", headers=town.max.headers).json()["workspaces"]
    assert acme == {
        "id": town.acme.id,
        "name": "acme",
        "role": "member",
        "has_billing_setup": True,
        "connected_repo": {"id": town.repository.id, "repo_full_name": "Acme/Agents"},
    }
    (other,) = client.get("/api/cli/workspaces", headers=town.eve.headers).json()["workspaces"]
    assert (other["name"], other["connected_repo"]) == ("other", None)


def test_quickstart(client: httpx.Client, platform: Platform, town) -> None:  # type: ignore[no-untyped-def]
    address = f"/api/cli/quickstart?organizationId={town.acme.id}"
    ready = {
        "repo": {"connected": True, "full_name": "Acme/Agents"},
        "billing_ready": True,
        "completed": False,
    }
    assert client.get(address, headers=town.max.headers).json() == ready
    for _ in range(2):
        body = {"organizationId": town.acme.id, "intent": "train"}
        assert client.post("/api/cli/quickstart", json=body, headers=town.max.headers).status_code == 200
    assert client.get(address, headers=town.max.headers).json() == {**ready, "completed": True}
    with platform.database.read() as session:
        events = session.scalars(select(AuditEvent).where(AuditEvent.action == "quickstart.complete"))
        assert len(list(events)) == 1
    assert client.get(address, headers=town.eve.headers).status_code == 404
    bad = client.post(
        "/api/cli/quickstart",
        json={"organizationId": town.acme.id, "intent": "fly"},
        headers=town.max.headers,
    )
    assert bad.status_code == 400
