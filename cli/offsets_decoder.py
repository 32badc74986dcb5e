"""What the records of ``__consumer_offsets`` say, in the form of ``kafka-dump-log``."""

from __future__ import annotations

import base64
from typing import Any

from broker.coordinator.group.records import (
    CommittedOffset,
    OffsetKey,
    RecordedGroup,
    RecordedMember,
    decode_group,
    decode_key,
    decode_offset,
)
from stele.wire.batch import Record
from stele.wire.kafka import ZERO_UUID

_VERSION_BYTES = 2


def decode_record(record: Record) -> dict[str, Any]:
    """Key and payload as nested values with Kafka's names. Raises ValueError for a record that is
    none of a group coordinator's."""
    if record.key is None:
        raise ValueError("a record without a key")
    key = decode_key(record.key)
    if isinstance(key, OffsetKey):
        named: dict[str, Any] = {"group": key.group_id}
        named |= {"topic": key.partition.topic, "partition": key.partition.partition}
    else:
        named = {"group": key.group_id}
    if record.value is None:
        payload = None
    elif isinstance(key, OffsetKey):
        payload = _versioned("version", record.value, _offset(decode_offset(record.value)))
    else:
        payload = _versioned("version", record.value, _group(decode_group(record.value)))
    return {"key": _versioned("type", record.key, named), "payload": payload}


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
        named["topicId"] = _base64(value.topic_id, urlsafe=True).rstrip("=")
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


def _base64(data: bytes, *, urlsafe: bool = False) -> str:
    encode = base64.urlsafe_b64encode if urlsafe else base64.b64encode
    return encode(data).decode()
