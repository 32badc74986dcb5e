"""Log directories of brokers: where replicas are, and what a directory that fails costs."""

from __future__ import annotations

from typing import Any

import pytest

from metadata.directories import LOST, UNASSIGNED
from metadata.partitions import NO_LEADER
from metadata.records import METADATA_VERSION
from stele.errors import ErrorCode
from stele.wire.v1 import admin_pb2 as admin
from stele.wire.v1 import controller_pb2 as pb
from tests.controller.test_features import update
from tests.support.controller import Machine, incarnation, refusal

A, B, C = b"a" * 16, b"b" * 16, b"c" * 16


def history(machine: Machine, directory: bytes, number: int, *topics: str) -> pb.DirectoryHistory:
    """What broker 1 reports of a directory that its process ``number`` has used."""
    return pb.DirectoryHistory(
        directory_id=directory,
        previous_broker_epoch=-1,
        incarnation_ids=[incarnation(1, number)],
        replicas=[machine.reference(topic) for topic in topics],
    )


def offline(machine: Machine) -> tuple[bytes, ...]:
    return machine.image.brokers[1].offline_directories


def written(machine: Machine) -> int:
    """How many records the last decision has written."""
    return len(machine.last_records)


@pytest.fixture
def machine() -> Machine:
    """Broker 1 has the directories A and B; 2 and 3 have one."""
    machine = Machine()
    machine.register(1, log_directories=[A, B], directories_marked=True)
    machine.heartbeat(1)
    machine.brokers(2, 3)
    return machine


def two_topics(machine: Machine, *replicas: int, **configs: Any) -> None:
    """``in-a`` and ``in-b``, with broker 1's replicas in the directories of these names."""
    for topic, directory in (("in-a", A), ("in-b", B)):
        machine.create(topic, {0: list(replicas)}, **configs)
        assert machine.assign(1, directory, machine.reference(topic)) == {}


