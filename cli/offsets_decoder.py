"""What the records of ``__consumer_offsets`` say, in the form of ``kafka-dump-log``."""

from __future__ import annotations

import base64
from typing import Any

from broker.coordinator.assignors.spec import Partitions
from broker.coordinator.group.consumer.records import (
    ConsumerKey,
    Kind,
    MemberMetadata,
    decode_current,
    decode_group_value,
    decode_member,
    decode_regex,
    decode_target,
    decode_target_epoch,
)
from broker.coordinator.group.records import (
    CommittedOffset,
    GroupKey,
    OffsetKey,
    RecordedGroup,
    RecordedMember,
    decode_group,
    decode_key,
    decode_offset,
)
from broker.coordinator.group.share.records import ShareKey
from cli.share_offsets_decoder import share_key, share_payload
from stele.wire.batch import Record
from stele.wire.kafka import ZERO_UUID

_VERSION_BYTES = 2


def decode_record(record: Record) -> dict[str, Any]:
    """Key and payload as nested values with Kafka's names. Raises ValueError for a record of
    another kind than a group coordinator's."""
    if record.key is None:
        raise ValueError("a record without a key")
    key = decode_key(record.key)
    payload = None
    if record.value is not None:
        payload = _versioned("version", record.value, _payload(key, record.value))
    return {"key": _versioned("type", record.key, _key(key)), "payload": payload}


def _key(key: OffsetKey | GroupKey | ConsumerKey | ShareKey) -> dict[str, Any]:
    if isinstance(key, OffsetKey):
        topic, partition = key.partition
        return {"group": key.group_id, "topic": topic, "partition": partition}
    if isinstance(key, GroupKey):
        return {"group": key.group_id}
    if isinstance(key, ShareKey):
        return share_key(key)
    if key.kind is Kind.REGEX:
        return {"groupId": key.group_id, "regularExpression": key.name}
    if key.kind in (Kind.MEMBER, Kind.TARGET, Kind.CURRENT):
        return {"groupId": key.group_id, "memberId": key.name}
    return {"groupId": key.group_id}


def _payload(key: OffsetKey | GroupKey | ConsumerKey | ShareKey, value: bytes) -> dict[str, Any]:
    if isinstance(key, OffsetKey):
        return _offset(decode_offset(value))
    if isinstance(key, GroupKey):
        return _group(decode_group(value))
    if isinstance(key, ShareKey):
        return share_payload(key, value)
    match key.kind:
        case Kind.GROUP:
            group = decode_group_value(value)
            return {"epoch": group.epoch, "metadataHash": group.metadata_hash}
        case Kind.MEMBER:
            return _consumer_member(decode_member(value))
        case Kind.TARGET_EPOCH:
            target = decode_target_epoch(value)
            named = {"assignmentEpoch": target.epoch}
            return {**named, "assignmentTimestamp": target.time_ms} if target.time_ms else named
        case Kind.TARGET:
            return {"topicPartitions": _partitions(decode_target(value))}
        case Kind.CURRENT:
            current = decode_current(value)
            return {
                "memberEpoch": current.member_epoch,
                "previousMemberEpoch": current.previous_epoch,
                "state": int(current.state),
                "assignedPartitions": _partitions(current.assigned),
                "partitionsPendingRevocation": _partitions(current.revoking),
            }
        case Kind.REGEX:
            found = decode_regex(value)
            names = list(found.topic_names)
            return {"topics": names, "version": found.version, "timestamp": found.time_ms}
        case Kind.PARTITIONS:
            raise ValueError("the partitions of topics, which are not recorded since Kafka 4.1")


def _versioned(name: str, data: bytes, named: dict[str, Any]) -> dict[str, Any]:
    version = int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
    return {name: str(version), "data": named}


def _offset(value: CommittedOffset) -> dict[str, Any]:
    named: dict[str, Any] = {
        "offset": value.offset,
        "leaderEpoch": value.leader_epoch,
        "metadata": value.metadata,
        "commitTimestamp": value.commit_time_ms,
    }
    if value.expire_time_ms >= 0:
        named["expireTimestamp"] = value.expire_time_ms
    if value.topic_id != ZERO_UUID:
        named["topicId"] = _topic_id(value.topic_id)
    return named


def _group(value: RecordedGroup) -> dict[str, Any]:
    return {
        "protocolType": value.protocol_type,
        "generation": value.generation,
        "protocol": value.protocol,
        "leader": value.leader,
        "currentStateTimestamp": value.state_time_ms,
        "members": [_member(each) for each in value.members],
    }


def _member(value: RecordedMember) -> dict[str, Any]:
    return {
        "memberId": value.member_id,
        "groupInstanceId": value.group_instance_id,
        "clientId": value.client_id,
        "clientHost": value.client_host,
        "rebalanceTimeout": value.rebalance_timeout_ms,
        "sessionTimeout": value.session_timeout_ms,
        "subscription": _base64(value.subscription),
        "assignment": _base64(value.assignment),
    }


def _consumer_member(value: MemberMetadata) -> dict[str, Any]:
    named: dict[str, Any] = {
        "instanceId": value.instance_id,
        "rackId": value.rack_id,
        "clientId": value.client_id,
        "clientHost": value.client_host,
        "subscribedTopicNames": list(value.topic_names),
        "subscribedTopicRegex": value.regex,
        "rebalanceTimeoutMs": value.rebalance_timeout_ms,
        "serverAssignor": value.server_assignor,
    }
    if value.classic is not None:
        protocols = [
            {"name": each.name, "metadata": _base64(each.metadata)}
            for each in value.classic.protocols
        ]
        named["classicMemberMetadata"] = {
            "sessionTimeoutMs": value.classic.session_timeout_ms,
            "supportedProtocols": protocols,
        }
    return named


def _partitions(partitions: Partitions) -> list[dict[str, Any]]:
    return [
        {"topicId": _topic_id(topic_id), "partitions": sorted(numbers)}
        for topic_id, numbers in partitions.items()
    ]


def _topic_id(topic_id: bytes) -> str:
    return _base64(topic_id, urlsafe=True).rstrip("=")


def _base64(data: bytes, *, urlsafe: bool = False) -> str:
    encode = base64.urlsafe_b64encode if urlsafe else base64.b64encode
    return encode(data).decode()
