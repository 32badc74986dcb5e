"""What became of the records of a share partition, as it is persisted: batches, merged.

Where two batches have the same offset, one wins whatever their order:

- A final state wins over one that is not final. A record that is done is never delivered again.
- Else the higher delivery count wins, then the higher state, as in Kafka.

So a write that reaches the coordinator twice, or after a later one, changes nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from broker.share.values import RecordState, StateBatch


def merged(
    before: Sequence[StateBatch], new: Iterable[StateBatch], start_offset: int
) -> tuple[StateBatch, ...]:
    """The batches from ``start_offset`` on. ``before`` is ascending and without overlaps, and so is
    the result. Neighbours that are alike are one batch."""
    batches = list(before)
    for batch in new:
        _put(batches, batch)
    first = bisect_left(batches, start_offset, key=_last)
    del batches[:first]
    if batches and batches[0].first < start_offset:
        batches[0] = batches[0]._replace(first=start_offset)
    return tuple(batches)


def _put(batches: list[StateBatch], new: StateBatch) -> None:
    at = bisect_left(batches, new.first, key=_last)
    high = bisect_right(batches, new.last, key=_first)
    parts = []
    # The next offset of the new batch that is in no part yet.
    position = new.first
    for old in batches[at:high]:
        if old.first < new.first:
            parts.append(old._replace(last=new.first - 1))
        elif position < old.first:
            parts.append(new._replace(first=position, last=old.first - 1))
        first, last = max(old.first, new.first), min(old.last, new.last)
        parts.append(max(old, new, key=_rank)._replace(first=first, last=last))
        if old.last > new.last:
            parts.append(old._replace(first=new.last + 1))
        position = last + 1
    if position <= new.last:
        parts.append(new._replace(first=position))
    # The neighbours may be like the parts.
    low, end = max(at - 1, 0), high + 1
    batches[low:end] = _joined([*batches[low:at], *parts, *batches[high:end]])


def _joined(parts: Iterable[StateBatch]) -> list[StateBatch]:
    """The same, with neighbours that are alike in one batch."""
    found: list[StateBatch] = []
    for each in parts:
        before = found[-1] if found else None
        if before is not None and (before.last + 1, before[2:]) == (each.first, each[2:]):
            found[-1] = before._replace(last=each.last)
        else:
            found.append(each)
    return found


def _rank(batch: StateBatch) -> tuple[bool, int, RecordState]:
    return batch.state.is_final, batch.delivery_count, batch.state


def _first(batch: StateBatch) -> int:
    return batch.first


def _last(batch: StateBatch) -> int:
    return batch.last
