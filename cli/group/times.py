"""Points in time and durations as Kafka's tools take them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from cli.output import UsageError

_DATETIME: Final = re.compile(
    r"(\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2})(?:\.(\d{3}))?(Z|[+-]\d{2}(?::?\d{2})?)?"
)
_DURATION: Final = re.compile(
    r"P(?=[\dT])(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,9})?)S)?)?",
    re.IGNORECASE,
)
_AGE: Final = re.compile(r"(?=\d)(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def timestamp_ms(text: str) -> int:
    """The time of ``YYYY-MM-DDThh:mm:ss.sss``, in UTC unless ``Z`` or ``±hh:mm`` follows.

    The milliseconds may be left out. Raises UsageError.
    """
    found = _DATETIME.fullmatch(text)
    try:
        if found is None:
            raise ValueError("the form is not the expected one")
        seconds, milliseconds, zone = found.groups()
        moment = datetime.fromisoformat(f"{seconds}.{milliseconds or '000'}{zone or '+00:00'}")
    except ValueError as error:
        raise UsageError(
            f"{text!r} is no time: {error}; give YYYY-MM-DDThh:mm:ss.sss, and ±hh:mm if it is not "
            "in UTC"
        ) from None
    return (moment - _EPOCH) // _MILLISECOND


def duration_ms(text: str) -> int:
    """The length of ``PnDTnHnMnS``, rounded down to milliseconds. Raises UsageError."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise UsageError(f"{text!r} is no duration: give PnDTnHnMnS, such as P1D or PT1H30M")
    days, hours, minutes, seconds = found.groups(default="0")
    whole, _, fraction = seconds.partition(".")
    total_s = ((int(days) * 24 + int(hours)) * 60 + int(minutes)) * 60 + int(whole)
    return total_s * 1000 + int(fraction.ljust(3, "0")[:3] or "0")


def length_ms(text: str) -> int:
    """The length of ``10m``, ``1d12h`` or ``PnDTnHnMnS``. Raises UsageError."""
    if text[:1] in ("P", "p"):
        return duration_ms(text)
    found = _AGE.fullmatch(text)
    if found is None:
        raise UsageError(f"{text!r} is no length of time: give one such as 3d, 12h or 1d12h")
    days, hours, minutes, seconds = (int(each or 0) for each in found.groups())
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000


def begin_ms(text: str, now_ms: int) -> int:
    """The time from which on records are wanted: ``10m`` or ``1d12h`` before now, ``PnDTnHnMnS``
    before now, a time, a day, or milliseconds since 1970. Raises UsageError."""
    if text.isdecimal():
        return int(text)
    if _AGE.fullmatch(text) or text[:1] in ("P", "p"):
        return max(now_ms - length_ms(text), 0)
    if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
        return timestamp_ms(f"{text}T00:00:00")
    if _DATETIME.fullmatch(text):
        return timestamp_ms(text)
    raise UsageError(
        f"{text!r} is no time: give an age such as 10m, 2h or 1d12h, a day such as 2026-11-24, "
        "or YYYY-MM-DDThh:mm:ss, with ±hh:mm if it is not in UTC"
    )
