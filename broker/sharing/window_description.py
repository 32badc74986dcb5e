"""The window of a share partition as administrators see it."""

from __future__ import annotations

from typing import Final, NamedTuple

from broker.share.machine import SharePartition
from broker.share.values import NO_TIME, Limits, RecordState, VainDelivery
from broker.share.window import Range

RANGES_MAX: Final = 1_000
"""The most ranges of one description. A window may have ten times as many."""

NO_MORE: Final = -1


class DescribedRange(NamedTuple):
    """Records in a row that have one state. Times are wall-clock times."""

    first: int
    last: int
    state: RecordState
    delivery_count: int
    holder: str
    acquired_ms: int
    lock_until_ms: int
    due_ms: int
    """They are not delivered before. NO_TIME: they do not rest."""
    is_being_persisted: bool
    """The member has decided about them, and the share coordinator has not answered yet."""
    vain: VainDelivery | None


class DescribedHolder(NamedTuple):
    """A member that has records."""

    member_id: str
    record_count: int
    lock_until_ms: int
    """When the first of its locks ends."""


class DescribedWindow(NamedTuple):
    """A window at one moment, with some of its ranges."""

    time_ms: int
    start_offset: int
    end_offset: int
    start_since_ms: int
    done_count: int
    acquired_count: int
    redelivered_count: int
    """Records that are not done and have been delivered in vain."""
    archiving_count: int
    """Records that are given up, and whose dead letters are not written yet."""
    letter_trouble: str | None
    """Why dead letters cannot be written now; None: they can, or there are none."""
    limits: Limits
    holders: list[DescribedHolder]
    ranges: list[DescribedRange]
    next_offset: int
    """Where the ranges go on that are left out; NO_MORE: none are."""


def describe_window(
    machine: SharePartition,
    now_ms: int,
    time_ms: int,
    from_offset: int,
    most: int,
    letter_trouble: str | None = None,
) -> DescribedWindow:
    """``now_ms`` and ``time_ms``: the present moment by the machine's clock and by the one on the
    wall. At most ``most`` ranges are in it, from the one with ``from_offset`` on."""
    offset_ms = time_ms - now_ms
    acquired = redelivered = 0
    holders: dict[str, DescribedHolder] = {}
    ranges: list[DescribedRange] = []
    next_offset = NO_MORE
    for each in machine.ranges():
        if not each.state.is_final and each.count > bool(each.holder):
            redelivered += len(each)
        if each.holder:
            acquired += len(each)
            known = holders.get(each.holder)
            until_ms = each.lock_until_ms + offset_ms
            holders[each.holder] = DescribedHolder(
                each.holder,
                len(each) + (known.record_count if known else 0),
                min(until_ms, known.lock_until_ms) if known else until_ms,
            )
        if each.last < from_offset or next_offset != NO_MORE:
            continue
        if len(ranges) < most:
            ranges.append(_described(each, offset_ms))
        else:
            next_offset = each.first
    since_ms = machine.start_since_ms
    return DescribedWindow(
        time_ms,
        machine.start_offset,
        machine.end_offset,
        since_ms if since_ms == NO_TIME else since_ms + offset_ms,
        machine.done_count,
        acquired,
        redelivered,
        machine.archiving_count,
        letter_trouble,
        machine.limits,
        sorted(holders.values(), key=lambda each: each.member_id),
        ranges,
        next_offset,
    )


def _described(each: Range, offset_ms: int) -> DescribedRange:
    is_held = bool(each.holder)
    vain = each.vain
    return DescribedRange(
        each.first,
        each.last,
        each.state,
        each.count,
        each.holder,
        each.acquired_ms + offset_ms if is_held else NO_TIME,
        each.lock_until_ms + offset_ms if is_held else NO_TIME,
        each.due_ms + offset_ms if each.due_ms else NO_TIME,
        each.write >= 0,
        None if vain is None else vain._replace(ended_ms=vain.ended_ms + offset_ms),
    )
