"""Bad input, of every kind, ends in one clear error: in the command, in the run's page, in the run's log, with the right exit status."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from osmosis_platform.accounts.models import User
from osmosis_platform.accounts.sessions import COOKIE, start_session
from osmosis_platform.accounts.tokens import create_token
from osmosis_platform.context import open_platform

FAULTY = Path(__file__).with_name("faulty_rollout.py")
FAULTS = (
    "raise",
    "hang",
    "no_sample",
    "grader_raises",
    "no_reward",
    "sample_nan",
    "nan",
    "inf",
    "huge",
    "huge",
)
ENDED = {"finished", "failed", "crashed", "stopped", "killed"}
EXPERIMENT = {"rollout": "faulty", "entrypoint": "main.py", "model_path": "osmosis/tiny-multiply", "dataset": "rows"}  # fmt: skip
PYPROJECT = """[project]
name = "faulty"
version = "0.1.0"
requires-python = ">=3.12"
dependencies = ["osmosis-ai[server]>=0.3.0,<0.4"{more}]

[tool.setuptools]
py-modules = ["main"]
"""
pytestmark = pytest.mark.timeout(600)


@dataclass(frozen=True)
class Ran:
    """A command that ended."""

    status: int
    stdout: str
    stderr: str

    def error(self) -> dict[str, Any]:
        """The one error of JSON mode."""
        errors = [json.loads(line)["error"] for line in self.stderr.splitlines() if '"error"' in line]
        assert len(errors) == 1, self.stderr
        return dict(errors[0])


class Site:
    """One deployment, a clone of its workspace repository, and the ways in: commands, pages."""

    def __init__(self, deployment: Any, folder: Path) -> None:
        self.deployment = deployment
        self.clone = folder / "clone"
        self.home = folder / "home"
        self.home.mkdir()
        platform = open_platform(deployment.settings)
        with platform.database.write() as session:
            user = session.scalars(select(User)).one()
            cookie = start_session(session, user, days=1).cookie
            self.revocable = create_token(session, user.id, name="revocable")[1]
        platform.close()
        self.browser = httpx.Client(
            base_url=deployment.url,
            cookies={COOKIE: cookie},
            headers={"Accept": "text/html"},
            trust_env=False,
        )

    def env(self, given: Mapping[str, str] = {}) -> dict[str, str]:
        url, token = self.deployment.url, self.deployment.token
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("OSMOSIS_", "GIT_", "XDG_"))}
        return {
            **kept,
            "HOME": str(self.home),
            "OSMOSIS_PLATFORM_URL": url,
            "OSMOSIS_TOKEN": token,
            "OSMOSIS_TOKEN_PLATFORM_URL": url,
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": f"http.{url}/.extraHeader",
            "GIT_CONFIG_VALUE_0": f"Authorization: Bearer {token}",
            **given,
        }

    def git(self, *arguments: str) -> None:
        subprocess.run(["git", *arguments], cwd=self.clone, env=self.env(), check=True, timeout=60)

    def osmosis(self, *arguments: str, **env: str) -> Ran:
        """The real command, in the clone."""
        done = subprocess.run(
            [sys.executable, "-m", "osmosis_ai.cli.main", *arguments],
            cwd=self.clone, env=self.env(env), capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        return Ran(done.returncode, done.stdout, done.stderr)

    def refused(self, *arguments: str, code: str, status: int = 1, at_once: bool = True, **env: str) -> str:
        """The message of a command that is refused alike for people and for scripts; `at_once` unless one changes what the other sees."""
        with ThreadPoolExecutor(2 if at_once else 1) as both:
            ran = both.submit(self.osmosis, "--plain", *arguments, **env)
            asked = both.submit(self.osmosis, "--json", *arguments, **env)
        plain, script = ran.result(), asked.result()
        assert (plain.status, script.status) == (status, status), (plain, script)
        assert (plain.stdout, script.stdout) == ("", "")
        error = script.error()
        assert error["code"] == code, error
        assert len(re.findall("^Error: ", plain.stderr, re.MULTILINE)) == 1
        assert plain.stderr.rstrip().endswith(f"Error: {error['message']}".rstrip())
        return str(error["message"])

    def config(self, name: str, *, kind: str = "eval", extra: str = "", **experiment: str) -> str:
        """Write a config; returns its path in the clone."""
        lines = [f'{key} = "{value}"' for key, value in {**EXPERIMENT, **experiment}.items()]
        secrets = "" if "[secrets]" in extra else "\n[secrets]\nrequired = []\n"
        path = f"configs/{'training' if kind == 'train' else kind}/{name}.toml"
        (self.clone / path).write_text("\n".join(["[experiment]", *lines, "", extra, secrets]))
        return path

    def submit(self, name: str, *, kind: str = "eval", **given: str) -> str:
        ran = self.osmosis("--json", kind, "submit", self.config(name, kind=kind, **given), "--yes")
        assert ran.status == 0, ran
        return str(json.loads(ran.stdout)["resource"]["name"])

    def rollout(self, name: str, *, before: str = "", more: str = "") -> None:
        folder = self.clone / "rollouts" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "main.py").write_text(before + FAULTY.read_text())
        (folder / "pyproject.toml").write_text(PYPROJECT.replace("{more}", more))

    def page(self, kind: str, name: str) -> str:
        """The text that a browser shows for a run."""
        room = "training" if kind == "train" else "evaluation"
        answer = self.browser.get(f"/acme/{room}/{name}")
        assert answer.status_code == 200
        return " ".join(unescape(re.sub(r"<[^>]*>", " ", answer.text)).split())

    def info(self, kind: str, name: str) -> dict[str, Any]:
        ran = self.osmosis("--json", kind, "info", name)
        assert ran.status == 0, ran
        return dict(json.loads(ran.stdout)["data"])


@dataclass(frozen=True)
class Runs:
    """Names of runs that were submitted together."""

    site: Site
    names: dict[str, str]
    until: Callable[..., Any]

    def failed(self, what: str, *words: str, kind: str = "eval") -> str:
        """Wait for the end of a run; its one error, which command, page and log all show."""
        name = self.names[what]
        run = self._ended(kind, name)
        assert run["status"] == "failed", run
        error = str(run["error"])
        assert all(word in error for word in words), error
        assert "Traceback" not in error
        shown = " ".join(error.split())
        assert shown in self.site.page(kind, name)
        info = self.site.osmosis("--plain", kind, "info", name)
        assert info.status == 0
        assert shown in " ".join(info.stdout.split())
        logs = self.site.osmosis("--plain", kind, "logs", name)
        assert logs.status == 0
        last = logs.stdout.rstrip().splitlines()[-1]
        assert f"Run failed: {shown}" in " ".join(last.split())
        assert "\terror\t" in last
        return error

    def finished(self, what: str) -> dict[str, Any]:
        name = self.names[what]
        run = self._ended("eval", name)
        assert run["status"] == "finished", run
        return self.site.info("eval", name)

    def _ended(self, kind: str, name: str) -> dict[str, Any]:
        noun = "training" if kind == "train" else kind

        def run() -> dict[str, Any]:
            found: dict[str, Any] = self.site.deployment.get(f"/api/cli/{noun}-runs/{name}")[f"{noun}_run"]
            return found if found["status"] in ENDED else {}

        return dict(self.until(f"the end of {name}", run, 180))


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A small disk of its own for stored content."""
    folder = tmp_path_factory.mktemp("disk")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(folder)], capture_output=True
    )
    yield folder
    if mounted.returncode == 0:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(scope="module")
