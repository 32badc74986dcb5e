"""The window of a share partition in sentences: which record holds it back, why, and what happens
next."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cli.metadata_history import moment

if TYPE_CHECKING:
    from stele.admin.groups import GroupDescription
    from stele.admin.share_groups import ShareGroupOffset
    from stele.admin.share_windows import ShareWindow, VainDelivery, WindowRange


class Queue(enum.Enum):
    """How a share partition is."""

    FULL = "its window is full: nothing new is delivered"
    UNREAD = "no member reads it"
    HELD = "a record holds the start of its window"
    FREE = "no record holds its window back"


_GIVEN_UP: Final = {
    "archiving": "after {} deliveries",
    "archiving_rejected": "since a member has rejected it in delivery {}",
}
"""States of records that wait for their dead letters."""


@dataclass(frozen=True, slots=True)
class QueueExplanation:
    """``reasons``, ``following`` and ``remedies`` are lines for people."""

    queue: Queue
    is_well: bool
    window: str  # the window in numbers; empty: the leader has none
    reasons: tuple[str, ...]
    following: tuple[str, ...]
    """What happens next if nobody intervenes."""
    remedies: tuple[str, ...]


def explain_unread(group: GroupDescription, offset: ShareGroupOffset | None) -> QueueExplanation:
    """The leader has no window: no member of the group fetches from it."""
    if not group.members:
        reasons = [f"share group {group.group_id!r} has no members"]
        remedies = ["start a consumer of the group"]
    else:
        count = len(group.members)
        told = "none of them fetches from the leader of the partition"
        reasons = [f"share group {group.group_id!r} has {count} members, and {told}"]
        remedies = ["see whether its members poll, and whether they subscribe to the topic"]
    if offset is None or offset.start_offset is None:
        reasons.append("the group has read nothing of the partition yet")
    else:
        reasons.append(f"everything before offset {offset.start_offset} is done")
    lag = None if offset is None else offset.lag
    if lag:
        reasons.append(f"{lag} records are not done")
    following = "nothing is delivered before a member reads the partition"
    return QueueExplanation(
        Queue.UNREAD,
        lag == 0,
        "",
        tuple(reasons),
        (following,),
        () if lag == 0 else tuple(remedies),
    )


def explain_window(
    window: ShareWindow, group: GroupDescription, lag: int | None
) -> QueueExplanation:
    """``window`` begins with its first range. ``lag``: the records that are not done; None: it is
    not known."""
    first = window.ranges[0] if window.ranges else None
    if window.readers == 0:
        queue = Queue.UNREAD
    elif window.is_full:
        queue = Queue.FULL
    else:
        queue = Queue.FREE if first is None else Queue.HELD
    reasons: list[str] = []
    following: list[str] = []
    if first is None:
        if lag and window.readers:
            following.append("the next fetch of a member gets new records")
    else:
        reasons += _reasons(window, first, group)
        following += _following(window, first)
    if window.readers == 0:
        reasons.append(f"no member reads the partition from broker {window.leader_id}")
    is_idle = queue is Queue.UNREAD and first is None and lag == 0
    return QueueExplanation(
        queue,
        is_idle or (queue in (Queue.HELD, Queue.FREE) and window.letter_trouble is None),
        _numbers(window),
        tuple(reasons),
        tuple(following),
        tuple(_remedies(window, first, queue)) if not is_idle else (),
    )


def _numbers(window: ShareWindow) -> str:
    if not window.size:
        return f"window: empty, before offset {window.start_offset} everything is done"
    waiting = ""
    if window.archiving_records:
        waiting = f"; {window.archiving_records} wait for their dead letters"
    return (
        f"window: offsets {window.start_offset} to {window.end_offset - 1}, {window.size} of at "
        f"most {window.max_record_locks}; {window.done_records} done, {window.acquired_records} "
        f"with {len(window.holders)} members, {window.redelivered_records} delivered in vain before"
        f"{waiting}"
    )


def _reasons(window: ShareWindow, first: WindowRange, group: GroupDescription) -> list[str]:
    offset = first.first_offset
    held = f"the record at offset {offset} is not done"
    if window.start_since_ms is not None:
        age = _seconds(window.time_ms - window.start_since_ms)
        held += f"; the window begins with it since {moment(window.start_since_ms)} UTC ({age})"
    reasons = [held]
    if first.state in _GIVEN_UP:
        why = _GIVEN_UP[first.state].format(first.delivery_count)
        reasons.append(f"it is given up, {why}, and its dead letter is not written yet")
        if window.letter_trouble is not None:
            reasons.append(f"dead letters cannot be written: {window.letter_trouble}")
        return reasons
    deliveries = f"{first.delivery_count} of at most {window.delivery_count_limit}"
    if first.member_id is not None and first.acquired_ms is not None:
        age = _seconds(window.time_ms - first.acquired_ms)
        reasons.append(
            f"{_member(first.member_id, group)} has it since {moment(first.acquired_ms)} UTC "
            f"({age}), in delivery {deliveries}"
        )
    elif first.due_ms is not None:
        reasons.append(f"it rests, after {deliveries} deliveries (share.redelivery.backoff.ms)")
    elif first.delivery_count:
        reasons.append(f"it is available, after {deliveries} deliveries")
    else:
        reasons.append("it is available, and no delivery of it counts")
    if first.last_vain_delivery is not None:
        reasons.append(_vain(first.last_vain_delivery, group))
    elif first.delivery_count > (first.member_id is not None):
        reasons.append(
            "how its last delivery ended is not known: it was delivered with others, or by an "
            "earlier leader"
        )
    return reasons


def _vain(vain: VainDelivery, group: GroupDescription) -> str:
    member = _member(vain.member_id, group)
    ends = {
        "released": f"{member} released it",
        "lock_ended": f"the lock of {member} ended before it said anything",
        "session_ended": f"the session of {member} ended, and the delivery does not count",
    }
    return f"its last delivery ended at {moment(vain.ended_ms)} UTC: {ends.get(vain.end, vain.end)}"


def _following(window: ShareWindow, first: WindowRange) -> list[str]:
    limit = window.delivery_count_limit
    if first.state in _GIVEN_UP:
        return ["it is done when its dead letter is written, which is tried again and again"]
    if first.is_being_persisted:
        return ["its member has decided about it, and the decision is being persisted"]
    if first.lock_until_ms is not None:
        left = _seconds(max(first.lock_until_ms - window.time_ms, 0))
        after = (
            "is given up"
            if first.delivery_count >= limit
            else f"can be delivered again, as delivery {first.delivery_count + 1} of {limit}"
        )
        end = f"its lock ends at {moment(first.lock_until_ms)} UTC, in {left}, unless it is renewed"
        return [f"{end}; if the member does not accept it, it {after}"]
    number = first.delivery_count + 1
    rests = ""
    if first.due_ms is not None:
        left = _seconds(max(first.due_ms - window.time_ms, 0))
        rests = f"it rests until {moment(first.due_ms)} UTC, {left} more; then "
    last = "; without an acceptance it is given up then" if number >= limit else ""
    if window.readers == 0:
        return [
            f"{rests}the next member that reads it gets it, as delivery {number} of {limit}{last}"
        ]
    return [f"{rests}the next fetch of a member gets it, as delivery {number} of {limit}{last}"]


def _remedies(window: ShareWindow, first: WindowRange | None, queue: Queue) -> list[str]:
    if queue is Queue.UNREAD:
        return ["start a consumer of the group"]
    if first is not None and first.state in _GIVEN_UP and window.letter_trouble is not None:
        remedy = (
            "have the dead letter topic take letters, or remove errors.deadletterqueue.topic.name "
            "from the group: then records are given up without letters"
        )
        return [remedy]
    if queue is not Queue.FULL or first is None:
        return []
    remedies = [
        f"raise share.partition.max.record.locks of the group, now {window.max_record_locks}"
    ]
    if first.member_id is not None:
        stop = f"stop member {first.member_id}, if it hangs: others get its records at once"
        remedies.insert(0, stop)
    return remedies


def _member(member_id: str, group: GroupDescription) -> str:
    for each in group.members:
        if each.member_id == member_id:
            return f"member {member_id} (client id {each.client_id!r} at {each.host})"
    return f"member {member_id}"


def _seconds(time_ms: int) -> str:
    return f"{time_ms / 1000:.1f} s"
