"""Control records of the quorum, byte by byte as Kafka lays them out."""

from __future__ import annotations

import random

import pytest
from kio.schema.k_raft_version_record.v0 import KRaftVersionRecord
from kio.schema.leader_change_message.v0 import LeaderChangeMessage
from kio.schema.voters_record.v0 import VotersRecord
from kio.serial import entity_reader

from raft.messages import Batch, LeaderChange, VotersChange
from raft.quorum import ReplicaKey, Voter, VoterSet
from runtime.quorum.control import (
    ControlRecordError,
    decode_voters,
    encode_control,
    encode_version,
    encode_voters,
    voters_in,
)
from stele.wire.batch import (
    BatchBuilder,
    check_crc,
    decode,
    read_header,
)
from stele.wire.control_records import ControlType, control_key, control_type

D1, D2 = bytes(range(16)), bytes(range(16, 32))
VOTERS = VoterSet([Voter(ReplicaKey(1, D1), "c1:9093"), Voter(ReplicaKey(258, D2))])
PACKED = b"".join(
    [
        b"\x00\x00",  # version 0
        b"\x03",  # two voters
        b"\x00\x00\x00\x01" + D1,
        b"\x02",  # one endpoint
        b"\x0bCONTROLLER" + b"\x03c1" + b"\x23\x85" + b"\x00",
        b"\x00\x00\x00\x01\x00" + b"\x00",  # kraft.version 0 to 1; the voter's tags
        b"\x00\x00\x01\x02" + D2,
        b"\x01",  # no endpoint
        b"\x00\x00\x00\x01\x00" + b"\x00",
        b"\x00",  # the record's tags
    ]
)


def test_the_record_of_voters() -> None:
    assert encode_voters(VOTERS) == PACKED
    assert decode_voters(PACKED) == VOTERS


def test_the_listeners_of_a_voter() -> None:
    """Each as one endpoint of Kafka. A node that knows of one listener takes the first one."""
    told = Voter(ReplicaKey(258, D2), "OLD://c2:9093+NEW://[::1]:9094")
    packed = encode_voters(VOTERS.with_voter(told))
    listeners = (
        b"\x03"  # two endpoints
        + (b"\x04OLD" + b"\x03c2" + b"\x23\x85" + b"\x00")
        + (b"\x04NEW" + b"\x04::1" + b"\x23\x86" + b"\x00")
    )
    assert packed == PACKED.replace(D2 + b"\x01", D2 + listeners)
    assert decode_voters(packed).get(258) == told
    alone = Voter(ReplicaKey(258, D2), "NEW://c2:9094")
    assert decode_voters(encode_voters(VOTERS.with_voter(alone))).get(258) == alone
    with pytest.raises(ControlRecordError, match="are no listeners"):
        decode_voters(packed.replace(b"\x04NEW", b"\x04A+B"))
    theirs, size = entity_reader(VotersRecord)(packed, 0)
    assert size == len(packed)
    assert [each.name for each in theirs.voters[1].endpoints] == ["OLD", "NEW"]


def test_what_voters_support_stands_in_a_field_that_others_skip() -> None:
    features = (("metadata.version", 1, 2), ("other", 0, 32767))
    told = Voter(ReplicaKey(258, D2), features=features)
    value = (
        b"\x03"  # two features
        + (b"\x11metadata.version" + b"\x00\x01\x00\x02" + b"\x00")
        + (b"\x06other" + b"\x00\x00\x7f\xff" + b"\x00")
    )
    tag = b"\x01" + b"\xe8\x07" + bytes([len(value)]) + value  # one field: 1000
    packed = PACKED[:-2] + tag + b"\x00"
    assert encode_voters(VOTERS.with_voter(told)) == packed
    assert decode_voters(packed).get(258) == told
    longer = tag.replace(bytes([len(value)]) + value, bytes([len(value) + 1]) + value + b"\x00")
    with pytest.raises(ControlRecordError, match="1 bytes behind the end"):
        decode_voters(PACKED[:-2] + longer + b"\x00")


def test_the_record_of_the_version() -> None:
    assert encode_version() == b"\x00\x00" + b"\x00\x01" + b"\x00"


