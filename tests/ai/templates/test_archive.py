"""Templates of a repository: the archive is fetched once, checked and kept; doctor fetches it again."""

import io
import shutil
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from osmosis_ai.templates import workspace_source
from osmosis_ai.templates.archive import archive_address
from osmosis_ai.templates.errors import TemplateError
from osmosis_ai.templates.source import template_files
from osmosis_ai.templates.starters import apply_starter

NAME = "multiply-local-openai"


def packed(entries):
    """A tar.gz of names and contents; a content of None is a link to /etc."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in entries.items():
            member = tarfile.TarInfo(name)
            if content is None:
                member.type, member.linkname = tarfile.SYMTYPE, "/etc"
            else:
                member.size = len(content)
            tar.addfile(member, io.BytesIO(content or b""))
    return buffer.getvalue()


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A host of repositories: `host.archive` is what it answers, `host.asked` the paths."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            server.asked.append(self.path)
            self.send_response(200 if server.archive else 404)
            self.end_headers()
            self.wfile.write(server.archive)

        def log_message(self, *_):
            pass

    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("OSMOSIS_WORKSPACE_TEMPLATE_PATH", raising=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.archive, server.asked = b"", []
        monkeypatch.setenv(
            "OSMOSIS_WORKSPACE_TEMPLATE_REPO", f"http://127.0.0.1:{server.server_port}/acme/space"
        )
        monkeypatch.setenv("OSMOSIS_WORKSPACE_TEMPLATE_REF", "v1/x")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_starter_of_a_repository_is_fetched_once(host, tmp_path, monkeypatch):
    with monkeypatch.context() as unset:
        unset.delenv("OSMOSIS_WORKSPACE_TEMPLATE_REPO")
        unset.delenv("OSMOSIS_WORKSPACE_TEMPLATE_REF")
        packaged = workspace_source()
    files = template_files(packaged, ".")
    host.archive = packed({f"space-v1/{path}": (packaged / path).read_bytes() for path in files})
    applied = apply_starter(NAME, tmp_path / "one")
    assert (tmp_path / "one/rollouts" / NAME / "main.py").is_file()
    assert applied.name == NAME
    apply_starter(NAME, tmp_path / "two")
    assert host.asked == ["/acme/space/archive/v1/x.tar.gz"]
    host.archive = packed({"space-v1/AGENTS.md": b"new"})
    assert (workspace_source(fresh=True) / "AGENTS.md").read_bytes() == b"new"
    assert len(host.asked) == 2
    cache = workspace_source().parent
    assert (cache.parent.name, cache.name) == ("cache", "workspace-template")
    assert [len(path.name) for path in cache.iterdir()] == [64]
    shutil.rmtree(cache)


@pytest.mark.parametrize(
    ("archive", "code", "problem"),
    [
        (b"", "NETWORK", "unable to fetch starter templates"),
        (b"no archive", "VALIDATION", "is broken"),
        (packed({"a/x": b"1"})[:-20], "VALIDATION", "is broken"),
        (packed({"a/x": b"1", "b/x": b"1"}), "VALIDATION", "must hold one folder, not 2"),
        (packed({"a/x": b"1", "a/../../x": b"1"}), "VALIDATION", "unsafe entry: a/../../x"),
        (packed({"/a/x": b"1"}), "VALIDATION", "unsafe entry: /a/x"),
        (packed({"a/x": b"1", "a/link": None}), "VALIDATION", "unsafe entry"),
    ],
    # An archive knows the time it was made at, and a test's name must not.
    ids=["absent", "no archive", "cut off", "two folders", "climbing", "absolute", "link"],
)
def test_archives_that_cannot_be_used_leave_nothing(host, tmp_path, archive, code, problem):
    host.archive = archive
    with pytest.raises(TemplateError, match=problem) as caught:
        apply_starter(NAME, tmp_path / "space")
    assert caught.value.code == code
    assert list((tmp_path / "home").rglob("workspace-template/*")) == []


def test_an_unknown_starter_is_not_fetched(host, tmp_path):
    with pytest.raises(TemplateError, match="Unknown template"):
        apply_starter("nope", tmp_path)
    assert host.asked == []


@pytest.mark.parametrize("repository", ["acme", "acme/a b", "http://example.com/acme/space", "a/b/c"])
def test_repositories_that_cannot_be_named(repository):
    with pytest.raises(TemplateError):
        archive_address(repository, "main")


def test_a_name_is_of_github():
    assert archive_address("Acme/space", "main") == "https://github.com/Acme/space/archive/main.tar.gz"