def site(
    make_deployment: Callable[[Path], Any], disk: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    deployment = make_deployment(folder)
    if os.path.ismount(disk):
        for name in ("blobs", "uploads"):
            place = deployment.settings.data_dir / name
            shutil.copytree(place, disk / name)
            shutil.rmtree(place)
            place.symlink_to(disk / name)
    site = Site(deployment, folder)
    deployment.start()
    subprocess.run(
        ["git", "clone", "--quiet", f"{deployment.url}/git/acme/agents.git", str(site.clone)],
        env=site.env(), check=True, timeout=60,
    )  # fmt: skip
    prepare(site)
    yield site
    site.browser.close()
    deployment.stop()


def prepare(site: Site) -> None:
    """What a person pushes: good and bad rollouts, and a branch where some are worse than here."""
    for folder in ("configs/eval", "configs/training", "data"):
        (site.clone / folder).mkdir(parents=True)
        (site.clone / folder / ".gitkeep").touch()
    rows = [{"system_prompt": "", "user_prompt": f"What is {i}?", "ground_truth": "12", "metadata": {"fault": f}} for i, f in enumerate(FAULTS)]  # fmt: skip
    (site.clone / "data/rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    site.git("config", "user.name", "Ada")
    site.git("config", "user.email", "ada@example.com")
    site.git("checkout", "--quiet", "-b", "broken")
    site.rollout("raises", before='raise RuntimeError("no settings file")\n')
    site.rollout("badtoml")
    (site.clone / "rollouts/badtoml/pyproject.toml").write_text("name = = 1\n")
    site.git("add", "--all")
    site.git("commit", "--quiet", "--message", "Broken")
    site.git("push", "--quiet", "--set-upstream", "origin", "broken")
    site.git("checkout", "--quiet", "main")
    for folder in ("configs/eval", "configs/training", "data"):
        (site.clone / folder).mkdir(parents=True, exist_ok=True)
    (site.clone / "data/rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name in ("faulty", "raises", "badtoml"):
        site.rollout(name)
    site.rollout("nopackage", more=', "osmosis-there-is-no-such-package"')
    site.git("add", "--all")
    site.git("commit", "--quiet", "--message", "Rollouts")
    site.git("push", "--quiet")
    site.rollout("unpushed")
    site.deployment.upload("rows", (site.clone / "data/rows.jsonl").read_bytes())


@pytest.fixture(scope="module", autouse=True)
def runs(site: Site, until: Callable[..., Any]) -> Runs:
    """Every run that has to fail, submitted at once; they are executed while other tests go on."""
    limits = f"[evaluation]\nagent_workflow_timeout_s = 2\nlimit = {len(FAULTS)}\n"
    broken = {"rollout": "raises", "branch": "broken"}
    given: dict[str, dict[str, str]] = {
        "attempts": {"extra": limits},
        "exit": {"extra": f'{limits}\n[env]\nFAULT = "exit"\n'},
        "training": {"kind": "train", **broken},
        "dies_at_start": {"extra": f'{limits}\n[env]\nFAULT = "dies_at_start"\n'},
        "raises": broken,
        "badtoml": {"rollout": "badtoml", "branch": "broken"},
        "nopackage": {"rollout": "nopackage"},
    }
    with ThreadPoolExecutor(2) as two:
        submitted = {name: two.submit(site.submit, name, **config) for name, config in given.items()}
    return Runs(site, {name: run.result() for name, run in submitted.items()}, until)


# What is wrong with a config, a name or a file is said before anything is submitted.


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        ({"extra": "[evaluation]\nlimitt = 2\n"}, "VALIDATION", ["evaluation.limitt", "did you mean 'evaluation.limit'"]),
        ({"extra": "[evaluation]\nlimit = -2\n"}, "VALIDATION", ["evaluation.limit", "-2"]),
        ({"extra": "[evaluation]\nlimit = = 2\n"}, "VALIDATION", ["Invalid TOML", "line 8"]),
        ({"dataset": "nothing"}, "NOT_FOUND", ["Dataset not found: nothing", "osmosis dataset upload"]),
        ({"rollout": "nothing"}, "VALIDATION", ["rollouts/nothing/main.py", "not found"]),
        ({"rollout": "unpushed"}, "NOT_FOUND", ["Rollout not found: unpushed", "Push your work"]),
        ({"entrypoint": "other.py"}, "VALIDATION", ["rollouts/faulty/other.py", "not found"]),
        ({"branch": "nowhere"}, "NOT_FOUND", ["branch nowhere was not found", "push it first"]),
        ({"commit_sha": "1234567"}, "VALIDATION", ["1234567 was not found on the connected repository"]),
        ({"model_path": "nothing"}, "NOT_FOUND", ["Model not found: nothing"]),
        ({"model_path": "osmosis/tiny-multiply:nothing"}, "NOT_FOUND", ["no LoRA model nothing"]),
        ({"model_path": "nope/nope"}, "NOT_FOUND", ["Model not found: nope/nope", "no provider 'nope'"]),
        ({"extra": '[secrets]\nrequired = ["NO_SUCH_KEY"]\n'}, "VALIDATION", ["NO_SUCH_KEY", "osmosis secret set NO_SUCH_KEY"]),
    ],
)  # fmt: skip
def test_a_bad_config_is_refused(site: Site, given: dict[str, str], code: str, words: list[str]) -> None:
    message = site.refused("eval", "submit", site.config("bad", **given), "--yes", code=code)
    assert all(word in message for word in words), message


def test_code_that_does_not_import_here_is_not_submitted(site: Site) -> None:
    site.rollout("local", before='raise RuntimeError("no settings file")\n')
    message = site.refused(
        "eval", "submit", site.config("local", rollout="local"), "--yes", code="VALIDATION"
    )
    assert "rollouts/local/main.py" in message
    assert "RuntimeError: no settings file (main.py, line 1)" in message
    (site.clone / "rollouts/local/pyproject.toml").write_text("name = = 1\n")
    message = site.refused("train", "submit", site.config("local", kind="train", rollout="local"), "--yes", code="VALIDATION")  # fmt: skip
    assert "Invalid TOML" in message
    assert "rollouts/local/pyproject.toml" in message


def test_a_dataset_with_a_bad_row_is_refused(site: Site) -> None:
    path = site.clone / "data/bad.jsonl"
    path.write_text('{"system_prompt": "s", "user_prompt": "a"}\n{"user_prompt": 5\n')
    for arguments in (
        ("dataset", "validate", "data/bad.jsonl"),
        ("dataset", "upload", "data/bad.jsonl", "--yes"),
    ):
        message = site.refused(*arguments, code="VALIDATION")
        assert "Line 2" in message
    listed = json.loads(site.osmosis("--json", "dataset", "list").stdout)["items"]
    assert "bad" not in [dataset["file_name"] for dataset in listed]


def test_a_bad_row_is_refused_by_the_platform_too(site: Site, until: Callable[..., Any]) -> None:
    content = b'{"system_prompt": "s", "user_prompt": "a"}\n{"user_prompt": 5\n'
    client = site.deployment.client
    body = {"file_name": "bad", "file_size": len(content), "extension": "jsonl"}
    dataset = client.post("/api/cli/datasets", json=body).json()
    httpx.put(dataset["upload"]["presigned_url"], content=content, trust_env=False).raise_for_status()
    client.post(f"/api/cli/datasets/{dataset['id']}/complete", json={"file_extension": "jsonl"})
    until("the refusal", lambda: site.deployment.get("/api/cli/datasets/bad")["status"] == "error")
    assert "Line 2" in site.browser.get(f"/acme/datasets/{dataset['id']}").text
    assert "Line 2" in site.osmosis("--plain", "dataset", "logs", "bad").stdout
    message = site.refused("eval", "submit", site.config("bad", dataset="bad"), "--yes", code="CONFLICT")
    assert "Dataset bad is not ready" in message
    assert "Line 2" in message


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("eval", "submitt"), 2, "submitt"),
        (("eval", "submit"), 2, "config_path"),
        (("eval", "list", "--limit", "0"), 2, "limit"),
        (("eval", "info", "nobody"), 1, "nobody"),
        (("train", "logs", "nobody"), 1, "nobody"),
    ],
)
def test_wrong_usage_and_unknown_runs(
    site: Site, arguments: tuple[str, ...], status: int, words: str
) -> None:
    code = "VALIDATION" if status == 2 else "NOT_FOUND"
    assert words in site.refused(*arguments, code=code, status=status)


