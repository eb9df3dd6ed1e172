"""Downloading the output of evaluation runs."""

import errno
import json
import os
import threading
from base64 import b64encode
from contextlib import contextmanager
from hashlib import sha256
from types import SimpleNamespace

import pytest

from osmosis_ai.cli.downloads import transfer
from osmosis_ai.cli.run_output import run_folder_name
from osmosis_ai.platform.api import download as download_module

MANIFEST = "/eval-runs/ev-1/samples/manifest"
URLS = "/eval-runs/ev-1/samples/download-urls"


@pytest.fixture
def run(platform, monkeypatch):
    """A finished run that offers files: `run({"metrics.json": b"..."})`."""
    monkeypatch.setattr(transfer.time, "sleep", lambda _: None)
    monkeypatch.setattr(download_module, "_FIRST_WAIT_S", 0.0)

    def offer(files, *, status="finished", name="calm", sizes=None):
        platform.on("GET", "/eval-runs/calm", {"eval_run": {"id": "ev-1", "name": name, "status": status}})
        listed = [
            {"path": path, "size": (sizes or {}).get(path, len(content))} for path, content in files.items()
        ]
        platform.on("GET", MANIFEST, {"files": listed, "totals": {"bytes": 1}})
        by_path = {path: f"/blob/{index}" for index, path in enumerate(files)}

        def urls(request):
            items = [
                {"path": item["path"], "url": f"{platform.url}{by_path[item['path']]}?sig=s3cret"}
                for item in request.json["items"]
            ]
            return SimpleNamespace(status=200, body={"items": items}, headers={}, content=None)

        platform.on("POST", URLS, urls)
        for path, content in files.items():
            platform.on("GET", by_path[path], content=content)
        return by_path

    return offer


def download(osmosis, *more):
    return osmosis("eval", "download", "calm", *more, "--json")


def test_files_land_in_the_fixed_layout_and_a_second_time_is_free(osmosis, workspace, platform, run, context):
    run({"metrics.json": b"{}", "summary.jsonl": b"abc", "trajectories/row_0_run_0.json": b"12345"})
    document = download(osmosis).json
    root = workspace / ".osmosis/evals/calm"
    assert (root / "trajectories/row_0_run_0.json").read_bytes() == b"12345"
    assert document["status"] == "success"
    assert document["resource"] == {
        "eval_run": {"id": "ev-1", "name": "calm"},
        "status": "finished",
        "selected_types": ["metrics", "trajectories"],
        "files_downloaded": 3,
        "files_skipped": 0,
        "files_failed": [],
        "bytes_downloaded": 10,
        "total_files": 3,
        "total_bytes": 10,
        "breakdown": {"metrics": {"files": 1, "bytes": 2}, "trajectories": {"files": 2, "bytes": 8}},
        "manifest_totals": {"bytes": 1},
        "output_path": str(root),
        **context,
        "rows": None,
    }
    assert document["message"] == f"Downloaded 3 files (10 B) to {root}"
    assert sorted(path.name for path in root.iterdir()) == ["metrics.json", "summary.jsonl", "trajectories"]
    (root / "metrics.json").write_bytes(b"!!")
    platform.requests.clear()
    again = download(osmosis).json
    assert (again["resource"]["files_skipped"], again["resource"]["bytes_downloaded"]) == (3, 0)
    assert "3 up to date" in again["message"]
    assert not any(request.path.startswith("/blob") for request in platform.requests)
    assert download(osmosis, "--overwrite").json["resource"]["files_downloaded"] == 3
    assert (root / "metrics.json").read_bytes() == b"{}"


def test_selection_is_sent_as_it_is(osmosis, workspace, platform, run):
    run({"artifacts/row_1_run_0/log.txt": b"x"})
    document = download(osmosis, "--type", "logs,Artifacts,logs", "--rows", "3,7,10-20").json
    manifest = next(request for request in platform.requests if request.path == MANIFEST)
    assert manifest.query == {"types": "logs,artifacts", "rows": "3,7,10-20"}
    assert document["resource"]["selected_types"] == ["logs", "artifacts"]


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (["--type", "x,metrics"], "Unknown --type value(s): x"),
        (["--type", "all,logs"], "cannot be combined"),
        (["--type", ","], "Unknown --type"),
        (["--rows", "1, 2"], "--rows must use syntax"),
        (["--rows", "a"], "--rows must use syntax"),
        (["--rows", "9-3"], "start exceeds end"),
        (["--rows", "9" * 5000], "--rows must use syntax"),
        (["--rows", "٣"], "--rows must use syntax"),
    ],
)
def test_bad_selections_ask_nobody(osmosis, workspace, platform, arguments, fragment):
    ran = download(osmosis, *arguments)
    assert (ran.code, ran.error["code"]) == (1, "VALIDATION")
    assert fragment in ran.error["message"]
    assert platform.requests == []


