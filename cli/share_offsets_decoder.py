"""What the records of share groups in ``__consumer_offsets`` say, with Kafka's names."""

from __future__ import annotations

import base64
from typing import Any

from broker.coordinator.assignors.spec import Partitions
from broker.coordinator.group.share.records import (
    ShareKey,
    ShareKind,
    StatePartitions,
    decode_share_current,
    decode_share_group,
    decode_share_member,
    decode_share_target,
    decode_share_target_epoch,
    decode_state_partitions,
)


def share_key(key: ShareKey) -> dict[str, Any]:
    member = {"memberId": key.member_id} if key.member_id else {}
    return {"groupId": key.group_id, **member}


def share_payload(key: ShareKey, value: bytes) -> dict[str, Any]:
    """Raises ValueError."""
    match key.kind:
        case ShareKind.GROUP:
            group = decode_share_group(value)
            return {"epoch": group.epoch, "metadataHash": group.metadata_hash}
        case ShareKind.MEMBER:
            member = decode_share_member(value)
            return {
                "rackId": member.rack_id,
                "clientId": member.client_id,
                "clientHost": member.client_host,
                "subscribedTopicNames": list(member.topic_names),
            }
        case ShareKind.TARGET_EPOCH:
            target = decode_share_target_epoch(value)
            named = {"assignmentEpoch": target.epoch}
            return {**named, "assignmentTimestamp": target.time_ms} if target.time_ms else named
        case ShareKind.TARGET:
            return {"topicPartitions": _partitions(decode_share_target(value))}
        case ShareKind.CURRENT:
            current = decode_share_current(value)
            return {
                "memberEpoch": current.member_epoch,
                "previousMemberEpoch": current.previous_epoch,
                "state": 0,
                "assignedPartitions": _partitions(current.assigned),
            }
        case ShareKind.STATE_PARTITIONS:
            return _state_partitions(decode_state_partitions(value))


def _state_partitions(value: StatePartitions) -> dict[str, Any]:
    def named(partitions: Partitions) -> list[dict[str, Any]]:
        return [
            {
                "topicId": _topic_id(topic_id),
                "topicName": value.names[topic_id],
                "partitions": sorted(numbers),
            }
            for topic_id, numbers in partitions.items()
        ]

    return {
        "initializingTopics": named(value.initializing),
        "initializedTopics": named(value.initialized),
        "deletingTopics": [
            {"topicId": _topic_id(each), "topicName": value.names[each]}
            for each in sorted(value.deleting)
        ],
    }


def _partitions(partitions: Partitions) -> list[dict[str, Any]]:
    return [
        {"topicId": _topic_id(topic_id), "partitions": sorted(numbers)}
        for topic_id, numbers in partitions.items()
    ]


def _topic_id(topic_id: bytes) -> str:
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
