"""Lines that only say that a request went well are told from everything else that a rollout prints."""

import logging

import pytest
from uvicorn.logging import AccessFormatter

from osmosis_ai.processes.access_lines import is_success_access_line

FORMAT = '%(levelprefix)s %(client_addr)s - "%(request_line)s" %(status_code)s'  # uvicorn's default


def line(
    status: int, *, colours: bool = False, client: str = "127.0.0.1:40022", path: str = "/rollout"
) -> str:
    """As uvicorn itself writes it."""
    arguments = (client, "POST", path, "1.1", status)
    record = logging.LogRecord(
        "uvicorn.access", logging.INFO, "", 0, '%s - "%s %s HTTP/%s" %d', arguments, None
    )
    return AccessFormatter(FORMAT, use_colors=colours).format(record)


@pytest.mark.parametrize("colours", [False, True])
@pytest.mark.parametrize("client", ["127.0.0.1:40022", "::1:40022", ""])
@pytest.mark.parametrize("status", [200, 202, 204, 299])
def test_answers_with_2xx(colours: bool, client: str, status: int) -> None:
    assert is_success_access_line(line(status, colours=colours, client=client, path="/a?b=%22"))


def test_the_format_of_basic_config() -> None:
    assert is_success_access_line('INFO:uvicorn.access:127.0.0.1:40022 - "GET /health HTTP/1.1" 200')


@pytest.mark.parametrize(
    "kept",
    [
        *(line(status, colours=colours) for status in (302, 404, 409, 500) for colours in (False, True)),
        "INFO:     Uvicorn running on http://127.0.0.1:9000 (Press CTRL+C to quit)",
        f"seen: {line(200)}",
        f"{line(200)} and more, 7",
        'WARNING:  127.0.0.1:40022 - "POST /rollout HTTP/1.1" 200 OK',
        "",
    ],
)
def test_everything_else_is_kept(kept: str) -> None:
    assert not is_success_access_line(kept)
