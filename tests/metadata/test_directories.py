"""The log directories of replicas in the metadata."""

from __future__ import annotations

import pytest

from metadata.brokers import BrokerRegistration
from metadata.directories import LOST, MIGRATING, UNASSIGNED, is_reserved
from metadata.partitions import PartitionState, changed_state
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
