"""An open platform with people in it, and a client that speaks to its API in process."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import make_url, text
from sqlalchemy.orm import Session

from osmosis_platform.accounts.models import User
from osmosis_platform.accounts.tokens import create_token
from osmosis_platform.app import create_app
from osmosis_platform.context import Platform, open_platform
from osmosis_platform.db.session import make_engine
from osmosis_platform.repositories.models import Repository
from osmosis_platform.runs.models import Run
from osmosis_platform.settings import Settings
from osmosis_platform.workspaces.models import Membership, Workspace


@dataclass
class Person:
    """A user with a token; `headers` sign a request in, `scoped` also names a workspace."""

    user: User
    token: str

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def scoped(self, workspace: str = "acme") -> dict[str, str]:
        return {**self.headers, "X-Osmosis-Workspace": workspace}


@dataclass
class Town:
    """Workspace `acme` (repository `Acme/Agents`) with ada (owner), amy (admin) and max (member); `other` belongs to eve."""

    acme: Workspace
    other: Workspace
    repository: Repository
    ada: Person
    amy: Person
    max: Person
    eve: Person


# `make test-postgres` starts a server and names it here: every test then has a database of its own on it.
POSTGRES = os.environ.get("TEST_POSTGRES_URL")


@contextmanager
def new_database(template: str | None = None, options: str = "") -> Iterator[str | None]:
    """The address of a database that is dropped afterwards, a copy of `template`; None where tests run on SQLite."""
    if POSTGRES is None:
        yield None
        return
    server = make_engine(POSTGRES).execution_options(isolation_level="AUTOCOMMIT", read_only=True)
    name, source = f"test_{uuid.uuid4().hex}", make_url(template).database if template else "template0"
    with server.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name} TEMPLATE {source} {options}"))
    try:
        yield make_url(POSTGRES).set(database=name).render_as_string(hide_password=False)
    finally:
        with server.connect() as connection:
            connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
        server.dispose()


@pytest.fixture
def empty_database(tmp_path: Path) -> Iterator[str]:
    """The address of a database without tables."""
    with new_database() as url:
        yield url or f"sqlite:///{tmp_path / 'db.sqlite3'}"


@pytest.fixture
def database_of_bytes() -> Iterator[str]:
    """The address of a Postgres database that knows no characters."""
    with new_database(options="ENCODING 'SQL_ASCII' LOCALE 'C'") as url:
        if url is None:
            pytest.skip("about Postgres")
        yield url


@pytest.fixture
def only_sqlite() -> None:
    """For tests of what SQLite alone does."""
    if POSTGRES is not None:
        pytest.skip("about SQLite")


@pytest.fixture(scope="session")
def empty_platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str | None]]:
    """A data folder and database as the first start leaves them: copying them is quicker than migrating for every test."""
    folder = tmp_path_factory.mktemp("empty")
    with new_database() as url:
        open_platform(
            Settings(data_dir=folder / "data", key_file=folder / "keys.json", database_url=url)
        ).close()
        yield folder / "data", url


@pytest.fixture(scope="session")
def empty_folder(empty_platform: tuple[Path, str | None]) -> Path:
    """The data folder of a first start."""
    return empty_platform[0]


@pytest.fixture
def settings(tmp_path: Path, empty_platform: tuple[Path, str | None]) -> Iterator[Settings]:
    with new_database(template=empty_platform[1]) as url:
        yield Settings(data_dir=tmp_path / "data", key_file=tmp_path / "keys.json", database_url=url)


@pytest.fixture
def platform(settings: Settings, empty_folder: Path) -> Iterator[Platform]:
    shutil.copytree(empty_folder, settings.data_dir)
    platform = open_platform(settings)
    yield platform
    platform.close()


@pytest.fixture
def client(platform: Platform) -> Iterator[httpx.Client]:
    with TestClient(create_app(platform), raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def town(platform: Platform) -> Town:
    with platform.database.write() as session:
        acme, other = Workspace(name="acme"), Workspace(name="other")
        people = {}
        for name in ("ada", "amy", "max", "eve"):
            user = User(email=f"{name}@example.com", name=name.title())
            session.add(user)
            session.flush()
            people[name] = Person(user, create_token(session, user.id, name="test")[1])
        session.add_all([acme, other])
        session.flush()
        for name, role in (("ada", "owner"), ("amy", "admin"), ("max", "member")):
            session.add(Membership(workspace_id=acme.id, user_id=people[name].user.id, role=role))
        session.add(Membership(workspace_id=other.id, user_id=people["eve"].user.id, role="owner"))
        repository = Repository(workspace_id=acme.id, full_name="Acme/Agents", identity="acme/agents")
        session.add(repository)
    return Town(acme=acme, other=other, repository=repository, **people)


@pytest.fixture
def add_run(town: Town) -> Callable[..., Run]:
    """Add a run of Ada's in acme to a session."""

    def add(session: Session, *, kind: str = "train", status: str = "running") -> Run:
        run = Run(
            workspace_id=town.acme.id,
            kind=kind,
            name="long",
            status=status,
            creator_id=town.ada.user.id,
            rollout_name="r",
            entrypoint="main.py",
            commit_sha="0" * 40,
            model_path="a/b",
            config={},
        )
        session.add(run)
        session.flush()
        return run

    return add


