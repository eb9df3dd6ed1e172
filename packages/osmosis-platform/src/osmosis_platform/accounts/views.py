"""Sign-in, sign-out and approval of command-line logins."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import RedirectResponse

from osmosis_platform.accounts import device, sessions
from osmosis_platform.context import Platform
from osmosis_platform.errors import Forbidden, PlatformError
from osmosis_platform.http.scope import PlatformDep, client_address
from osmosis_platform.web.pages import render
from osmosis_platform.web.viewer import Csrf, SignedInDep, first_workspace

router = APIRouter(include_in_schema=False)


def safe_target(target: str) -> str:
    """A path of this platform; anything that could lead elsewhere becomes the start page."""
    inside = target.startswith("/") and not target.startswith(("//", "/\\")) and "\n" not in target
    return target if inside else "/"


def refuse_foreign_origin(request: Request) -> None:
    """Raise Forbidden for a form that another site sent: it must not sign a browser in as somebody else."""
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise Forbidden(
            "This form came from another site. Open the sign-in page here.", code="FOREIGN_ORIGIN"
        )


@router.get("/")
def start(platform: PlatformDep, person: SignedInDep) -> Response:
    """To the person's first workspace, or to where one is made."""
    with platform.database.read() as session:
        name = first_workspace(session, person.user.id)
    return RedirectResponse(f"/{name}" if name is not None else "/new", status_code=303)


def sign_in_data(
    platform: Platform, error: str | None, email: str, target: str, kept: str = ""
) -> dict[str, Any]:
    """What the sign-in page shows; `kept` is a form that waits for the person to be signed in, as a query."""
    return {
        "error": error,
        "email": email,
        "next": safe_target(target),
        "github": platform.settings.signs_in_with_github,
        "kept": kept,
    }


@router.get("/sign-in")
def sign_in_page(request: Request, platform: PlatformDep, next: str = "/") -> Response:
    """The sign-in form."""
    return render(request, "sign_in.html", sign_in_data(platform, None, "", next))


@router.post("/sign-in")
def sign_in(
    request: Request,
    platform: PlatformDep,
    email: Annotated[str, Form()] = "",
    password: Annotated[str, Form()] = "",
    next: Annotated[str, Form()] = "/",
    kept: Annotated[str, Form()] = "",
) -> Response:
    """Check the password and start a session. A form that was `kept` goes on to `next`, without the token that would carry it out."""
    refuse_foreign_origin(request)
    try:
        signed = sessions.sign_in(
            platform,
            email,
            password,
            address=client_address(request),
            old_cookie=request.cookies.get(sessions.COOKIE),
            agent=request.headers.get("user-agent"),
        )
    except PlatformError as error:
        data = sign_in_data(platform, error.message, email, next, kept)
        return render(request, "sign_in.html", data, status=error.status)
    if not kept:
        return enter(platform, signed, safe_target(next))
    page = render(request, "signed_in.html", {"next": safe_target(next), "kept": kept})
    return with_session(platform, signed, page)


def enter(platform: Platform, signed: sessions.SignedIn, target: str) -> Response:
    """To a page of the platform, with the cookie of a fresh session."""
    return with_session(platform, signed, RedirectResponse(target, status_code=303))


def with_session(platform: Platform, signed: sessions.SignedIn, response: Response) -> Response:
    """An answer that brings the cookie of a fresh session."""
    response.set_cookie(
        sessions.COOKIE,
        signed.cookie,
        max_age=platform.settings.session_days * 86400,
        httponly=True,
        samesite="lax",
        secure=platform.settings.resolved_public_url.startswith("https://"),
    )
    return response


@router.post("/sign-out", dependencies=[Csrf])
def sign_out(request: Request, platform: PlatformDep) -> Response:
    """End the session."""
    with platform.database.write() as session:
        sessions.sign_out(session, request.cookies.get(sessions.COOKIE, ""))
    response = RedirectResponse("/sign-in", status_code=303)
    response.delete_cookie(sessions.COOKIE)
    return response


@router.get("/device")
def device_page(request: Request, platform: PlatformDep, person: SignedInDep, code: str = "") -> Response:
    """Approve or deny the login that a terminal shows a code for."""
    error, name = None, None
    if code:
        try:
            with platform.database.read() as session:
                name = device.find_pending(session, code).device_name
        except PlatformError as problem:
            error = problem.message
    data = {"user_code": code, "device_name": name, "error": error, "done": None}
    return render(request, "device.html", data, csrf=person.session.csrf_token)


@router.post("/device", dependencies=[Csrf])
def decide_device(
    request: Request,
    platform: PlatformDep,
    person: SignedInDep,
    user_code: Annotated[str, Form()],
    answer: Annotated[Literal["approve", "deny"], Form()],
) -> Response:
    """Record the answer."""
    data = {"user_code": user_code, "device_name": None, "error": None, "done": None}
    status = 200
    try:
        with platform.database.write() as session:
            device.decide(session, person.user, user_code, approve=answer == "approve")
        approved = "Approved: the command line is signed in. You can close this page."
        data["done"] = approved if answer == "approve" else "Denied: nothing was signed in."
    except PlatformError as problem:
        data["error"], status = problem.message, problem.status
    return render(request, "device.html", data, status=status, csrf=person.session.csrf_token)
