"""The windows of share partitions: which records hold them back, and which members have them."""

from __future__ import annotations

from typing import NamedTuple

from broker.service.context import BrokerContext
from broker.service.share_groups import check_version
from broker.service.topics import Topics
from broker.sharing.window_description import RANGES_MAX, DescribedWindow
from metadata.topics import Topic
from runtime.authorization.authorizer import Operation, group_resource, refusal
from runtime.authorization.caller import Caller
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId


class WindowRequest(NamedTuple):
    """Which window, and which of its ranges."""

    group_id: str
    topic: str
    partition: int
    from_offset: int
    most: int
    """The most ranges; 0: as many as one answer may have."""


class WindowAnswer(NamedTuple):
    """What the leader of the partition knows."""

    window: DescribedWindow | None
    """None: no member has fetched from this leader, or the last one has left it."""
    readers: int
    """Members that read the partition now."""


def describe_window(context: BrokerContext, caller: Caller, asked: WindowRequest) -> WindowAnswer:
    """Raises ApiError UNSUPPORTED_VERSION, GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST, NOT_LEADER_OR_FOLLOWER,
    COORDINATOR_LOAD_IN_PROGRESS."""
    check_version(context)
    why = refusal(context.authorizer, caller, Operation.DESCRIBE, group_resource(asked.group_id))
    if why is not None:
        raise why
    topic = Topics(context, caller, Operation.DESCRIBE).named(asked.topic)
    if not isinstance(topic, Topic):
        raise ApiError(topic)
    number = asked.partition
    if not 0 <= number < len(topic.partitions):
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name} has no partition {number}"
        )
    if asked.most < 0:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{asked.most} is no number of ranges")
    if topic.partitions[number].leader != context.broker_id:
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker does not lead the partition")
    sharing, partition = context.sharing, PartitionId(topic.topic_id, number)
    led = sharing.partitions.find(asked.group_id, partition)
    window = None
    if led is not None:
        window = led.describe(asked.from_offset, min(asked.most or RANGES_MAX, RANGES_MAX))
        if window is None:
            raise ApiError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                "the leader is loading the state of the share partition",
            )
    return WindowAnswer(window, sharing.sessions.count_readers(asked.group_id, partition))
