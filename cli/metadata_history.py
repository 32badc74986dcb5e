"""The history of the metadata of a live cluster, as commands need it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cli.output import CommandError

if TYPE_CHECKING:
    from metadata.explain.history import MetadataHistory
    from stele.sync import Admin


def fetch_history(admin: Admin, at: str | None = None) -> MetadataHistory:
    """Read a broker's replica of the metadata log, up to now or to a moment. Raises CommandError,
    SteleError."""
    from metadata.explain.history import MetadataHistory

    until_ms = None if at is None else parse_time_ms(at)
    log = admin.read_metadata_log()
    history = MetadataHistory()
    if log.snapshot is not None:
        told = log.snapshot
        history.take_snapshot(told.end_offset, told.timestamp_ms, told.records)
    for each in log.decisions:
        history.take(each.base_offset, each.epoch, each.timestamp_ms, each.records)
    if until_ms is None:
        return history
    if history.begins_at_ms > until_ms:
        raise CommandError(
            f"the known history begins at {moment(history.begins_at_ms)}, after --at {at}"
        )
    return history.until(until_ms)


def parse_time_ms(text: str) -> int:
    """ISO 8601; without an offset it is UTC. Raises CommandError."""
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(
            f"--at {text!r} is no time: write it as 2026-01-31T12:00:00, in UTC"
        ) from None
    if parsed.tzinfo is None:
        parsed = parsed.replace(tzinfo=UTC)
    return round(parsed.timestamp() * 1000)


def moment(time_ms: int) -> str:
    """A controller's wall clock, in UTC."""
    if time_ms <= 0:
        return "-"
    text = datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")
    return text.removesuffix("+00:00")
