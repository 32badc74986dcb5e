"""The table of ``stele share describe --window``: what holds share partitions back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from cli.metadata_history import moment
from cli.output import print_json, print_table

if TYPE_CHECKING:
    from stele.admin.share_windows import ShareWindow
    from stele.ids import TopicPartition

_COLUMNS = (
    *("GROUP", "TOPIC", "PARTITION", "START-OFFSET", "SINCE (UTC)", "RECORDS", "MOST", "DONE"),
    *("REDELIVERED", "DEAD", "CONSUMER-ID", "HELD", "UNTIL (UTC)"),
)


def print_windows(
    windows: Mapping[tuple[str, TopicPartition], ShareWindow | None], as_json: bool
) -> None:
    """A row for each member that has records of a partition. None: no member reads it."""
    if as_json:
        print_json(
            [
                {"group": group, "topic": topic, "partition": number, "window": window}
                for (group, (topic, number)), window in windows.items()
            ]
        )
        return
    print_table(
        _COLUMNS,
        [
            (group, *place, *cells)
            for (group, place), window in windows.items()
            for cells in _cells(window)
        ],
    )
    for (group, place), window in windows.items():
        if window is not None and window.letter_trouble is not None:
            print(f"dead letters of {place} of share group {group!r}: {window.letter_trouble}")


def _cells(window: ShareWindow | None) -> Iterator[tuple[object, ...]]:
    if window is None:
        yield (None,) * (len(_COLUMNS) - 3)
        return
    since_ms = window.start_since_ms
    numbers = (
        window.start_offset,
        None if since_ms is None else moment(since_ms),
        *(window.size, window.max_record_locks, window.done_records, window.redelivered_records),
        window.archiving_records,
    )
    if not window.holders:
        yield (*numbers, None, 0, None)
    for each in window.holders:
        yield (*numbers, each.member_id, each.records, moment(each.lock_until_ms))