def test_rows_that_the_run_does_not_have_are_named(osmosis, workspace, platform, run):
    run({"summary.jsonl": b"abc", "trajectories/row_3_run_0.json": b"12345"})
    ran = download(osmosis, "--rows", "0-3,7,9-12")
    assert (ran.code, ran.json["status"]) == (0, "success")
    warning = json.loads(ran.err)["warning"]
    assert warning["code"] == "ROWS_NOT_FOUND"
    assert "for 7, 9-12." in warning["message"]


def metrics_of(run_id):
    return json.dumps({"eval_run": {"id": run_id, "name": "other"}}).encode()


@pytest.mark.parametrize("command", ["download", "info"])
def test_two_runs_are_not_mixed_in_one_folder(osmosis, workspace, platform, run, command):
    (workspace / "out").mkdir()
    (workspace / "out/metrics.json").write_bytes(metrics_of("ev-2"))
    run({"metrics.json": metrics_of("ev-1")})
    platform.on("GET", "/eval-runs/ev-1/metrics", {"status": "finished", "overview": {}})
    ran = osmosis("eval", command, "calm", "-o", "out", "--json")
    told = ran.error["message"] if command == "download" else ran.json["data"]["save_warning"]
    assert "holds the output of run other" in told
    assert ran.code == (1 if command == "download" else 0)
    assert (workspace / "out/metrics.json").read_bytes() == metrics_of("ev-2")
    (workspace / "out/metrics.json").write_bytes(metrics_of("ev-1"))
    assert osmosis("eval", command, "calm", "-o", "out", "--json").code == 0


@pytest.mark.parametrize("command", ["download", "info"])
def test_an_uploaded_run_is_downloaded_beside_the_local_one(osmosis, workspace, platform, run, command):
    local = workspace / ".osmosis/evals/calm"
    local.mkdir(parents=True)
    for name in ("events.jsonl", "manifest.json", "metrics.json"):
        (local / name).write_text("{}")
    run({"metrics.json": metrics_of("ev-1")})
    platform.on("GET", "/eval-runs/ev-1/metrics", {"status": "finished", "overview": {}})
    assert osmosis("eval", command, "calm").code == 0
    assert (local / "metrics.json").read_text() == "{}"
    assert (workspace / ".osmosis/evals/calm--ev-1/metrics.json").exists()
    ran = osmosis("eval", "download", "calm", "-o", str(local), "--json")
    assert (ran.code, ran.error["code"]) == (1, "CONFLICT")


def test_a_pending_run_has_nothing(osmosis, workspace, platform, run):
    run({}, status="pending")
    assert download(osmosis).error["code"] == "VALIDATION"
    assert platform.calls() == ["GET /eval-runs/calm"]


@pytest.mark.parametrize(
    "path",
    [
        "../evil",
        "/etc/passwd",
        "trajectories/../../evil",
        "trajectories//x",
        "trajectories/a\\b",
        "other.txt",
        "logs.txt",
        "artifacts/row_0_run_0/manifest.json",
    ],
)
def test_paths_outside_the_layout_or_selection_fail_alone(osmosis, workspace, platform, run, path):
    run({"metrics.json": b"{}", path: b"evil"})
    ran = download(osmosis)
    assert ran.code == 1
    assert ran.err == ""
    assert ran.json["status"] == "partial"
    assert [entry["path"] for entry in ran.json["resource"]["files_failed"]] == [path]
    assert ran.json["resource"]["files_downloaded"] == 1
    plain = osmosis("eval", "download", "calm", "--plain")
    assert f"Failed: {path} — " in plain.out


def test_nothing_usable_and_nothing_at_all(osmosis, workspace, platform, run):
    run({"../evil": b"x"})
    assert "no usable run-scoped paths" in download(osmosis).error["message"]
    platform.reset()
    run({})
    assert "No downloadable files matched" in download(osmosis).error["message"]
    platform.routes[("GET", MANIFEST)] = []
    assert download(osmosis).error["code"] == "VALIDATION"


