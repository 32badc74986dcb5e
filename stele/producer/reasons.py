"""Why the records of a partition have not been delivered yet, in words."""

from __future__ import annotations

from typing import NamedTuple

from stele.cluster.messages import Leader
from stele.cluster.waiting import PRODUCER_QUOTAS, above_quota
from stele.errors import ErrorCode
from stele.producer.accumulator import PartitionQueue


class Surroundings(NamedTuple):
    """The conditions of a partition's delivery besides its own queue. Times are monotonic
    seconds."""

    leader: Leader | None
    topic_error: ErrorCode  # of the last metadata
    broker_ready_at: float  # the leader's broker is sent nothing before this time
    throttled_until: float  # because this client is above a quota until then
    # why there is no producer id yet; empty if there is one, or none was asked for
    no_producer_id: str
    linger_until: float  # a batch that is not full waits until then; in the past otherwise


def why_waiting(queue: PartitionQueue, around: Surroundings, now: float) -> str:
    """One line for a queue that is not empty."""
    count = sum(entry.record_count for entry in queue.lane.window)
    count += sum(batch.record_count for batch in queue.waiting)
    return f"{count} records: {_obstacle(queue, around, now)}"


def _obstacle(queue: PartitionQueue, around: Surroundings, now: float) -> str:
    lane, retry, leader = queue.lane, queue.retry, around.leader
    if lane.any_in_flight:
        before = f"; before that: {retry.reason}" if retry.reason else ""
        return (
            f"sent to broker {queue.sent_to} {_seconds(now - queue.sent_at)} ago, and not answered "
            f"yet{before}"
        )
    if leader is None:
        because = f" ({around.topic_error.name})" if around.topic_error else ""
        last = f"; last: {retry.reason}" if retry.reason else ""
        return f"its leader is not known{because}{last}"
    if retry.must_wait(leader, now):
        return f"sent again in {_seconds(retry.at - now)}, after: {retry.reason}"
    if lane.needs_identity:
        return around.no_producer_id or "waits for a producer id"
    if around.broker_ready_at > now:
        if around.throttled_until > now:
            return above_quota(leader.broker_id, around.throttled_until - now, PRODUCER_QUOTAS)
        wait = _seconds(around.broker_ready_at - now)
        last = f"; last: {retry.reason}" if retry.reason else ""
        return (
            f"broker {leader.broker_id} gets no requests for {wait}: it was not reached, or leaves "
            f"max_in_flight requests unanswered{last}"
        )
    if around.linger_until > now:
        return f"waits {_seconds(around.linger_until - now)} for more records (linger_ms)"
    last = f", after: {retry.reason}" if retry.reason else ""
    return f"about to be sent to broker {leader.broker_id}{last}"


def _seconds(duration_s: float) -> str:
    return f"{duration_s:.1f} s"