def test_no_token(site: Site) -> None:
    message = site.refused("eval", "list", code="AUTH_REQUIRED", OSMOSIS_TOKEN="")
    assert "osmosis auth login" in message
    assert "OSMOSIS_TOKEN" in site.refused("eval", "list", code="AUTH_REQUIRED", OSMOSIS_TOKEN="osm_wrong")
    with httpx.Client(trust_env=False) as stranger:
        page = stranger.get(f"{site.deployment.url}/acme/evaluation", headers={"Accept": "text/html"})
    assert page.status_code == 303
    assert "sign-in" in page.headers["location"]


def test_a_token_that_is_revoked_midway(site: Site) -> None:
    headers = {"Authorization": f"Bearer {site.revocable}"}
    assert site.osmosis("eval", "list", OSMOSIS_TOKEN=site.revocable).status == 0
    with httpx.Client(base_url=site.deployment.url, headers=headers, trust_env=False) as client:
        token_id = client.get("/api/cli/verify").json()["token_id"]
        assert client.delete(f"/api/cli/tokens/{token_id}").status_code == 204
    message = site.refused("eval", "list", code="AUTH_REQUIRED", OSMOSIS_TOKEN=site.revocable)
    assert "was revoked" in message


# What only shows when the run is executed ends the run, or the attempt, with the reason.