def test_symlinks_do_not_lead_out(osmosis, workspace, platform, run, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    root = workspace / ".osmosis/evals/calm"
    root.mkdir(parents=True)
    (root / "trajectories").symlink_to(outside)
    run({"trajectories/row_0_run_0.json": b"x"})
    assert download(osmosis).json["status"] == "partial"
    assert list(outside.iterdir()) == []


def test_expired_addresses_are_renewed_and_broken_files_reported_without_their_address(
    osmosis, workspace, platform, run
):
    by_path = run({"metrics.json": b"{}", "summary.jsonl": b"abc"}, sizes={"summary.jsonl": 99})
    expired = ("GET", by_path["metrics.json"])
    platform.routes[expired].insert(0, SimpleNamespace(status=403, body=None, headers={}, content=b""))
    ran = download(osmosis)
    assert ran.json["resource"]["files_downloaded"] == 1
    failed = ran.json["resource"]["files_failed"]
    assert failed[0]["path"] == "summary.jsonl"
    assert "expected 99 bytes, got 3" in failed[0]["error"]
    assert "s3cret" not in ran.out + ran.err
    assert platform.calls().count(f"GET {by_path['summary.jsonl']}") == 3
    assert platform.calls().count(f"POST {URLS}") == 2
    root = workspace / ".osmosis/evals/calm"
    assert [path.name for path in root.iterdir()] == ["metrics.json"]


def test_redirects_are_followed_to_safe_places_only(osmosis, workspace, platform, run):
    by_path = run({"metrics.json": b"{}", "summary.jsonl": b"abc"})
    platform.routes[("GET", by_path["metrics.json"])] = [
        SimpleNamespace(status=302, body=None, headers={"Location": "/real"}, content=b"")
    ]
    platform.on("GET", "/real", content=b"{}")
    platform.routes[("GET", by_path["summary.jsonl"])] = [
        SimpleNamespace(status=302, body=None, headers={"Location": "http://example.com/x"}, content=b"")
    ]
    ran = download(osmosis)
    assert ran.json["resource"]["files_downloaded"] == 1
    assert "not encrypted" in ran.json["resource"]["files_failed"][0]["error"]


def test_much_data_is_confirmed(osmosis, workspace, platform, run):
    run({"metrics.json": b"{}"}, sizes={"metrics.json": 100 * 1024 * 1024 + 1})
    ran = download(osmosis)
    assert ran.error["code"] == "INTERACTIVE_REQUIRED"
    assert ran.error["details"]["summary"]["Download size"] == "100.0 MB"
    assert "metrics, trajectories" in ran.error["details"]["notes"][0]


def test_many_files_get_their_addresses_in_batches(osmosis, workspace, platform, run, monkeypatch):
    monkeypatch.setattr(transfer, "_BATCH", 3)
    run({f"trajectories/row_{row}_run_0.json": b"x" for row in range(7)})
    assert download(osmosis).json["resource"]["files_downloaded"] == 7
    sizes = [len(request.json["items"]) for request in platform.requests if request.path == URLS]
    assert sizes == [3, 3, 1]


def test_the_root_may_be_chosen_but_not_a_file(osmosis, workspace, platform, run):
    run({"metrics.json": b"{}"})
    assert download(osmosis, "-o", "here").json["resource"]["output_path"] == str(workspace / "here")
    (workspace / "file").write_text("")
    assert "is a file" in download(osmosis, "-o", "file").error["message"]
    below = download(osmosis, "-o", "file/below")
    assert (below.code, below.out, below.err.count("\n")) == (1, "", 1)
    assert f"The output folder {workspace / 'file/below'} cannot be made" in below.error["message"]


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("calm-fox", "calm-fox"),
        ("Calm-Fox", "Calm-Fox--ev_1"),
        ("a b", "a_b--ev_1"),
        ("con", "con--ev_1"),
        ("_x_", "x--ev_1"),
        (None, "ev_1"),
    ],
)
def test_two_runs_never_share_a_folder(name, folder):
    assert run_folder_name(name, "ev_1") == folder
    assert len(run_folder_name("A" * 300, "ev_1")) == 255


CONTENT = bytes(range(256)) * 40


def digest(content=CONTENT):
    return f"sha-256=:{b64encode(sha256(content).digest()).decode()}:"


