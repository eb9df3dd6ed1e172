"""Error messages of rollout servers, for people."""

import re

_REPORT = re.compile(r"\d+ validation errors? for (?P<model>\S+)\n(?P<problems>.+)", re.DOTALL)
_PROBLEM = re.compile(
    r"^(?P<where>\S+)\n {2}(?P<what>.+?) \[type=\w+, input_value=(?P<got>.*), input_type=\w+\]"
    r"(?:\n {4}For further information visit \S+)?$",
    re.MULTILINE,
)


def readable(message: str) -> str:
    """The message, with a report of Pydantic as one line: servers send what ``str()`` makes of an exception."""
    report = _REPORT.fullmatch(message)
    problems = [] if report is None else list(_PROBLEM.finditer(report["problems"]))
    if report is None or not problems:
        return message
    return "; ".join(
        f"{report['model']}.{problem['where']}: {problem['what']}, got {problem['got']}"
        for problem in problems
    )