def test_an_entrypoint_that_does_not_import(runs: Runs) -> None:
    runs.failed("raises", "Entrypoint does not import", "RuntimeError: no settings file (main.py, line 1)")
    runs.failed("training", "Entrypoint does not import", "RuntimeError: no settings file", kind="train")


def test_a_project_file_that_cannot_be_read(runs: Runs) -> None:
    runs.failed("badtoml", "pyproject.toml cannot be read", "line 1")


def test_a_package_that_does_not_exist(runs: Runs) -> None:
    runs.failed("nopackage", "dependencies cannot be installed", "osmosis-there-is-no-such-package")


def test_a_rollout_server_that_does_not_start(runs: Runs) -> None:
    runs.failed("dies_at_start", "ended with status 1 before it was ready", "no calculator here")


def test_a_workflow_that_ends_its_process(runs: Runs) -> None:
    error = runs.failed("exit", "could not be run in 3 tries", "last with status 9")
    # Each try meets another process; other attempts in hand may end one more before the run ends.
    assert re.search(r"process ended [3-9] times", error), error
    # Which of the two it is depends on whether the process ended before or after it had accepted the rollout.
    assert "rollout_server_lost" in error or "rollout_transport_error" in error
    results = runs.site.info("eval", runs.names["exit"])["results"]
    assert results["score"] is None  # infrastructure failure is never a score
    assert results["graded"] == results["failed"] == 0