def test_the_leader_change_batch() -> None:
    change = LeaderChange(2, (1, 2, 3), (2, 3))
    data = encode_control(Batch(17, 1, 5, change), change, 1234)
    header = read_header(data)
    assert check_crc(data, 0, header)
    assert (header.base_offset, header.leader_epoch, header.record_count) == (17, 5, 1)
    assert header.is_control
    (record,) = decode(data)
    assert control_type(record.key) is ControlType.LEADER_CHANGE
    assert record.timestamp_ms == 1234
    voters = b"".join(b"\x00\x00\x00" + bytes([each]) + b"\x00" for each in (1, 2, 3))
    granting = b"".join(b"\x00\x00\x00" + bytes([each]) + b"\x00" for each in (2, 3))
    packed = b"\x00\x00" + b"\x00\x00\x00\x02" + b"\x04" + voters + b"\x03" + granting + b"\x00"
    assert record.value == packed
    assert voters_in(data, 0) is None


def test_kafka_reads_every_control_record() -> None:
    """As its ControlRecordUtils does: each as version 0."""
    change = LeaderChange(2, (1, 2, 3), (2, 3))
    (record,) = decode(encode_control(Batch(17, 1, 5, change), change, 1234))
    value = record.value or b""
    theirs, size = entity_reader(LeaderChangeMessage)(value, 0)
    assert size == len(value)
    assert (theirs.version, theirs.leader_id) == (0, 2)
    assert [voter.voter_id for voter in theirs.voters] == [1, 2, 3]
    assert [voter.voter_id for voter in theirs.granting_voters] == [2, 3]
    version, size = entity_reader(KRaftVersionRecord)(encode_version(), 0)
    assert (version.version, version.k_raft_version, size) == (0, 1, len(encode_version()))
    record_of_voters, size = entity_reader(VotersRecord)(PACKED, 0)
    assert size == len(PACKED)
    assert [voter.voter_id for voter in record_of_voters.voters] == [1, 258]


def test_a_leader_change_of_version_1_in_an_old_log_is_passed_over() -> None:
    voter = b"\x00\x00\x00\x02" + bytes(17)
    value = b"\x00\x01" + b"\x00\x00\x00\x02" + b"\x02" + voter + b"\x02" + voter + b"\x00"
    builder = BatchBuilder(17)
    builder.append(control_key(ControlType.LEADER_CHANGE), value, timestamp_ms=1)
    assert voters_in(builder.build(leader_epoch=5, is_control=True), 0) is None


@pytest.mark.parametrize("is_first", [True, False])
def test_the_batch_of_voters(is_first: bool) -> None:
    change = VotersChange(VOTERS, is_first)
    data = encode_control(Batch(17, change.count, 5, change), change, 1234)
    header = read_header(data)
    assert header.is_control
    assert (header.base_offset, header.leader_epoch) == (17, 5)
    assert header.record_count == change.count == 1 + is_first
    kinds = [control_type(record.key) for record in decode(data)]
    expected = [ControlType.KRAFT_VERSION, ControlType.KRAFT_VOTERS]
    assert kinds == (expected if is_first else expected[1:])
    assert decode(data)[-1].value == PACKED
    assert voters_in(data, 0) == VOTERS


def test_tagged_fields_of_others_are_skipped() -> None:
    tag = b"\x01\x05\x02ab"  # one field: tag 5, two bytes
    assert decode_voters(PACKED[:-1] + tag) == VOTERS


def test_an_address_of_version_6() -> None:
    voters = VoterSet([Voter(ReplicaKey(1, D1), "[::1]:9093")])
    assert b"\x04::1\x23\x85" in encode_voters(voters)
    assert decode_voters(encode_voters(voters)) == voters


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        PACKED[:-1],
        PACKED + b"\x00",
        b"\x00\x01" + PACKED[2:],  # a version that this node does not know
        PACKED.replace(D2, D1).replace(b"\x00\x00\x01\x02", b"\x00\x00\x00\x01"),  # 1 twice
        b"\x00\x00\xff\xff\xff\xff\xff\x01",
    ],
)
def test_what_is_no_record_of_voters(damaged: bytes) -> None:
    with pytest.raises(ControlRecordError):
        decode_voters(damaged)


def test_any_damage_is_an_error_or_another_record() -> None:
    rng = random.Random(1)
    for _ in range(3000):
        data = bytearray(PACKED)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        try:
            decode_voters(bytes(data[: rng.randrange(len(data) + 1)]))
        except ControlRecordError:
            pass
