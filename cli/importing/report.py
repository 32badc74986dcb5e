"""What an import has found and done, for tables and for JSON."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from cli.importing.source_log import LogSummary


@dataclass(slots=True)
class PartitionResult:
    topic: str
    partition: int
    directory: str
    records: int
    aborted: int
    unfinished: int
    torn_bytes: int
    keeps_offsets: bool
    newest_ms: int
    sent: int = 0
    """Records that this run has sent; an earlier one has sent the others."""
    same: int | None = None
    """Records that were read back and are the same; None: nothing was imported."""
    deleted: int = 0
    """Records that the topic's retention had deleted before they were read back."""

    @classmethod
    def of(cls, summary: LogSummary) -> Self:
        topic, partition = summary.partition
        return cls(
            topic,
            partition,
            str(summary.directory),
            summary.records,
            summary.aborted,
            summary.unfinished,
            summary.torn_bytes,
            summary.keeps_offsets,
            summary.newest_ms,
        )

    @property
    def state(self) -> str:
        if self.same is None:
            return "checked"
        return "imported" if not self.deleted else f"imported, {self.deleted} deleted by retention"

    def row(self) -> tuple[object, ...]:
        newest = datetime.fromtimestamp(self.newest_ms / 1000, UTC) if self.newest_ms >= 0 else None
        return (
            self.topic,
            self.partition,
            self.records,
            self.aborted,
            self.unfinished,
            self.torn_bytes,
            "same" if self.keeps_offsets else "new",
            None if newest is None else f"{newest:%Y-%m-%d %H:%M:%S}Z",
            self.state,
        )


PARTITION_COLUMNS = (
    *("TOPIC", "PARTITION", "RECORDS", "ABORTED", "UNFINISHED", "TORN BYTES", "OFFSETS"),
    *("NEWEST", "STATE"),
)


@dataclass(frozen=True, slots=True)
class GroupResult:
    """The offset of a group in one partition. ``new_offset`` None: nothing was imported."""

    group: str
    topic: str
    partition: int
    offset: int
    new_offset: int | None

    def row(self) -> tuple[object, ...]:
        return self.group, self.topic, self.partition, self.offset, self.new_offset


GROUP_COLUMNS = ("GROUP", "TOPIC", "PARTITION", "OFFSET", "NEW OFFSET")

SETTING_COLUMNS = ("TOPIC", "SETTING", "VALUE")
