"""A browser at work on the pages: signed in as one person, with the token that its forms carry."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from osmosis_platform.accounts import sessions
from osmosis_platform.app import create_app
from osmosis_platform.context import Platform


@dataclass
class Browser:
    """`get` follows redirects as a browser does; `post` sends a form and does not."""

    client: httpx.Client
    csrf: str

    def get(self, path: str) -> httpx.Response:
        return self.client.get(path, headers={"Accept": "text/html"})

    def json(self, path: str) -> Any:
        return self.client.get(path, headers={"Accept": "application/json"}).json()

    def post(self, path: str, *, html: bool = False, **form: Any) -> httpx.Response:
        accept = "text/html" if html else "application/json"
        data = {"csrf": self.csrf, **form}
        return self.client.post(path, data=data, headers={"Accept": accept}, follow_redirects=False)

    def forms(self, path: str) -> set[str]:
        """Where the forms of a page's content lead."""
        return set(re.findall(r'<form[^>]* action="([^"]+)"', self.get(path).text)) - {"/sign-out"}


@pytest.fixture
def browser(platform: Platform, town: Any) -> Iterator[Callable[[str], Browser]]:
    app = create_app(platform)
    opened: list[httpx.Client] = []

    def browser(name: str) -> Browser:
        client = TestClient(app, raise_server_exceptions=False)
        opened.append(client)
        with platform.database.write() as session:
            signed = sessions.start_session(session, getattr(town, name).user, 1)
            client.cookies.set(sessions.COOKIE, signed.cookie)
            return Browser(client, signed.session.csrf_token)

    yield browser
    for client in opened:
        client.close()