class TestAssignment:
    def test_a_replica_is_where_its_broker_says(self, machine: Machine) -> None:
        machine.create("t", {0: [1, 2]})
        assert machine.partition("t").directories == ()
        before = machine.partition("t")
        assert machine.assign(1, A, machine.reference("t")) == {}
        state = machine.partition("t")
        assert [state.directory_of(each) for each in (1, 2)] == [A, UNASSIGNED]
        assert (state.isr, state.leader_epoch) == (before.isr, before.leader_epoch)
        machine.assign(1, A, machine.reference("t"))
        assert written(machine) == 0, "it is there already"
        machine.assign(1, B, machine.reference("t"), machine.reference("t"))
        assert written(machine) == 1
        assert machine.partition("t").directory_of(1) == B

    def test_each_replica_that_is_none_of_the_broker_is_refused(self, machine: Machine) -> None:
        machine.create("mine", {0: [1]})
        machine.create("other", {0: [2]})
        mine, other = machine.reference("mine"), machine.reference("other")
        beyond = pb.PartitionReference(topic_id=mine.topic_id, partition=1)
        unknown = pb.PartitionReference(topic_id=b"u" * 16)
        assert machine.assign(1, A, other, beyond, unknown, mine) == {
            (other.topic_id, 0): ErrorCode.NOT_LEADER_OR_FOLLOWER,
            (mine.topic_id, 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            (unknown.topic_id, 0): ErrorCode.UNKNOWN_TOPIC_ID,
        }
        assert machine.partition("mine").directory_of(1) == A

    def test_what_is_wrong_with_a_whole_request(self, machine: Machine) -> None:
        machine.create("t", {0: [1]})
        replica = machine.reference("t")
        for directory in (C, UNASSIGNED, LOST):
            error = refusal(lambda directory=directory: machine.assign(1, directory, replica))  # type: ignore[misc]
            assert error.code is ErrorCode.INVALID_REQUEST
        error = refusal(lambda: machine.assign(1, A, replica, broker_epoch=0))
        assert error.code is ErrorCode.STALE_BROKER_EPOCH
        error = refusal(lambda: machine.assign(1, A, *[replica] * 10_001))
        assert error.code is ErrorCode.POLICY_VIOLATION
        update(machine, 4, admin.UpgradeType.SAFE_DOWNGRADE)
        error = refusal(lambda: machine.assign(1, A, replica))
        assert error.code is ErrorCode.UNSUPPORTED_VERSION

    def test_a_reassignment_keeps_the_directories_of_replicas_that_stay(
        self, machine: Machine
    ) -> None:
        machine.create("t", {0: [1, 2]})
        machine.assign(1, B, machine.reference("t"))
        assert machine.reassign("t", 3, 1) is ErrorCode.NONE
        assert machine.partition("t").directory_of(1) == B
        machine.alter("t", 1, 2, 3)
        state = machine.partition("t")
        assert (state.replicas, state.directories) == ((3, 1), (UNASSIGNED, B))


class TestFailure:
    def test_a_directory_that_fails_costs_the_replicas_in_it(self, machine: Machine) -> None:
        two_topics(machine, 1, 2, 3)
        machine.heartbeat(1, offline_directories=[B])
        assert offline(machine) == (B,)
        assert not machine.image.brokers[1].fenced
        kept, lost = machine.partition("in-a"), machine.partition("in-b")
        assert (kept.leader, kept.isr) == (1, (1, 2, 3))
        assert (lost.leader, lost.isr) == (2, (2, 3))
        machine.heartbeat(1, offline_directories=[B])
        assert written(machine) == 0, "it is told with each heartbeat"
        assert machine.alter("in-b", 1, 2, 3).error == ErrorCode.INELIGIBLE_REPLICA

    @pytest.mark.parametrize("unclean", ["false", "true"])
    def test_the_last_member_stays_in_the_isr_and_leads_nothing(
        self, machine: Machine, unclean: str
    ) -> None:
        two_topics(machine, 1, 2, min_insync_replicas="1", unclean_leader_election_enable=unclean)
        machine.fence(2)
        machine.heartbeat(1, offline_directories=[B])
        state = machine.partition("in-b")
        assert (state.leader, state.isr, state.unclean_elections) == (NO_LEADER, (1,), 0)
        machine.heartbeat(2)
        state = machine.partition("in-b")
        if unclean == "true":
            assert (state.leader, state.isr, state.unclean_elections) == (2, (2,), 1)
        else:
            assert (state.leader, state.isr) == (NO_LEADER, (1,))

    def test_an_operator_elects_no_replica_in_a_directory_that_is_offline(
        self, machine: Machine
    ) -> None:
        two_topics(machine, 1, 2, min_insync_replicas="1")
        machine.fence(1)
        machine.fence(2)
        machine.heartbeat(1, offline_directories=[B])  # unfenced, and in neither ISR
        state = machine.partition("in-b")
        assert (state.leader, state.isr) == (NO_LEADER, (2,))
        machine.elect_uncleanly("in-b")
        assert machine.partition("in-b").leader == NO_LEADER

    def test_a_replica_that_is_reported_in_an_offline_directory_leaves_the_isr(
        self, machine: Machine
    ) -> None:
        """It was made, or moved there, and the directory failed before the controller heard."""
        machine.create("t", {0: [1, 2]})
        machine.heartbeat(1, offline_directories=[B])
        assert machine.partition("t").leader == 1, "nobody has told where it is"
        machine.assign(1, B, machine.reference("t"))
        assert (machine.partition("t").leader, machine.partition("t").isr) == (2, (2,))

    def test_a_replica_that_is_found_elsewhere_leads_again(self, machine: Machine) -> None:
        machine.create("t", {0: [1]})
        machine.assign(1, B, machine.reference("t"))
        machine.heartbeat(1, offline_directories=[B])
        assert machine.partition("t").leader == NO_LEADER
        machine.assign(1, A, machine.reference("t"))
        assert machine.partition("t").leader == 1

    def test_the_state_of_a_broker_keeps_its_offline_directories(self, machine: Machine) -> None:
        machine.heartbeat(1, offline_directories=[B])
        machine.heartbeat(1, out_of_room=True)
        machine.fence(1)
        machine.heartbeat(1)
        assert offline(machine) == (B,)
        machine.heartbeat(1, offline_directories=[C])
        assert offline(machine) == (B,), "C is no directory of it"

    def test_below_level_5_a_heartbeat_tells_nothing_of_directories(self, machine: Machine) -> None:
        two_topics(machine, 1, 2)
        update(machine, 4, admin.UpgradeType.SAFE_DOWNGRADE)
        machine.heartbeat(1, offline_directories=[B])
        assert offline(machine) == ()
        assert machine.partition("in-b").leader == 1

    def test_a_downgrade_waits_until_no_directory_is_offline(self, machine: Machine) -> None:
        machine.heartbeat(1, offline_directories=[B])
        answer = update(machine, 4, admin.UpgradeType.UNSAFE_DOWNGRADE)
        assert "log directories that are offline (1)" in answer.message
        machine.register(1, 1, log_directories=[A])
        update(machine, 4, admin.UpgradeType.SAFE_DOWNGRADE)
        assert machine.image.features[METADATA_VERSION] == 4

    def test_a_downgrade_forgets_where_replicas_are(self, machine: Machine) -> None:
        """They may move at level 4, and nobody reports it. Then the directory that the metadata
        knew is taken out: the replicas are whole in the other one."""
        two_topics(machine, 1)
        update(machine, 4, admin.UpgradeType.SAFE_DOWNGRADE)
        both = [history(machine, B, 0, "in-a", "in-b")]
        machine.register(1, 1, log_directories=[B], directory_histories=both)
        machine.heartbeat(1)
        for topic in ("in-a", "in-b"):
            state = machine.partition(topic)
            assert (state.leader, state.isr, state.directories) == (1, (1,), ())


class TestStart:
    """A broker that starts while one of its directories cannot be opened."""

    def restart(self, machine: Machine, *held: str, number: int = 1, unopened: int = 1) -> None:
        machine.register(
            1,
            number,
            log_directories=[A],
            directory_histories=[history(machine, A, number - 1, *held)],
            directories_marked=True,
            unopened_directories=unopened,
        )
        machine.heartbeat(1)

    def test_what_is_in_it_waits_and_the_rest_works(self, machine: Machine) -> None:
        two_topics(machine, 1)
        self.restart(machine, "in-a")
        assert offline(machine) == (B,)
        assert machine.partition("in-a").leader == 1
        state = machine.partition("in-b")
        assert (state.leader, state.isr, state.directory_of(1)) == (NO_LEADER, (1,), B)
        machine.register(
            1,
            2,
            log_directories=[A, B],
            directory_histories=[
                history(machine, A, 1, "in-a"),
                history(machine, B, 0, "in-b"),
            ],
        )
        machine.heartbeat(1)
        assert offline(machine) == ()
        assert machine.partition("in-b").leader == 1, "its disk is back, with all its records"

    def test_a_replica_whose_directory_nobody_told_is_in_it(self, machine: Machine) -> None:
        machine.create("untold", {0: [1]})
        machine.create("held", {0: [1]})
        self.restart(machine, "held")
        state = machine.partition("untold")
        assert (state.leader, state.isr, state.directory_of(1)) == (NO_LEADER, (1,), LOST)
        assert machine.partition("held").leader == 1
        machine.register(
            1,
            2,
            log_directories=[A, B],
            directory_histories=[history(machine, A, 1), history(machine, B, 0, "untold")],
        )
        machine.heartbeat(1)
        assert machine.partition("untold").leader == NO_LEADER
        machine.assign(1, B, machine.reference("untold"))
        assert machine.partition("untold").leader == 1

    def test_a_replica_in_an_open_directory_that_has_no_log_of_it_is_in_it(
        self, machine: Machine
    ) -> None:
        """It has moved to the other one, and a late copy of a request has named A again."""
        two_topics(machine, 1)
        self.restart(machine)
        state = machine.partition("in-a")
        assert (state.leader, state.isr, state.directory_of(1)) == (NO_LEADER, (1,), LOST)

    @pytest.mark.parametrize("is_corrupt", [False, True])
    def test_a_broken_replica_is_where_it_was_found(
        self, machine: Machine, is_corrupt: bool
    ) -> None:
        two_topics(machine, 1, 2, min_insync_replicas="1")
        broken = [machine.reference("in-a")]
        machine.register(
            1,
            1,
            log_directories=[A],
            directory_histories=[history(machine, A, 0)],
            directories_marked=True,
            unopened_directories=1,
            corrupt=broken if is_corrupt else [],
            unsynced=[] if is_corrupt else broken,
        )
        state = machine.partition("in-a")
        assert (state.leader, state.isr, state.directory_of(1)) == (2, (2,), A)

    def test_a_downgrade_ends_the_wait_for_the_report_where_a_replica_is(
        self, machine: Machine
    ) -> None:
        machine.create("untold", {0: [1]})
        self.restart(machine)
        both = [history(machine, A, 1), history(machine, B, 0, "untold")]
        machine.register(1, 2, log_directories=[A, B], directory_histories=both)
        machine.heartbeat(1)
        assert machine.partition("untold").leader == NO_LEADER
        update(machine, 4, admin.UpgradeType.SAFE_DOWNGRADE)
        state = machine.partition("untold")
        assert (state.leader, state.isr, state.directories) == (1, (1,), ())

    def test_a_replica_that_nobody_relies_on_is_not_lost(self, machine: Machine) -> None:
        machine.fence(1)
        machine.create("t", {0: [1, 2]})
        self.restart(machine)
        assert machine.partition("t").directory_of(1) == UNASSIGNED

    def test_a_disk_that_is_replaced_after_that_is_lost(self, machine: Machine) -> None:
        two_topics(machine, 1)
        self.restart(machine, "in-a")
        self.restart(machine, "in-a", number=2, unopened=0)
        state = machine.partition("in-b")
        assert (state.leader, state.isr, state.last_known_elr) == (NO_LEADER, (), (1,))
        assert offline(machine) == ()

    @pytest.mark.parametrize("starts_without", [0, 1, 3])
    @pytest.mark.parametrize(("restored", "leader"), [(0, NO_LEADER), (1, 1)])
    def test_a_disk_that_is_restored_from_a_snapshot_after_that_is_lost(
        self, machine: Machine, starts_without: int, restored: int, leader: int
    ) -> None:
        """Process 1 is the last one that had B open. The disk may know it, or process 0 alone."""
        two_topics(machine, 1)
        both = [history(machine, A, 0, "in-a"), history(machine, B, 0, "in-b")]
        machine.register(
            1, 1, log_directories=[A, B], directory_histories=both, directories_marked=True
        )
        machine.heartbeat(1)
        number = 2 + starts_without
        for each in range(2, number):
            self.restart(machine, "in-a", number=each)
            machine.fence(1)  # its state is written anew
        both = [history(machine, A, number - 1, "in-a"), history(machine, B, restored, "in-b")]
        machine.register(
            1, number, log_directories=[A, B], directory_histories=both, directories_marked=True
        )
        machine.heartbeat(1)
        assert machine.partition("in-b").leader == leader
        assert machine.partition("in-a").leader == 1
        assert machine.image.brokers[1].last_uses == ()

    def test_so_is_one_of_an_earlier_clean_shutdown(self, machine: Machine) -> None:
        """No process could write its id into the directories: the disks were full."""
        for shutdown, leader in (("last", 1), ("earlier", NO_LEADER)):
            number = machine.image.brokers[1].broker_epoch
            machine.create(shutdown, {0: [1]})
            machine.register(1, number, log_directories=[A, B])
            machine.heartbeat(1)
            machine.assign(1, B, machine.reference(shutdown))
            epoch = machine.image.brokers[1].broker_epoch
            machine.register(1, number + 1, log_directories=[A], unopened_directories=1)
            machine.heartbeat(1)
            there = pb.DirectoryHistory(
                directory_id=B,
                previous_broker_epoch=epoch if shutdown == "last" else epoch - 1,
                replicas=[machine.reference(shutdown)],
            )
            machine.register(1, number + 2, log_directories=[A, B], directory_histories=[there])
            machine.heartbeat(1)
            assert machine.partition(shutdown).leader == leader

    def test_so_is_a_replica_whose_directory_nobody_told(self, machine: Machine) -> None:
        machine.create("untold", {0: [1]})
        self.restart(machine)
        assert machine.partition("untold").directory_of(1) == LOST
        self.restart(machine, number=2, unopened=0)
        state = machine.partition("untold")
        assert (state.isr, state.last_known_elr) == ((), (1,))

    def test_an_old_log_in_another_directory_is_not_taken_for_the_replica(
        self, machine: Machine
    ) -> None:
        """The replica was moved to B, which is gone, and the old log was not deleted yet."""
        machine.create("t", {0: [1]})
        machine.assign(1, B, machine.reference("t"))
        self.restart(machine, "t", unopened=0)
        state = machine.partition("t")
        assert (state.leader, state.last_known_elr) == (NO_LEADER, (1,))

    def test_below_level_5_the_broker_is_refused(self, machine: Machine) -> None:
        update(machine, 4, admin.UpgradeType.SAFE_DOWNGRADE)
        error = refusal(lambda: self.restart(machine))
        assert error.code is ErrorCode.UNSUPPORTED_VERSION
        assert "stele features upgrade --metadata 5" in error.message
