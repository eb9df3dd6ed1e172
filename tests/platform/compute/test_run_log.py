"""The log of a run under a flood of lines."""

from __future__ import annotations

from osmosis_platform.compute.run_log import RunLog
from osmosis_platform.context import Platform
from osmosis_platform.runs.models import LogLine

FLOOD = 30_000


def written(platform: Platform) -> list[str]:
    with platform.database.read() as session:
        return [line.message for line in session.query(LogLine).order_by(LogLine.sequence)]


def flood(platform: Platform, *last: str) -> list[str]:
    log = RunLog(platform.database, "run", redact=lambda text: text.replace("hush", "[KEY]"))
    receive = log.output("rollout")
    for number in range(FLOOD):
        receive(f"line {number} hush")
    for line in last:
        receive(line)
    log.close()
    return written(platform)


def test_the_last_lines_of_a_flood_are_kept(platform: Platform) -> None:
    lines = flood(platform, "Traceback (most recent call last)", "ValueError: the reason")
    assert lines[-2:] == ["Traceback (most recent call last)", "ValueError: the reason"]
    assert lines[:1000] == [f"line {number} [KEY]" for number in range(1000)]
    numbers = [int(line.split()[1]) for line in lines if line.startswith("line ")]
    assert numbers == sorted(numbers), "in the order they came"
    assert numbers[-48:] == list(range(FLOOD - 48, FLOOD))


def test_what_is_left_out_is_counted(platform: Platform) -> None:
    lines = flood(platform)
    notes = [line for line in lines if line.endswith("lines of output left out: too many a second.")]
    left_out = sum(int(note.split()[0]) for note in notes)
    assert left_out > 0
    assert left_out + len(lines) - len(notes) == FLOOD


def test_the_supervisors_own_lines_keep_their_place(platform: Platform) -> None:
    log = RunLog(platform.database, "run", redact=str)
    receive = log.output("worker")
    for number in range(5000):
        receive(f"line {number}")
    log.say("The worker ended.")
    receive("after")
    log.close()
    lines = written(platform)
    end = lines.index("The worker ended.")
    assert (lines[end - 1], lines[end + 1 :]) == ("line 4999", ["after"])


def test_a_quiet_process_loses_nothing(platform: Platform) -> None:
    log = RunLog(platform.database, "run", redact=str)
    receive = log.output("worker")
    for number in range(900):
        receive(f"line {number}")
    log.close()
    assert written(platform) == [f"line {number}" for number in range(900)]


def test_requests_that_went_well_are_no_lines_of_the_log(platform: Platform) -> None:
    log = RunLog(platform.database, "run", redact=str)
    receive = log.output("rollout")
    request = 'INFO:     127.0.0.1:40022 - "POST /rollout HTTP/1.1"'
    for line in (f"{request} 202 Accepted", "useful", f"{request} 500 Internal Server Error"):
        receive(line)
    log.close()
    assert written(platform) == ["useful", f"{request} 500 Internal Server Error"]
