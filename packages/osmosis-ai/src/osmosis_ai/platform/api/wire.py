"""One HTTP exchange with the standard library.

The API needs nothing more, and a command that asks one question should not import a large client for it: that is most of the
time such a command takes. Transfers of files use httpx.
"""

import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from typing import IO
from urllib.parse import urlsplit

from osmosis_ai.platform.urls import is_loopback


class NoAnswerError(Exception):
    """There was no complete answer; the text says why."""


class NoAnswerInTimeError(NoAnswerError):
    """The time ran out."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, headers and body of any answer, also of a refusal."""

    status: int
    headers: Message
    content: bytes

    @property
    def text(self) -> str:
        """The body as text; bytes that are no UTF-8 are replaced."""
        return self.content.decode("utf-8", errors="replace")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Keeps the token from following a redirect to another host: redirects are answers like others."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: Message,
        newurl: str,
    ) -> None:
        """Never."""


class Wire:
    """Sends requests to one host. Proxies of the environment are used, except on the way to this machine."""

    def __init__(self, base_url: str) -> None:
        parts = urlsplit(base_url)
        handlers: list[urllib.request.BaseHandler] = [
            urllib.request.ProxyHandler({} if is_loopback(parts.hostname or "") else None),
            urllib.request.HTTPHandler(),
            urllib.request.HTTPDefaultErrorHandler(),
            urllib.request.HTTPErrorProcessor(),
            _NoRedirects(),
        ]
        if parts.scheme == "https":
            handlers.append(urllib.request.HTTPSHandler(context=_trusting_context()))
        # Not `build_opener`: it reads the system's certificates for plain http too.
        self._opener = urllib.request.OpenerDirector()
        for handler in handlers:
            self._opener.add_handler(handler)

    def send(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None, timeout_s: float
    ) -> Answer:
        """The answer, whatever its status.

        Raises:
            NoAnswerInTimeError: the other side did not answer in time.
            NoAnswerError: no connection, or it broke off.
        """
        request = urllib.request.Request(url, data=body, headers=dict(headers), method=method)
        try:
            try:
                with self._opener.open(request, timeout=timeout_s) as response:
                    return Answer(response.status, response.headers, response.read())
            except urllib.error.HTTPError as refusal:
                with refusal:
                    return Answer(refusal.code, refusal.headers, refusal.read())
        except TimeoutError as error:
            raise NoAnswerInTimeError(str(error)) from error
        except urllib.error.URLError as error:
            if isinstance(error.reason, TimeoutError):
                raise NoAnswerInTimeError(str(error.reason)) from error
            raise NoAnswerError(str(error.reason)) from error
        except (OSError, http.client.HTTPException) as error:
            raise NoAnswerError(str(error) or type(error).__name__) from error

    def close(self) -> None:
        """Release what the handlers hold."""
        self._opener.close()


def _trusting_context() -> ssl.SSLContext:
    """The system's certificates; where Python knows none, those that come with httpx."""
    context = ssl.create_default_context()
    if not context.cert_store_stats()["x509_ca"]:
        import certifi

        context.load_verify_locations(certifi.where())
    return context
