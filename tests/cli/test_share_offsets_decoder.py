"""Records of share groups, as ``stele`` shows them."""

from __future__ import annotations

from broker.coordinator.group.share.records import (
    ShareAssignment,
    ShareGroupValue,
    ShareKind,
    ShareMemberMetadata,
    ShareTargetEpoch,
    StatePartitions,
    share_current_record,
    share_group_record,
    share_member_record,
    share_target_epoch_record,
    share_target_record,
    share_tombstone,
    state_partitions_record,
)
from broker.coordinator.step import KeyValue
from cli.offsets_decoder import decode_record
from stele.wire.batch import Record

T = bytes(16)
T_NAME = "AAAAAAAAAAAAAAAAAAAAAA"
PARTITIONS = {T: frozenset({1, 0})}
NAMED = [{"topicId": T_NAME, "partitions": [0, 1]}]


def decoded(record: KeyValue) -> tuple[object, object]:
    found = decode_record(Record(0, 0, record.key, record.value))
    payload = found["payload"]
    return found["key"], payload if payload is None else payload["data"]


def test_every_kind_is_shown_with_kafkas_names() -> None:
    group = {"groupId": "g"}
    member = {"groupId": "g", "memberId": "m"}
    states = StatePartitions(PARTITIONS, {}, frozenset({T}), {T: "t"})
    assert decoded(share_group_record("g", ShareGroupValue(3, 5))) == (
        {"type": "11", "data": group},
        {"epoch": 3, "metadataHash": 5},
    )
    assert decoded(share_member_record("g", "m", ShareMemberMetadata("r", "c", "h", ("t",)))) == (
        {"type": "10", "data": member},
        {"rackId": "r", "clientId": "c", "clientHost": "h", "subscribedTopicNames": ["t"]},
    )
    assert decoded(share_target_epoch_record("g", ShareTargetEpoch(3, 7))) == (
        {"type": "12", "data": group},
        {"assignmentEpoch": 3, "assignmentTimestamp": 7},
    )
    assert decoded(share_target_record("g", "m", PARTITIONS)) == (
        {"type": "13", "data": member},
        {"topicPartitions": NAMED},
    )
    assert decoded(share_current_record("g", "m", ShareAssignment(3, 2, PARTITIONS))) == (
        {"type": "14", "data": member},
        {"memberEpoch": 3, "previousMemberEpoch": 2, "state": 0, "assignedPartitions": NAMED},
    )
    assert decoded(state_partitions_record("g", states)) == (
        {"type": "15", "data": group},
        {
            "initializingTopics": [{**NAMED[0], "topicName": "t"}],
            "initializedTopics": [],
            "deletingTopics": [{"topicId": T_NAME, "topicName": "t"}],
        },
    )


def test_a_tombstone_has_no_payload() -> None:
    key, payload = decoded(share_tombstone(ShareKind.GROUP, "g"))
    assert key == {"type": "11", "data": {"groupId": "g"}}
    assert payload is None
