"""Times and durations in the forms of Kafka's tools."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.group.times import begin_ms, duration_ms, timestamp_ms
from cli.output import CommandError, UsageError

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:00.000", 0),
        ("1970-01-02T00:00:00.001", DAY_MS + 1),
        ("1969-12-31T23:59:59.999", -1),
        ("2017-01-01T00:00:00.000", 1_483_228_800_000),
        ("2017-01-01T00:00:00", 1_483_228_800_000),
        ("2017-01-01T00:00:00.000Z", 1_483_228_800_000),
        ("2017-01-01T01:30:00.000+01:30", 1_483_228_800_000),
        ("2017-01-01T01:30:00.000+0130", 1_483_228_800_000),
        ("2016-12-31T22:00:00.000-02", 1_483_228_800_000),
    ],
)
def test_times(text: str, expected: int) -> None:
    assert timestamp_ms(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2017-01-01",
        "2017-01-01 00:00:00.000",
        "2017-13-01T00:00:00.000",
        "2017-02-30T00:00:00.000",
        "2017-01-01T24:30:00.000",
        "2017-01-01T00:00:00.0",
        "2017-01-01T00:00:00.000+1",
        "2017-01-01T00:00:00.000 ",
        "٢017-01-01T00:00:00.000x",
    ],
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(CommandError, match="is no time"):
        timestamp_ms(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("P1D", DAY_MS),
        ("p1d", DAY_MS),
        ("PT1H", 3_600_000),
        ("PT90M", 5_400_000),
        ("PT1.5S", 1500),
        ("PT0.0019S", 1),
        ("P2DT3H4M5S", 2 * DAY_MS + ((3 * 60 + 4) * 60 + 5) * 1000),
        ("P0DT0H0M0S", 0),
    ],
)
def test_durations(text: str, expected: int) -> None:
    assert duration_ms(text) == expected


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1DT", "1D", "P1H", "PT1D", "-P1D", "P-1D", "P1W", "PT1.H", "PT1S2"]
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(CommandError, match="is no duration"):
        duration_ms(text)


@given(*[st.integers(0, 10_000)] * 4)
def test_any_duration(days: int, hours: int, minutes: int, seconds: int) -> None:
    text = f"P{days}DT{hours}H{minutes}M{seconds}S"
    assert duration_ms(text) == (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000


NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10m", NOW_MS - 600_000),
        ("1d12h", NOW_MS - 36 * 3_600_000),
        ("30s", NOW_MS - 30_000),
        ("PT10M", NOW_MS - 600_000),
        ("99999d", 0),
        ("1700000000123", 1_700_000_000_123),
        ("2023-11-14", 1_699_920_000_000),
        ("2023-11-14T22:13:20", 1_700_000_000_000),
        ("2023-11-14T23:13:20+01:00", 1_700_000_000_000),
    ],
)
def test_a_beginning_is_an_age_or_a_time(text: str, expected: int) -> None:
    assert begin_ms(text, NOW_MS) == expected


@pytest.mark.parametrize("text", ["", "10x", "m", "10m5", "2023-13-01", "yesterday", "P", "-5m"])
def test_a_beginning_of_no_form_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        begin_ms(text, NOW_MS)
