"""Commands of an administrator, for a first setup without a browser. They work beside a running platform."""

from __future__ import annotations

import argparse
import getpass
import json
import os
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy.orm import Session

from osmosis_ai.templates import write_workspace
from osmosis_platform.accounts.service import create_user, find_user, set_password
from osmosis_platform.accounts.sessions import sign_out_everywhere
from osmosis_platform.accounts.tokens import create_personal_token
from osmosis_platform.audit.service import record
from osmosis_platform.context import Platform, open_platform
from osmosis_platform.errors import InvalidInput
from osmosis_platform.folder import identity_file, require_platform
from osmosis_platform.inference.keys import create_key
from osmosis_platform.repositories.service import create_repository
from osmosis_platform.secrets.rotation import rotate
from osmosis_platform.settings import Settings
from osmosis_platform.workspaces.models import ROLES
from osmosis_platform.workspaces.service import add_member, create_workspace, find_workspace, membership_of

PASSWORD_VARIABLE = "OSMOSIS_PASSWORD"


def add_commands(parser: argparse.ArgumentParser, shared: argparse.ArgumentParser) -> None:
    """Add the subcommands; each leaves its function in `command`."""
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(
        name: str, function: Callable[[Settings, argparse.Namespace], dict[str, Any]]
    ) -> argparse.ArgumentParser:
        description = (function.__doc__ or "").strip()
        found = commands.add_parser(
            name, parents=[shared], help=description.split(".")[0], description=description
        )
        found.add_argument("--json", action="store_true", help="print one JSON object")
        found.set_defaults(command=function)
        return found

    password_help = f"read the password from stdin (default: {PASSWORD_VARIABLE}, a prompt on a terminal, else a new one is printed once)"
    user = add("create-user", create_user_command)
    user.add_argument("email")
    user.add_argument("--name", help="default: the part of the address before the @")
    user.add_argument("--password-stdin", action="store_true", help=password_help)
    password = add("set-password", set_password_command)
    password.add_argument("email")
    password.add_argument("--password-stdin", action="store_true", help=password_help)
    workspace = add("create-workspace", create_workspace_command)
    workspace.add_argument("name")
    workspace.add_argument("--owner", required=True, metavar="EMAIL")
    workspace.add_argument(
        "--repository", metavar="NAME", help="also create its repository, from the workspace template"
    )
    member = add("add-member", add_member_command)
    member.add_argument("workspace")
    member.add_argument("email")
    member.add_argument("--role", choices=ROLES, default="member")
    token = add("create-token", create_token_command)
    token.add_argument("email")
    token.add_argument("--name", default="command line")
    token.add_argument("--days", type=int, help="days until it expires (default: never)")
    key = add("create-api-key", create_api_key_command)
    key.add_argument("workspace")
    key.add_argument("--user", required=True, metavar="EMAIL", help="a member, who is named as its creator")
    key.add_argument("--name", default="command line")
    add("rotate-keys", rotate_keys_command)


def create_user_command(settings: Settings, options: argparse.Namespace) -> dict[str, Any]:
    """Create an account."""
    password, made_up = _password(options.password_stdin)
    with _beside(settings) as (_, session):
        name = options.name or options.email.partition("@")[0]
        user = create_user(session, email=options.email, name=name, password=password)
        record(session, "user.create", user.email, user_id=None)
        answer = {"id": user.id, "email": user.email, "name": user.name}
    return {**answer, "password": password} if made_up else answer


def set_password_command(settings: Settings, options: argparse.Namespace) -> dict[str, Any]:
    """Set a new password and end every browser session of the account."""
    password, made_up = _password(options.password_stdin)
    with _beside(settings) as (_, session):
        user = find_user(session, options.email)
        set_password(user, password)
        sign_out_everywhere(session, user.id)
        record(session, "user.password", user.email, user_id=None)
        answer = {"email": user.email}
    return {**answer, "password": password} if made_up else answer


def create_workspace_command(settings: Settings, options: argparse.Namespace) -> dict[str, Any]:
    """Create a workspace with its first owner."""
    with _beside(settings) as (platform, session):
        owner = find_user(session, options.owner)
        workspace = create_workspace(session, options.name, owner)
        answer: dict[str, Any] = {"id": workspace.id, "name": workspace.name, "owner": owner.email}
        if options.repository:
            repository = create_repository(
                session, platform, workspace, options.repository, author=owner, write_tree=write_workspace
            )
            answer["repository"] = repository.full_name
            answer["clone_url"] = f"{_address(settings)}/git/{repository.full_name}.git"
    return answer


def _address(settings: Settings) -> str:
    """Where the platform is reached: what the running one says, else what the settings say."""
    try:
        return str(json.loads(identity_file(settings.data_dir).read_text("utf-8"))["url"])
    except FileNotFoundError:
        return settings.resolved_public_url


def add_member_command(settings: Settings, options: argparse.Namespace) -> dict[str, Any]:
    """Let an account into a workspace."""
    with _beside(settings) as (_, session):
        workspace = find_workspace(session, options.workspace)
        user = find_user(session, options.email)
        add_member(session, workspace.id, user, options.role, by=None)
    return {"workspace": workspace.name, "email": user.email, "role": options.role}


def create_token_command(settings: Settings, options: argparse.Namespace) -> dict[str, Any]:
    """Create a personal access token for the CLI. It is printed once."""
    with _beside(settings) as (_, session):
        user = find_user(session, options.email)
        token, text = create_personal_token(session, user.id, options.name, options.days)
    return {"id": token.id, "email": user.email, "token": text}


def create_api_key_command(settings: Settings, options: argparse.Namespace) -> dict[str, Any]:
    """Create a key of the inference endpoint. It is printed once."""
    with _beside(settings) as (_, session):
        workspace = find_workspace(session, options.workspace)
        user = find_user(session, options.user)
        if membership_of(session, workspace.id, user.id) is None:
            raise InvalidInput(f"{user.email} is not a member of the workspace {workspace.name}.")
        key, text = create_key(session, workspace.id, user, options.name)
    return {"id": key.id, "workspace": workspace.name, "key": text}


def rotate_keys_command(settings: Settings, options: argparse.Namespace) -> dict[str, Any]:
    """Encrypt every secret with a new master key and forget the old ones. The platform has to be stopped."""
    require_platform(settings.data_dir)
    platform = open_platform(settings)
    try:
        done = rotate(platform.database, platform.keys)
    finally:
        platform.close()
    return {"key": done.key_id, "secrets": done.secrets, "dropped": done.dropped}


@contextmanager
def _beside(settings: Settings) -> Iterator[tuple[Platform, Session]]:
    require_platform(settings.data_dir)
    platform = open_platform(settings, exclusive=False)
    try:
        with platform.database.write() as session:
            yield platform, session
    finally:
        platform.close()


def _password(from_stdin: bool) -> tuple[str, bool]:
    """The password, and whether it was made up here; never from the command line, where others could see it."""
    if from_stdin:
        return sys.stdin.readline().rstrip("\r\n"), False
    given = os.environ.get(PASSWORD_VARIABLE)
    if given is not None:
        return given, False
    if sys.stdin.isatty():
        return getpass.getpass("Password: "), False
    return secrets.token_urlsafe(12), True
