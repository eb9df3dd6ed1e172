"""The pages that start a run: fields that write a config, the config itself to be edited, and everything that is wrong with it."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, urlencode

from fastapi import APIRouter, Depends, Form, Query, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse
from sqlalchemy import select
from sqlalchemy.orm import Session

from osmosis_ai.config.schema import EXPERIMENT, SECTIONS, TINY_LR_DEFAULT, Key, is_tiny_model
from osmosis_platform.accounts import sessions
from osmosis_platform.adapters.models import BaseModel
from osmosis_platform.adapters.service import active_models, inference_name
from osmosis_platform.context import Platform
from osmosis_platform.datasets.models import Dataset
from osmosis_platform.db.types import new_id
from osmosis_platform.errors import Conflict, Forbidden, PlatformError
from osmosis_platform.evaluation.service import submit as submit_evaluation
from osmosis_platform.http.scope import PlatformDep, WorkspaceScope
from osmosis_platform.repositories.models import Repository
from osmosis_platform.rollouts.models import Rollout
from osmosis_platform.runs import config_text
from osmosis_platform.runs.models import Run
from osmosis_platform.runs.repeats import Submit, freshen_code, submit_once
from osmosis_platform.runs.service import Kind, find_run
from osmosis_platform.runs.views import KIND, TITLE, Room
from osmosis_platform.secrets.service import list_query
from osmosis_platform.training.service import submit as submit_training
from osmosis_platform.web.pages import render, wants_json
from osmosis_platform.web.viewer import SignedInDep, SignInNeeded, Viewer, ViewerDep, VisitorDep
from osmosis_platform.workspaces.models import Workspace

router = APIRouter(include_in_schema=False)
SUBMIT: dict[Kind, Submit] = {"eval": submit_evaluation, "train": submit_training}
HEADING = {"evaluation": "New evaluation run", "training": "New training run"}
# A selection offers at most so many names; others can be written into the config.
OFFERED = 200
_LONGEST_SETTINGS = 100_000
LR_DEFAULT = next(key.default for key in SECTIONS["training"]["training"] if key.name == "lr")
_ALWAYS_SHOWN = {"evaluation", "training", "checkpoints"}


class _Checked(Exception):
    """Nothing was wrong: what the check did is taken back."""


@router.get("/{workspace}/{room:room}/new")
def new_page(
    request: Request,
    platform: PlatformDep,
    viewer: ViewerDep,
    room: Room,
    again: Annotated[str | None, Query(alias="from")] = None,
    part: Literal["config"] | None = None,
) -> Response:
    """The form. `from` is a run whose config it starts with; fields by dotted key (`experiment.rollout`) write the config."""
    kind = KIND[room]
    values = _fields(request.query_params.multi_items())
    secrets = request.query_params.getlist("secret")
    with platform.database.read() as session:
        choices = _choices(session, viewer, kind, values.get("experiment.branch", ""))
        if again is not None:
            earlier = _repeatable(find_run(session, viewer.workspace_id, kind, again))
            text, values = config_text.config_of(earlier), config_text.values_of(earlier)
            secrets = list(earlier.secret_names)
        else:
            values = {**_suggested(choices), **values}
            text = config_text.write_config(kind, values, secrets)
    if part == "config":
        return JSONResponse({"config": text, "defaults": _defaults_by_model(values)})
    return _page(request, viewer, room, text, choices, values, secrets, again=again)


def keep_for_sign_in(
    request: Request,
    person: VisitorDep,
    config: Annotated[str, Form()] = "",
    settings: Annotated[str, Form(max_length=_LONGEST_SETTINGS)] = "",
) -> None:
    """Somebody whose session has ended signs in with the config in hand."""
    if person is None:
        raise SignInNeeded(request.url.path, {"config": config, "settings": settings})


@router.post("/{workspace}/{room:room}/new", dependencies=[Depends(keep_for_sign_in)])
def submit_config(
    request: Request,
    platform: PlatformDep,
    person: SignedInDep,
    viewer: ViewerDep,
    room: Room,
    csrf: Annotated[str, Form()] = "",
    config: Annotated[str, Form()] = "",
    key: Annotated[str, Form(max_length=100, pattern="^[A-Za-z0-9-]*$")] = "",
    action: Annotated[Literal["submit", "check"], Form()] = "submit",
    settings: Annotated[str, Form(max_length=_LONGEST_SETTINGS)] = "",
) -> Response:
    """Start the run that the config describes, or only say what is wrong with it. A form sent twice (same `key`) starts one run.

    `settings` are the fields beside the config, as a query: the answer's page shows them again. So it does when the form is not of
    this session, and nothing else happens then.
    """
    kind = KIND[room]
    chosen = parse_qsl(settings, keep_blank_values=True)
    values = _fields(chosen)
    secrets = [value for name, value in chosen if name == "secret"]
    with platform.database.read() as session:
        scope = _scope(session, viewer)
        choices = _choices(session, viewer, kind, values.get("experiment.branch", ""))
    values = values or _suggested(choices)
    problems: list[config_text.Problem] = []
    try:
        sessions.check_csrf(person.session, csrf)
    except Forbidden:
        if wants_json(request):
            raise
        return _page(request, viewer, room, config, choices, values, secrets, key=key, came_back=True)
    try:
        run = _submit(platform, scope, kind, config, key if action == "submit" else None)
        if run is not None:
            return RedirectResponse(f"/{viewer.workspace}/{room}/{run.id}", status_code=303)
    except config_text.BadConfig as error:
        problems = error.problems
    status = 400 if problems else 200
    return _page(
        request,
        viewer,
        room,
        config,
        choices,
        values,
        secrets,
        problems=problems,
        key=key,
        checked=True,
        status=status,
    )


def _fields(pairs: list[tuple[str, str]]) -> dict[str, str]:
    """The settings by dotted key; other parameters are none."""
    return {name: value for name, value in pairs if "." in name}


def _submit(platform: Platform, scope: WorkspaceScope, kind: Kind, text: str, key: str | None) -> Run | None:
    """The run; None when there is no `key`: then everything is done except keeping it. Raises BadConfig."""
    source, body = config_text.read_config(kind, text)
    try:
        if key is not None:
            return submit_once(platform, scope, kind, key or None, body, SUBMIT[kind])
        freshen_code(platform, scope, body.get("experiment_config"))
        with platform.database.write() as session:
            SUBMIT[kind](session, platform, scope, body)
            raise _Checked
    except _Checked:
        return None
    except PlatformError as error:
        raise config_text.refused(source, error) from error


def _scope(session: Session, viewer: Viewer) -> WorkspaceScope:
    repository = session.scalar(select(Repository).where(Repository.workspace_id == viewer.workspace_id))
    workspace = session.get_one(Workspace, viewer.workspace_id)
    return WorkspaceScope(viewer.user, workspace, viewer.role, repository)


def _repeatable(run: Run) -> Run:
    if run.local_run is not None:
        raise Conflict(
            f"Run {run.name} was evaluated on somebody's own machine; run it again there.", code="LOCAL_RUN"
        )
    return run


def _choices(session: Session, viewer: Viewer, kind: Kind, branch: str) -> dict[str, list[str]]:
    """What there is to choose: the newest names of each kind."""
    mine = viewer.workspace_id
    default = session.scalar(select(Repository.default_branch).where(Repository.workspace_id == mine))
    branches = session.scalars(select(Rollout.branch).where(Rollout.workspace_id == mine).distinct())
    rollouts = session.scalars(
        select(Rollout.name)
        .where(Rollout.workspace_id == mine, Rollout.branch == (branch or default or "main"))
        .order_by(Rollout.name)
        .limit(OFFERED)
    )
    datasets = session.scalars(
        select(Dataset.name)
        .where(Dataset.workspace_id == mine, Dataset.deleted_at.is_(None), Dataset.status == "uploaded")
        .order_by(Dataset.created_at.desc())
        .limit(OFFERED)
    )
    models = list(session.scalars(select(BaseModel.name).order_by(BaseModel.name).limit(OFFERED)))
    if kind == "eval":
        models += [inference_name(lora) for lora in active_models(session, mine)]
    secrets = session.scalars(list_query(mine, viewer.user.id).limit(OFFERED))
    return {
        "branch": sorted({*branches, default} - {None}),
        "rollout": list(rollouts),
        "dataset": list(datasets),
        "model_path": models,
        "secrets": sorted({secret.name for secret in secrets}),
    }


def _suggested(choices: dict[str, list[str]]) -> dict[str, str]:
    """What fits without further thought, so that a first run needs one press of a button."""
    found = {
        f"experiment.{key}": names[0]
        for key in ("rollout", "dataset", "model_path")
        if (names := choices[key])
    }
    return {"experiment.entrypoint": "main.py", **found}


def _page(
    request: Request,
    viewer: Viewer,
    room: Room,
    text: str,
    choices: dict[str, list[str]],
    values: dict[str, str],
    secrets: list[str],
    *,
    problems: list[config_text.Problem] | None = None,
    again: str | None = None,
    key: str = "",
    checked: bool = False,
    came_back: bool = False,
    status: int = 200,
) -> Response:
    kind = KIND[room]
    found = problems or []
    data: dict[str, Any] = {
        "kind": kind,
        "config": text,
        "problems": [{"message": problem.message, "line": problem.line} for problem in found],
        "checked": checked,
        "choices": choices,
    }
    sections = SECTIONS[config_text.CONFIG_KIND[kind]]
    return render(
        request,
        "run_new.html",
        data,
        status=status,
        viewer=viewer,
        room=room,
        heading=HEADING[room],
        list_path=f"/{viewer.workspace}/{room}",
        list_title=TITLE[room],
        values=values,
        secrets=secrets,
        settings=urlencode([*values.items(), *(("secret", name) for name in secrets)]),
        again=again,
        key=key or new_id(),
        came_back=came_back,
        optional=[item for item in EXPERIMENT if not item.required and item.name != "branch"],
        sections={
            name: [_field(name, item, _defaults_by_model(values)) for item in keys if item.type != "table"]
            for name, keys in sections.items()
        },
        folded=[name for name in sections if name not in _ALWAYS_SHOWN],
    )


def _defaults_by_model(values: dict[str, str]) -> dict[str, str]:
    """Defaults that depend on the base model, by dotted key."""
    model = values.get("experiment.model_path", "")
    rate = TINY_LR_DEFAULT if is_tiny_model(model) else LR_DEFAULT
    return {"training.lr": f"{rate:g}"}


def _field(section: str, key: Key, by_model: dict[str, str]) -> dict[str, Any]:
    """How a key of a config looks in the form; empty means its default."""
    choices = ("true", "false") if key.type == "bool" else key.choices
    return {
        "name": f"{section}.{key.name}",
        "label": key.name,
        "purpose": key.purpose,
        "default": by_model.get(
            f"{section}.{key.name}", "" if key.default is None else key.default_text.strip('"')
        ),
        "range": key.range_text,
        "choices": choices,
    }