def test_attempts_that_fail_say_why(runs: Runs) -> None:
    results = runs.finished("attempts")["results"]
    assert (results["graded"], results["failed"], results["total_runs"]) == (2, 8, 10)
    assert results["score"] == pytest.approx(1.7e308)  # of the two huge rewards; what has none is no zero
    name, page = runs.names["attempts"], runs.site.page("eval", runs.names["attempts"])
    logs = runs.site.osmosis("--plain", "eval", "logs", name, "--limit", "200").stdout
    expected = {
        "the calculator is broken": 1,
        "workflow exceeded its 2.0s deadline": 1,
        "there is no sample to reward": 1,
        "'expected_answer'": 1,
        "Sample has no reward after grading": 1,
        "RolloutSample.reward: Input should be a finite number, got nan": 2,
        "RolloutSample.reward: Input should be a finite number, got inf": 1,
    }
    info = runs.site.osmosis("--plain", "eval", "info", name).stdout
    assert "Failed 2 times: validation_error: RolloutSample.reward" in info
    for reason, count in expected.items():
        lines = [line for line in logs.splitlines() if reason in line and "\teval\t" in line]
        assert len(lines) == count, (reason, logs)
        assert page.count(reason) >= count
    assert sum(f["count"] for f in results["failures"]) >= 6


