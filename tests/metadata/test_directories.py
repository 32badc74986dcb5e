"""The log directories of replicas in the metadata."""

from __future__ import annotations

import dataclasses

import pytest

from metadata.brokers import BrokerRegistration
from metadata.delta import MetadataDelta
from metadata.directories import LOST, MIGRATING, UNASSIGNED, is_reserved
from metadata.image import EMPTY
from metadata.partitions import PartitionState, changed_state, without_directories
from metadata.records import METADATA_VERSION
from metadata.snapshot import records_of
from stele.wire.v1 import metadata_pb2 as pb

A, B = b"a" * 16, b"b" * 16
Nodes, Directories = pb.PartitionChangeRecord.Nodes, pb.PartitionChangeRecord.Directories


def test_the_first_hundred_ids_are_of_no_directory() -> None:
    assert [each for each in (UNASSIGNED, LOST, MIGRATING) if is_reserved(each)] == [
        bytes(16),
        bytes(15) + b"\x01",
        bytes(15) + b"\x02",
    ]
    assert is_reserved(bytes(15) + b"\x63")
    assert not is_reserved(bytes(15) + b"\x64")


def test_a_replica_that_stays_keeps_its_directory_and_a_new_one_has_none() -> None:
    state = PartitionState((1, 2), isr=(1, 2), directories=(A, B))
    after = changed_state(state, pb.PartitionChangeRecord(replicas=Nodes(ids=(3, 2))))
    assert (after.replicas, after.directories) == ((3, 2), (UNASSIGNED, B))
    assert changed_state(state, pb.PartitionChangeRecord(leader=1)).directories == (A, B)
    gone = changed_state(state, pb.PartitionChangeRecord(replicas=Nodes(ids=(3, 4))))
    assert gone.directories == (), "as in a partition of which nobody has told anything"


def test_a_change_puts_one_replica_into_a_directory() -> None:
    state = PartitionState((1, 2), isr=(1, 2))
    assert [state.directory_of(each) for each in (1, 2, 9)] == [UNASSIGNED] * 3
    told = pb.PartitionChangeRecord(directories=Directories(ids=state.directories_with(2, B)))
    after = changed_state(state, told)
    assert [after.directory_of(each) for each in (1, 2, 9)] == [UNASSIGNED, B, UNASSIGNED]
    assert after.directories_with(2, UNASSIGNED) == ()


@pytest.mark.parametrize(
    ("directory", "online"),
    [
        (A, True),
        (B, False),  # it has failed
        (b"c" * 16, False),  # it is no directory of this registration
        (UNASSIGNED, True),
        (MIGRATING, True),
        (LOST, False),
    ],
)
def test_which_replicas_of_a_registered_broker_can_be_used(directory: bytes, online: bool) -> None:
    registration = BrokerRegistration(
        1, 10, b"i" * 16, log_directories=(A, B), offline_directories=(B,)
    )
    assert registration.has_online(directory) is online


def level(number: int) -> pb.MetadataRecord:
    return pb.MetadataRecord(
        feature_level=pb.FeatureLevelRecord(name=METADATA_VERSION, level=number)
    )


def made(topic: bytes, number: int, *directories: bytes) -> pb.MetadataRecord:
    record = pb.PartitionRecord(
        topic_id=topic, partition=number, replicas=[1, 2], isr=[1, 2], directories=directories
    )
    return pb.MetadataRecord(partition=record)


def test_to_forget_directories_is_a_change_of_nothing_else() -> None:
    """Each field has a value of its own, so a field that is left out or exchanged shows."""
    fields = {
        field.name: number if isinstance(field.default, int) else (number,)
        for number, field in enumerate(dataclasses.fields(PartitionState), start=5)
    }
    state = PartitionState(**{**fields, "directories": (A,)})  # type: ignore[arg-type]
    unknown = pb.PartitionChangeRecord(directories=Directories())
    assert without_directories(state) == changed_state(state, unknown)


@pytest.mark.parametrize("in_one_delta", [False, True])
def test_an_image_has_no_directories_after_a_downgrade(in_one_delta: bool) -> None:
    """Brokers report no moves below level 5, so what the image has would become wrong."""
    topic, made_later = b"t" * 16, b"u" * 16
    before = [
        level(5),
        pb.MetadataRecord(topic=pb.TopicRecord(name="t", topic_id=topic)),
        made(topic, 0, A, B),
        made(topic, 1),
        pb.MetadataRecord(topic=pb.TopicRecord(name="u", topic_id=made_later)),
        made(made_later, 0, B, LOST),
    ]
    delta = MetadataDelta(EMPTY)
    delta.replay_all(before, offset=10)
    known = delta.apply()
    if not in_one_delta:
        delta = MetadataDelta(known)
    delta.replay(11, level(4))
    after = delta.apply()
    records = [pb.MetadataRecord.FromString(each) for each in records_of(after)]
    assert len(records) == len(before)
    assert not any(each.partition.directories for each in records)
    states = after.topics[topic].partitions
    assert [each.partition_epoch for each in states] == [1, 0], "an epoch names one state"
    assert states[0].isr == (1, 2)

    again = MetadataDelta(EMPTY)
    again.replay_all(records, offset=11)
    assert again.apply() == after, "those who read the snapshot have the same image"

    up = MetadataDelta(after)
    up.replay(12, level(5))
    assert up.apply().topics == after.topics
