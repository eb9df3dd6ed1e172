"""Values as people read them: scripts parse the plain form, so these texts stay."""

import pytest

from osmosis_ai.cli.output import formats

NAIVE = "2026-07-01T10:00:00"


@pytest.mark.parametrize(
    ("value", "in_lists", "in_details", "day"),
    [
        (f"{NAIVE}Z", "2026-07-01 10:00 AM UTC", "2026-07-01 10:00:00 AM UTC", "2026-07-01"),
        (f"{NAIVE}+02:00", "2026-07-01 8:00 AM UTC", "2026-07-01 8:00:00 AM UTC", "2026-07-01"),
        ("2026-07-01T00:05:09Z", "2026-07-01 12:05 AM UTC", "2026-07-01 12:05:09 AM UTC", "2026-07-01"),
        ("2026-07-01T23:30:00-04:00", "2026-07-02 3:30 AM UTC", "2026-07-02 3:30:00 AM UTC", "2026-07-02"),
        (NAIVE, "2026-07-01", NAIVE, "2026-07-01"),
        ("some time ago", "some time ", "some time ago", "some time "),
        (None, "–", "–", "–"),
        ("", "–", "–", "–"),
    ],
)
def test_dates(value, in_lists, in_details, day):
    assert formats.date(value) == in_lists
    assert formats.date(value, seconds=True) == in_details
    assert formats.day(value) == day


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (formats.size(0), "0 B"),
        (formats.size(256), "256 B"),
        (formats.size(1023), "1023 B"),
        (formats.size(1024), "1.0 KB"),
        (formats.size(1229), "1.2 KB"),
        (formats.size(1024**2 - 1), "1.0 MB"),
        (formats.size(3_565_158), "3.4 MB"),
        (formats.size(1024**3), "1.0 GB"),
        (formats.size(None), "–"),
        (formats.reward(0.5), "0.50"),
        (formats.reward(-1), "-1.00"),
        (formats.reward(float("nan")), "–"),
        (formats.reward(True), "–"),
        (formats.percent(0.3281), "32.8%"),
        (formats.count(1234567), "1,234,567"),
        (formats.progress(3, 10, "steps"), "3 / 10 steps"),
        (formats.progress(12, 10, "steps"), "10 / 10 steps"),
        (formats.progress(-1, 10, "samples"), "0 / 10 samples"),
        (formats.progress(1500, 2000, "results"), "1,500 / 2,000 results"),
        (formats.progress(None, 10, "steps"), "–"),
        (formats.token("running"), "[running]"),
        (formats.token("[red]odd[/red]"), "[[red]odd[/red]]"),
        (formats.token(None), "–"),
        (formats.title("finished"), "Finished"),
        (formats.title("in_progress"), "In Progress"),
    ],
)
def test_numbers_and_states(shown, expected):
    assert shown == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (None, "–"),
        (0, "0s"),
        (5, "5s"),
        (12.5, "12.5s"),
        (59.94, "59.9s"),
        (59.97, "1m"),
        (125, "2m 5s"),
        (3599.8, "1h"),
        (3 * 3600 + 4 * 60 + 9, "3h 4m"),
        (86400 + 2 * 3600 + 59, "1d 2h"),
    ],
)
def test_durations(seconds, expected):
    assert formats.duration(seconds) == expected