# What is wrong with the machine.


def test_a_busy_port(site: Site, tmp_path: Path) -> None:
    started = time.monotonic()
    done = serve(tmp_path / "data", site.deployment.port)
    assert done.returncode == 1
    assert time.monotonic() - started < 30
    [line] = done.stderr.splitlines()
    assert f"port {site.deployment.port}: Address already in use" in line
    assert "--port" in line
    assert not (tmp_path / "data").exists()


def test_a_folder_in_use(site: Site) -> None:
    done = serve(site.deployment.settings.data_dir, 0)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert "in use by another platform process" in line


def test_a_platform_that_is_not_there(site: Site) -> None:
    url = "http://127.0.0.1:9"
    site.git("remote", "set-url", "--push", "origin", f"{url}/git/acme/agents.git")
    env = {"OSMOSIS_PLATFORM_URL": url, "OSMOSIS_TOKEN_PLATFORM_URL": url}
    try:
        assert url in site.refused("eval", "list", code="PLATFORM_ERROR", **env)
    finally:
        site.git("remote", "set-url", "--push", "origin", f"{site.deployment.url}/git/acme/agents.git")


def test_a_disk_that_is_full_at_the_start(disk: Path, tmp_path: Path) -> None:
    if not os.path.ismount(disk):
        pytest.skip("no disk of its own: mounting needs root")
    with full(disk, leave=200 * 1024):
        done = serve(disk / "other", 0, key_file=tmp_path / "keys.json")
    shutil.rmtree(disk / "other", ignore_errors=True)
    assert done.returncode == 1
    assert done.stderr.count("disk is full") == 1
    assert "Traceback" not in done.stderr


@pytest.mark.slow  # a worker tries for two minutes whether somebody makes room
def test_a_full_disk(site: Site, runs: Runs, disk: Path, until: Callable[..., Any]) -> None:
    if not os.path.ismount(disk):
        pytest.skip("no disk of its own: mounting needs root")
    for what in runs.names:
        runs._ended("train" if what == "training" else "eval", runs.names[what])
    row = json.dumps({"system_prompt": "s", "user_prompt": "x" * 9000})
    (site.clone / "data/more.jsonl").write_text(f"{row}\n" * 4)
    with full(disk):
        # Of two uploads of one name at the same time, the later takes the place of the other.
        upload = ("dataset", "upload", "data/more.jsonl", "--yes")
        message = site.refused(*upload, code="PLATFORM_ERROR", at_once=False)
        assert "disk is full" in message
        late = Runs(site, {"full": site.submit("full", extra='[env]\nFAULT = "ok"\n')}, until)
        late.failed("full", "The disk of the platform is full", "Make room")
        results = site.info("eval", late.names["full"])["results"]
        assert results["score"] is None or results["graded"] == len(FAULTS)
    ran = site.osmosis("dataset", "upload", "data/more.jsonl", "--yes")
    assert ran.status == 0, ran


class full:
    """A disk with no room but `leave` bytes, inside the block."""

    def __init__(self, disk: Path, leave: int = 0) -> None:
        self._filler = disk / "filler"
        self._size = shutil.disk_usage(disk).free - leave

    def __enter__(self) -> None:
        with self._filler.open("wb") as file:
            file.write(bytes(self._size))

    def __exit__(self, *_: object) -> None:
        self._filler.unlink()


def serve(data: Path, port: int, key_file: Path | None = None) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **({"OSMOSIS_KEY_FILE": str(key_file)} if key_file else {})}
    return subprocess.run(
        [sys.executable, "-m", "osmosis_platform.main", "serve", "--data", str(data), "--port", str(port)],
        capture_output=True, text=True, timeout=60, env=env, stdin=subprocess.DEVNULL,
    )  # fmt: skip
