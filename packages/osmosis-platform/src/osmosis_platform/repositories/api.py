"""git over HTTP: `/git/<owner>/<repo>.git/...`, served by `git http-backend`.

The request body is spooled to a file first: the protocol is stateless and never needs both directions at once, and
streaming both ways deadlocks on pushes above 1 MiB, which git sends chunked.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import functools
import tempfile
from collections.abc import AsyncIterator
from typing import IO

import anyio.to_thread
from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from osmosis_platform.accounts.tokens import authenticate
from osmosis_platform.context import Platform
from osmosis_platform.errors import Unauthenticated
from osmosis_platform.http.scope import client_address
from osmosis_platform.repositories import service
from osmosis_platform.repositories.git import git_environment, run_git

MAX_PUSH_BYTES = 512 * 1024 * 1024
SERVICES = {"info/refs", "git-upload-pack", "git-receive-pack"}

router = APIRouter(include_in_schema=False)


@functools.cache
def _backend() -> str:
    return run_git("--exec-path").decode().strip() + "/git-http-backend"


def _password(request: Request) -> str | None:
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            return None
    return None


def _challenge() -> Response:
    return Response(
        "Use your Osmosis access token as the password.\n",
        status_code=401,
        headers={"WWW-Authenticate": 'Basic realm="Osmosis git"'},
        media_type="text/plain",
    )


def _authorize(platform: Platform, token: str, full_name: str, address: str) -> service.GitAccess | None:
    with platform.database.read() as session, platform.limits.guessing(address):
        return service.git_access(session, authenticate(session, token).user, full_name)


@router.api_route("/git/{owner}/{repo}.git/{tail:path}", methods=["GET", "POST"])
async def git_http(owner: str, repo: str, tail: str, request: Request) -> Response:
    """One request of a clone, fetch or push."""
    platform: Platform = request.app.state.platform
    token = _password(request)
    if not token:
        return _challenge()
    try:
        access = await anyio.to_thread.run_sync(
            _authorize, platform, token, f"{owner}/{repo}", client_address(request)
        )
    except Unauthenticated:
        return _challenge()
    if access is None or tail not in SERVICES:
        return Response("repository not found\n", status_code=404, media_type="text/plain")
    if access.pushes_to and "git-receive-pack" in (tail, request.query_params.get("service")):
        text = f"This repository only follows {access.pushes_to}: push there. The platform fetches it from there.\n"
        return Response(text, status_code=403, media_type="text/plain")
    push = tail == "git-receive-pack" and request.method == "POST"
    with tempfile.TemporaryFile() as body:
        size = await _spool(request, body)
        if size is None:
            return Response("the push is too large\n", status_code=413, media_type="text/plain")
        before = await anyio.to_thread.run_sync(platform.git.branches, access.full_name) if push else {}
        body.seek(0)
        process = await asyncio.create_subprocess_exec(
            _backend(),
            env=_cgi_environment(platform, access, tail, request, size),
            stdin=body,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    status, headers = await _read_headers(process)
    return StreamingResponse(_answer(platform, access, process, before if push else None), status, headers)


async def _spool(request: Request, body: IO[bytes]) -> int | None:
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > MAX_PUSH_BYTES:
            return None
        await anyio.to_thread.run_sync(body.write, chunk)
    return size


def _cgi_environment(
    platform: Platform, access: service.GitAccess, tail: str, request: Request, size: int
) -> dict[str, str]:
    path = platform.git.path(access.full_name)
    return {
        **git_environment(),
        "GIT_PROJECT_ROOT": str(path.parent),
        "GIT_HTTP_EXPORT_ALL": "1",
        "REQUEST_METHOD": request.method,
        "PATH_INFO": f"/{path.name}/{tail}",
        "QUERY_STRING": request.url.query,
        "CONTENT_TYPE": request.headers.get("content-type", ""),
        "CONTENT_LENGTH": str(size),
        "HTTP_CONTENT_ENCODING": request.headers.get("content-encoding", ""),
        "GIT_PROTOCOL": request.headers.get("git-protocol", ""),
        "REMOTE_USER": access.user_email,
        "GIT_CONFIG_COUNT": "2",
        "GIT_CONFIG_KEY_0": "receive.maxInputSize",
        "GIT_CONFIG_VALUE_0": str(MAX_PUSH_BYTES),
        "GIT_CONFIG_KEY_1": "safe.directory",
        "GIT_CONFIG_VALUE_1": "*",
    }


async def _read_headers(process: asyncio.subprocess.Process) -> tuple[int, dict[str, str]]:
    assert process.stdout is not None
    status, headers = 200, {}
    while line := (await process.stdout.readline()).decode("latin-1").rstrip("\r\n"):
        name, _, value = line.partition(":")
        if name.lower() == "status":
            status = int(value.split()[0])
        else:
            headers[name] = value.strip()
    return status, headers


async def _answer(
    platform: Platform,
    access: service.GitAccess,
    process: asyncio.subprocess.Process,
    before: dict[str, str] | None,
) -> AsyncIterator[bytes]:
    assert process.stdout is not None
    # The last bytes are held back until the sync is recorded: whoever sees the push succeed finds it in the catalogue's queue.
    held = b""
    while chunk := await process.stdout.read(65536):
        if held:
            yield held
        held = chunk
    await process.wait()
    if before is not None:
        await anyio.to_thread.run_sync(service.record_push, platform, access, before)
    if held:
        yield held