def ranged(*, digests=True, told=CONTENT):
    """A store that can continue a file, and tells the hash of the whole if `digests`."""

    def serve(request):
        start = int(request.headers.get("range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        headers = {"Repr-Digest": f"md5=:eA==:, {digest(told)}"} if digests else {}
        status = 206 if "range" in request.headers else 200
        return SimpleNamespace(status=status, body=None, headers=headers, content=CONTENT[start:])

    return serve


@pytest.fixture
def left_behind(workspace, run, platform):
    """A run whose one file was under way when the command was killed: `left_behind(b"bytes that came")`."""

    def leave(content, **more):
        by_path = run({"summary.jsonl": CONTENT})
        platform.routes[("GET", by_path["summary.jsonl"])] = [ranged(**more)]
        target = workspace / ".osmosis/evals/calm/summary.jsonl"
        target.parent.mkdir(parents=True, exist_ok=True)
        download_module.partial_path(target).write_bytes(content)
        return target

    return leave


def ranges(platform):
    return [request.headers.get("range") for request in platform.requests if request.path.startswith("/blob")]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_killed_download_goes_on_where_it_was(osmosis, platform, left_behind):
    target = left_behind(CONTENT[:4000])
    assert download(osmosis).json["resource"]["files_downloaded"] == 1
    assert (target.read_bytes(), names(target.parent)) == (CONTENT, ["summary.jsonl"])
    assert ranges(platform) == ["bytes=4000-"]


@pytest.mark.parametrize(
    ("left", "more", "expected"),
    [
        (b"x" * 4000, {}, ["bytes=4000-", None]),  # of another file: the hash tells
        (CONTENT[:4000], {"digests": False}, ["bytes=4000-", None]),  # nothing would tell
        (CONTENT + b"more", {}, [None]),
        (b"", {}, [None]),
    ],
)
def test_what_cannot_be_continued_is_fetched_anew(osmosis, platform, left_behind, left, more, expected):
    target = left_behind(left, **more)
    assert download(osmosis).json["status"] == "success"
    assert (target.read_bytes(), names(target.parent)) == (CONTENT, ["summary.jsonl"])
    assert ranges(platform) == expected


def test_bytes_of_another_hash_are_thrown_away(osmosis, platform, left_behind):
    target = left_behind(b"", told=b"other")
    ran = download(osmosis)
    assert ran.code == 1
    assert "hash" in ran.json["resource"]["files_failed"][0]["error"]
    assert names(target.parent) == []
    assert ranges(platform) == [None] * 3


def test_a_connection_that_breaks_is_continued_in_the_next_try(osmosis, workspace, platform, run):
    by_path = run({"summary.jsonl": CONTENT})

    def short(request):
        answer = ranged()(request)
        answer.content = CONTENT[:5000]
        return answer

    platform.routes[("GET", by_path["summary.jsonl"])] = [short, ranged()]
    assert download(osmosis).json["status"] == "success"
    assert (workspace / ".osmosis/evals/calm/summary.jsonl").read_bytes() == CONTENT
    assert ranges(platform) == [None, "bytes=5000-"]


class FullDisk:
    """A file on a disk with room for some bytes only."""

    def __init__(self, file, room):
        self._file, self._room = file, room

    def write(self, block):
        taken = bytes(block[: self._room])
        self._room -= len(taken)
        if not taken:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._file.write(taken)

    def __getattr__(self, name):
        return getattr(self._file, name)


def test_a_full_disk_is_one_error_and_leaves_complete_files_only(
    osmosis, workspace, platform, run, monkeypatch
):
    run({f"trajectories/row_{row}_run_0.json": CONTENT for row in range(30)})
    opened, lock, rooms = download_module._opened, threading.Lock(), [10**6] * 3

    @contextmanager
    def small(partial):
        with opened(partial) as file:
            with lock:
                room = rooms.pop() if rooms else 100
            yield FullDisk(file, room)

    monkeypatch.setattr(download_module, "_opened", small)
    ran = download(osmosis)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.count("\n") == 1
    assert "The disk is full" in ran.error["message"]
    assert "Make room and run the command again" in ran.error["message"]
    left = [path for path in (workspace / ".osmosis").rglob("*") if path.is_file()]
    assert all(path.read_bytes() == CONTENT and path.suffix == ".json" for path in left)
    monkeypatch.setattr(download_module, "_opened", opened)
    assert download(osmosis).json["resource"]["files_skipped"] == len(left)