ECHO_ROLLOUT = '''"""A rollout whose agent repeats what the model says."""
import os
print("rollout entrypoint", os.getpid(), flush=True)
'''


@dataclass
class Workshop:
    """What a run in `acme` needs: a pushed rollout `echo` at `commit_sha`, the dataset `sums`, the base model `tiny/model`."""

    town: Town
    commit_sha: str
    dataset_id: str
    base_model_id: str

    def body(self, model: str, **sections: dict[str, object]) -> dict[str, object]:
        """A submit request."""
        experiment = {"rollout": "echo", "entrypoint": "main.py", "model_path": model, "dataset": "sums"}
        return {"experiment_config": experiment, **sections}


@pytest.fixture
def workshop(platform: Platform, town: Town, tmp_path: Path) -> Workshop:
    from osmosis_ai.datasets.indexing import index_file
    from osmosis_platform.adapters.models import BaseModel
    from osmosis_platform.datasets.models import Dataset
    from osmosis_platform.rollouts.models import Rollout

    tree = tmp_path / "tree" / "rollouts" / "echo"
    tree.mkdir(parents=True)
    (tree / "main.py").write_text(ECHO_ROLLOUT)
    (tree / "pyproject.toml").write_text(
        '[project]\nname = "echo"\nversion = "0"\ndependencies = ["osmosis-ai[server]"]\n'
    )
    platform.git.create("Acme/Agents")
    sha = platform.git.commit_tree(
        "Acme/Agents",
        tmp_path / "tree",
        branch="main",
        message="First",
        author="Ada",
        email="ada@example.com",
    )
    model_folder = tmp_path / "model"
    model_folder.mkdir()
    (model_folder / "config.json").write_text("{}")
    source = tmp_path / "sums.jsonl"
    source.write_text("".join(f'{{"user_prompt": "{n} + 1", "ground_truth": "{n + 1}"}}\n' for n in range(4)))
    index_file(source, tmp_path / "rows.parquet")
    rows = platform.blobs.put_file(tmp_path / "rows.parquet")
    with platform.database.write() as session:
        dataset = Dataset(
            workspace_id=town.acme.id,
            name="sums",
            extension="jsonl",
            file_size=10,
            status="uploaded",
            rows_sha256=rows.sha256,
            row_count=4,
            creator_id=town.ada.user.id,
        )
        base = BaseModel(name="tiny/model", path=str(model_folder))
        rollout = Rollout(
            workspace_id=town.acme.id,
            repository_id=town.repository.id,
            name="echo",
            branch="main",
            commit_sha=sha,
        )
        session.add_all([dataset, base, rollout])
        session.flush()
        return Workshop(town, sha, dataset.id, base.id)
