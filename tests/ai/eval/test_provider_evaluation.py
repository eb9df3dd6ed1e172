"""The evaluation worker asks a provider's model through the real LiteLLM; the provider is a server on loopback."""

import pytest

ONLY_LOOPBACK = """
import os, socket
look_up = socket.getaddrinfo
def only_loopback(host, *more, **options):
    if host not in ("127.0.0.1", "localhost"):
        with open(os.environ["FOREIGN_HOSTS"], "a") as file:
            file.write(f"{host}\\n")
        raise OSError("only loopback can be reached here")
    return look_up(host, *more, **options)
socket.getaddrinfo = only_loopback
"""


@pytest.fixture
def guarded(tmp_path):
    """Variables for a process that may look up loopback only, and the file where it notes other hosts."""
    folder = tmp_path / "guard"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(ONLY_LOOPBACK)
    noted = folder / "foreign-hosts"
    noted.touch()
    return {"PYTHONPATH": str(folder), "FOREIGN_HOSTS": str(noted)}, noted


def provider(inference, key):
    variables = {"OPENAI_API_KEY": key, "OPENAI_BASE_URL": inference.url}
    return {"kind": "provider", "model": "openai/some-model", "env": variables}


async def test_a_whole_evaluation(start_worker, platform, inference, guarded):
    variables, noted = guarded
    worker = await start_worker(
        3, todo={1: "raise"}, n=2, policy=provider(inference, "secret-key-123"), env=variables
    )
    assert await worker.exit_status() == 0
    assert "LiteLLM" not in worker.log
    assert {key: attempt["status"] for key, attempt in platform.attempts.items()} == {
        (row, run): "failed" if row == 1 else "success" for row in range(3) for run in range(2)
    }
    assert {platform.attempts[(row, 0)]["tokens"] for row in (0, 2)} == {10}
    asked = inference.rollout_requests()
    assert {request["model"] for request in asked} == {"some-model"}
    assert noted.read_text() == ""  # no price table, no telemetry
    assert "secret-key-123" not in str(platform.calls)


async def test_a_wrong_key_ends_the_run_before_any_row(start_worker, platform, inference, guarded):
    worker = await start_worker(2, policy=provider(inference, "wrong-key-456"), env=guarded[0])
    assert await worker.exit_status() == 4
    reason = platform.failure["reason"]
    assert "'openai/some-model' cannot be used" in reason
    assert ".." not in reason
    assert "wrong-key-456" not in reason
    assert platform.attempts == {}
