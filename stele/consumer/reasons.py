"""Why a partition gives a consumer no records at the moment, in words."""

from __future__ import annotations

from typing import NamedTuple

from stele.cluster.messages import Leader
from stele.cluster.waiting import CONSUMER_QUOTAS, above_quota
from stele.consumer.positions import EARLIEST, PartitionPosition
from stele.errors import ErrorCode


class Surroundings(NamedTuple):
    """What the reading of a partition depends on besides its own position. Times are monotonic
    seconds."""

    leader: Leader | None
    topic_error: ErrorCode  # of the last metadata
    broker_ready_at: float  # the leader's broker is sent nothing before this time
    throttled_until: float  # because this client is above a quota until then
    committed_waits_for: str  # why the committed offset is not known yet
    reads_committed: bool
    is_full: bool  # as much as allowed was fetched, and not polled


def why_idle(position: PartitionPosition, around: Surroundings, now: float) -> str:
    """One line."""
    if (error := position.stopped_by) is not None:
        return f"stopped, and poll raises it: {error}"
    if position.paused:
        return "paused: resume() reads on"
    if position.has_buffer:
        return "there are records: poll() returns them"
    if position.awaits_committed:
        return _with("the group's committed offset is looked up", around.committed_waits_for)
    if position.offset is None:
        return _without_leader(around, position.retry.reason) or (
            f"its {'earliest' if position.reset_to == EARLIEST else 'latest'} offset is looked up"
        )
    if position.in_flight:
        return _asked(position, around, now)
    if position.is_fetched:
        return f"read up to offset {position.fetch_until}, the end that fetch_until() has set"
    return _not_asked(position, around, now)


def _asked(position: PartitionPosition, around: Surroundings, now: float) -> str:
    ago = f"broker {position.sent_to} was asked {_seconds(now - position.sent_at)} ago"
    if position.fetch_offset == position.high_watermark:
        return f"at the end, offset {position.fetch_offset}: {ago} for new records"
    if around.reads_committed and position.fetch_offset == position.last_stable_offset:
        return (
            f"at the last stable offset, {position.fetch_offset}: an open transaction holds back "
            f"what is there up to {position.high_watermark}; {ago}"
        )
    return _with(
        f"offset {position.fetch_offset}: {ago}, and has not answered", position.retry.reason
    )


def _not_asked(position: PartitionPosition, around: Surroundings, now: float) -> str:
    retry, leader = position.retry, around.leader
    if (reason := _without_leader(around, retry.reason)) or leader is None:
        return reason
    if retry.must_wait(leader, now):
        return f"asked again in {_seconds(retry.at - now)}, after: {retry.reason}"
    if around.is_full:
        return "not fetched: prefetch_bytes are fetched of other partitions, and not polled"
    if around.broker_ready_at > now:
        if around.throttled_until > now:
            return above_quota(leader.broker_id, around.throttled_until - now, CONSUMER_QUOTAS)
        wait = _seconds(around.broker_ready_at - now)
        return _with(f"broker {leader.broker_id} gets no requests for {wait}", retry.reason)
    return _with(f"about to be fetched from broker {leader.broker_id}", retry.reason)


def _without_leader(around: Surroundings, last: str) -> str:
    """Empty if there is a leader."""
    if around.leader is not None:
        return ""
    because = f" ({around.topic_error.name})" if around.topic_error else ""
    return _with(f"its leader is not known{because}", last)


def _with(text: str, last: str) -> str:
    return f"{text}; last: {last}" if last else text


def _seconds(duration_s: float) -> str:
    return f"{duration_s:.1f} s"


def with_reason(reason: str, more: str) -> str:
    """Both reasons; ``more`` may be empty."""
    return f"{reason}; {more}" if more else reason
