"""One connection to the platform."""

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, ClassVar, NoReturn, Self
from urllib.parse import quote, urlencode, urlsplit

from osmosis_ai.consts import PACKAGE_VERSION
from osmosis_ai.errors import OsmosisError
from osmosis_ai.platform.api.problems import platform_problem
from osmosis_ai.platform.api.wire import Answer, NoAnswerError, NoAnswerInTimeError, Wire
from osmosis_ai.platform.auth.current import Token
from osmosis_ai.platform.errors import PlatformError
from osmosis_ai.platform.urls import is_loopback

GIT_HEADER = "X-Osmosis-Git"
VERSION_HEADER = "X-Osmosis-CLI-Version"
RESERVED_HEADERS = frozenset(
    {"x-osmosis-org", "x-osmosis-git", "x-osmosis-workspace", "x-osmosis-cli-version"}
)
PAGE_SIZE = 50
_SIGNALS = {"upgrade_available": "UPGRADE_AVAILABLE", "deprecated": "DEPRECATED"}


_NOT_THE_PLATFORM = "Check OSMOSIS_PLATFORM_URL, and whether this network wants a login of its own or a proxy answers instead."


def _date_of(answer: Answer) -> datetime | None:
    try:
        moment = parsedate_to_datetime(answer.headers["Date"])
    except (TypeError, ValueError):
        return None
    return moment if moment.tzinfo is not None else None


def _is_page(answer: Answer) -> bool:
    return answer.content.lstrip()[:1] == b"<" or answer.headers.get_content_type() == "text/html"


def segment(name: str) -> str:
    """A name as one path segment: every reserved character, and every byte that is no UTF-8, is percent-encoded."""
    return quote(name.encode("utf-8", errors="surrogateescape"), safe="")


class PlatformClient:
    """Sends JSON requests below ``<platform>/api/cli`` and returns JSON objects.

    ``git_identity`` (``owner/repo``) scopes every request to a workspace. ``on_signal(code, text)`` hears once per code what
    the platform says about the client's version.

    ``server_time`` is the platform's clock as of the last answer, when it told.
    """

    # The last request of this process with a sound answer: what went wrong since then is likely in it.
    answered: ClassVar[str | None] = None

    def __init__(
        self,
        base_url: str,
        token: Token | None = None,
        *,
        git_identity: str | None = None,
        on_signal: Callable[[str, str], None] | None = None,
    ) -> None:
        self.base_url = base_url
        self.token = token
        self.git_identity = git_identity
        self._on_signal = on_signal
        self._heard: set[str] = set()
        self._wire = Wire(base_url)
        type(self).answered = None
        self.server_time: datetime | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._wire.close()

    def get(self, path: str, params: Mapping[str, Any] | None = None, **options: Any) -> dict[str, Any]:
        """GET; see :meth:`request`."""
        return self.request("GET", path, params=params, **options)

    def post(self, path: str, body: Mapping[str, Any] | None = None, **options: Any) -> dict[str, Any]:
        """POST a JSON object; see :meth:`request`."""
        return self.request("POST", path, body=body or {}, **options)

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        timeout: float = 30.0,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """The answer as a JSON object; an empty answer is ``{}``. ``path`` is relative to ``/api/cli``.

        Raises:
            PlatformError: the platform refused, answered no JSON, or could not be reached.
            AuthError: it did not accept the token.
        """
        query = urlencode({name: value for name, value in (params or {}).items() if value is not None})
        try:
            answer = self._wire.send(
                method,
                self.address(path) + (f"?{query}" if query else ""),
                headers=self.headers(headers),
                body=None if body is None else json.dumps(body).encode(),
                timeout_s=timeout,
            )
        except NoAnswerInTimeError as error:
            raise PlatformError(
                f"The platform at {self.base_url} did not answer within {timeout:g} s."
            ) from error
        except NoAnswerError as error:
            raise PlatformError(
                f"Connection error: Could not connect to platform at {self.base_url} ({error}). Is it running? Set "
                "OSMOSIS_PLATFORM_URL to use another one."
            ) from error
        self.server_time = _date_of(answer)
        document = self._read(answer)
        type(self).answered = f"{method} {path}"
        return document

    def pages(self, path: str, key: str, params: Mapping[str, Any] | None = None) -> Iterator[dict[str, Any]]:
        """Every page of a list, starting at offset 0, following ``next_offset`` until it is null or a page is empty."""
        offset = 0
        while True:
            page = self.get(path, {**(params or {}), "limit": PAGE_SIZE, "offset": offset})
            yield page
            following = page.get("next_offset")
            if not page.get(key) or not isinstance(following, int) or following <= offset:
                return
            offset = following

    def address(self, path: str) -> str:
        """The whole address of a path below ``/api/cli``."""
        return f"{self.base_url}/api/cli{path}"

    @property
    def is_local(self) -> bool:
        """Whether the platform runs on this machine; proxies are not used then."""
        return is_loopback(urlsplit(self.base_url).hostname or "")

    def headers(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """The headers of a request.

        Raises:
            OsmosisError: ``extra`` has one that only the client may set (``RESERVED_HEADER_FORBIDDEN``).
        """
        reserved = [name for name in extra or {} if name.lower() in RESERVED_HEADERS]
        if reserved:
            raise OsmosisError(
                f"The header {reserved[0]} is set by the client and cannot be given.",
                code="RESERVED_HEADER_FORBIDDEN",
            )
        headers = {
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": f"osmosis-cli/{PACKAGE_VERSION}",
            VERSION_HEADER: PACKAGE_VERSION,
            **(extra or {}),
        }
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token.value}"
        if self.git_identity is not None:
            headers[GIT_HEADER] = self.git_identity
        return headers

    def raise_for(self, status: int, content: bytes) -> NoReturn:
        """Raise the error of an answer that is no success."""
        try:
            body: Any = json.loads(content)
        except ValueError:
            body = None
        text = content.decode("utf-8", errors="replace")
        raise platform_problem(status, body, text, self.token.source if self.token else None)

    def _read(self, answer: Answer) -> dict[str, Any]:
        if 300 <= answer.status < 400:
            raise PlatformError(
                f"{self.base_url} sent the request elsewhere (HTTP {answer.status} to {answer.headers.get('Location', '?')}). "
                f"{_NOT_THE_PLATFORM}",
                details={"status_code": answer.status},
            )
        if not 200 <= answer.status < 300:
            self.raise_for(answer.status, answer.content)
        self._signal(answer)
        try:
            body: Any = json.loads(answer.content) if answer.content else {}
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise PlatformError(
                f"Invalid JSON response from {self.base_url}: expected an object"
                + (f", got a web page. {_NOT_THE_PLATFORM}" if _is_page(answer) else "."),
                details={"status_code": answer.status},
            )
        return body

    def _signal(self, answer: Answer) -> None:
        code = _SIGNALS.get(answer.headers.get("X-Osmosis-Version-Status", ""))
        text = answer.headers.get("X-Osmosis-Version-Message", "")
        if code and text and code not in self._heard and self._on_signal is not None:
            self._heard.add(code)
            self._on_signal(code, text)
