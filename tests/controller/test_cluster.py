"""Registration, fencing, unfencing and controlled shutdown."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from controller import cluster
from metadata.partitions import NO_LEADER
from stele.errors import ErrorCode
from stele.wire.v1 import controller_pb2 as pb
from stele.wire.v1.metadata_pb2 import Endpoint
from tests.support.controller import CLUSTER_ID, Machine, endpoints, incarnation, refusal

DIRECTORY = b"directory of one"


@pytest.fixture
def machine() -> Machine:
    machine = Machine()
    machine.brokers(1, 2, 3)
    return machine


class TestRegistration:
    def test_the_broker_epoch_is_the_offset_of_the_record(self) -> None:
        machine = Machine()
        offset = machine.next_offset
        assert machine.register(1) == offset
        assert machine.image.brokers[1].fenced

    def test_same_process_again_is_answered_with_its_epoch(self, machine: Machine) -> None:
        epoch = machine.image.brokers[1].broker_epoch
        assert machine.register(1) == epoch
        assert machine.last_records == ()
        assert not machine.image.brokers[1].fenced

    def test_another_process_while_the_first_is_alive_is_refused(self, machine: Machine) -> None:
        error = refusal(lambda: machine.register(1, number=1, alive=True))
        assert error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION

    def test_another_process_after_the_first_was_fenced_is_welcome(self, machine: Machine) -> None:
        before = machine.image.brokers[1].broker_epoch
        machine.fence(1)
        assert machine.register(1, number=1, alive=True) > before

    @pytest.mark.parametrize("late", [0, 2])
    def test_a_request_of_an_earlier_process_that_comes_late_changes_nothing(
        self, machine: Machine, late: int
    ) -> None:
        """Process 2 died before it was registered. Process 3 has found its id on the disk."""
        machine.create("t", {0: [1]})
        found = [
            pb.DirectoryHistory(
                directory_id=DIRECTORY,
                previous_broker_epoch=-1,
                incarnation_ids=[incarnation(1, number) for number in numbers],
                replicas=[machine.reference("t")],
            )
            for numbers in ((0,), (1, 2))
        ]
        directory: dict[str, Any] = {"log_directories": [DIRECTORY], "directories_marked": True}
        machine.register(1, 1, directory_histories=found[:1], **directory)
        machine.register(1, 3, directory_histories=found[1:], **directory)
        before = machine.image.brokers[1], machine.partition("t")
        machine.fence(1)
        error = refusal(lambda: machine.register(1, late, directory_histories=found[:1]))
        assert error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        assert "too late" in error.message
        assert (machine.image.brokers[1], machine.partition("t")) == before
        machine.register(1, 4, directory_histories=found[1:], **directory)

    def test_a_process_that_was_unregistered_never_joins_again(self, machine: Machine) -> None:
        machine.register(1, 1)
        machine.fence(1)
        machine.unregister(1)
        for late in (0, 1):
            error = refusal(functools.partial(machine.register, 1, late))
            assert error.code is ErrorCode.INVALID_REGISTRATION
            assert "was unregistered" in error.message
        assert machine.image.broker(1) is None
        machine.register(1, 2)
        assert machine.image.brokers[1].earlier_incarnations == (incarnation(1), incarnation(1, 1))
        error = refusal(lambda: machine.register(1, 1))
        assert error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        machine.fence(1)
        machine.unregister(1)
        for late in range(3):
            refusal(functools.partial(machine.register, 1, late))
        machine.register(1, 3)

    def test_so_many_earlier_processes_are_remembered(self, machine: Machine) -> None:
        count = cluster.EARLIER_MAX + 3
        for number in range(1, count):
            machine.register(1, number)
        remembered = machine.image.brokers[1].earlier_incarnations
        assert remembered == tuple(
            incarnation(1, each) for each in range(count - 1 - cluster.EARLIER_MAX, count - 1)
        )
        refused = refusal(lambda: machine.register(1, count - 1 - cluster.EARLIER_MAX))
        assert refused.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION

    @pytest.mark.parametrize(
        ("changes", "code"),
        [
            ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
            ({"broker_id": -1}, ErrorCode.INVALID_REGISTRATION),
            ({"incarnation_id": b""}, ErrorCode.INVALID_REGISTRATION),
            ({"endpoints": []}, ErrorCode.INVALID_REGISTRATION),
        ],
    )
    def test_nonsense_is_refused(self, changes: dict[str, object], code: ErrorCode) -> None:
        fields: dict[str, object] = {
            "cluster_id": CLUSTER_ID,
            "broker_id": 1,
            "incarnation_id": incarnation(1),
            "endpoints": endpoints(1),
        }
        request = pb.RegisterBrokerRequest(**{**fields, **changes})  # type: ignore[arg-type]
        machine = Machine()
        error = refusal(
            lambda: machine.do(
                lambda context: cluster.register(context, request, session_alive=False)
            )
        )
        assert error.code is code

    def test_a_heartbeat_of_another_clusters_broker_is_refused_as_that(
        self, machine: Machine
    ) -> None:
        """Not as one of a stale epoch: the broker would give up a registration that is true."""
        request = pb.HeartbeatRequest(
            cluster_id="another",
            broker_id=1,
            broker_epoch=machine.epoch_of(1),
            incarnation_id=b"i" * 16,
        )
        error = refusal(
            lambda: machine.do(
                lambda context: cluster.heartbeat(context, request, shutdown_offset=None)
            )
        )
        assert error.code is ErrorCode.INCONSISTENT_CLUSTER_ID

    @pytest.mark.parametrize(
        "changes", [{"host": ""}, {"port": 0}, {"port": -1}, {"port": 65536}, {"listener": ""}]
    )
    def test_a_broker_that_nobody_finds_is_refused(self, changes: dict[str, object]) -> None:
        fields = {"listener": "PLAINTEXT", "host": "h", "port": 9092, "protocol": "PLAINTEXT"}
        nowhere = Endpoint(**{**fields, **changes})  # type: ignore[arg-type]
        error = refusal(lambda: Machine().register(1, endpoints=[*endpoints(1), nowhere]))
        assert error.code is ErrorCode.INVALID_REGISTRATION
        assert "advertised.listeners" in error.message

    def test_a_new_process_does_not_go_on_with_the_epoch_it_led(self, machine: Machine) -> None:
        machine.create("t", {0: [1, 2, 3]}, min_insync_replicas="2")
        assert machine.partition("t").leader == 1
        machine.register(1, number=1)
        state = machine.partition("t")
        assert (state.leader, state.isr, state.leader_epoch) == (2, (2, 3), 1)

    def test_not_even_where_it_is_alone(self, machine: Machine) -> None:
        machine.create("t", {0: [1]})
        machine.register(1, number=1)
        state = machine.partition("t")
        assert (state.leader, state.isr, state.leader_epoch) == (NO_LEADER, (1,), 1)
        machine.heartbeat(1)
        state = machine.partition("t")
        assert (state.leader, state.leader_epoch) == (1, 2)


class TestLostRecords:
    def test_a_corrupt_replica_leaves_the_isr(self, machine: Machine) -> None:
        machine.create("t", {0: [1, 2, 3]})
        machine.register(1, number=1, corrupt=[machine.reference("t")])
        assert machine.partition("t").isr == (2, 3)

    @pytest.mark.parametrize("how", ["corrupt", "unsynced"])
    def test_the_last_one_is_not_kept(self, machine: Machine, how: str) -> None:
        machine.create("t", {0: [1]})
        report: dict[str, Any] = {how: [machine.reference("t")]}
        machine.register(1, number=1, **report)
        state = machine.partition("t")
        assert (state.isr, state.leader, state.last_known_elr) == ((), NO_LEADER, (1,))
        machine.heartbeat(1)
        assert machine.partition("t").leader == NO_LEADER

    def test_it_is_no_longer_eligible(self, machine: Machine) -> None:
        machine.create("t", {0: [1, 2]}, min_insync_replicas="2")
        machine.fence(2)
        assert machine.partition("t").elr == (2,)
        machine.register(2, number=1, unsynced=[machine.reference("t")])
        state = machine.partition("t")
        assert (state.elr, state.last_known_elr) == ((), (2,))
        machine.fence(1)
        machine.heartbeat(2)
        assert machine.partition("t").leader == NO_LEADER
        machine.heartbeat(1)
        assert machine.partition("t").leader == 1

    def test_an_eligible_one_takes_over_from_the_lossy_last(self, machine: Machine) -> None:
        machine.create("t", {0: [1, 2]}, min_insync_replicas="2")
        machine.fence(2)
        machine.heartbeat(2)
        assert (machine.partition("t").isr, machine.partition("t").elr) == ((1,), (2,))
        machine.register(1, number=1, corrupt=[machine.reference("t")])
        state = machine.partition("t")
        assert (state.leader, state.isr, state.elr) == (2, (2,), ())
        assert state.unclean_elections == 0

    @pytest.mark.parametrize("epoch", ["last", "earlier", "none"])
    def test_a_disk_of_an_earlier_clean_shutdown_has_lost_records(
        self, machine: Machine, epoch: str
    ) -> None:
        """KIP-966. A killed process leaves no epoch, and has lost nothing that was acknowledged."""
        machine.create("t", {0: [1]})
        earlier = machine.epoch_of(1)
        machine.register(1, number=1, previous_broker_epoch=earlier)
        assert machine.partition("t").isr == (1,)
        told = {"last": machine.epoch_of(1), "earlier": earlier, "none": -1}[epoch]
        machine.register(1, number=2, previous_broker_epoch=told)
        state = machine.partition("t")
        lost = epoch == "earlier"
        assert (state.isr, state.last_known_elr) == (((), (1,)) if lost else ((1,), ()))

    @pytest.mark.parametrize(
        ("told", "lost"),
        [
            ([1], False),
            ([0], True),
            ([0, 1], False),
            ([1, 7], False),
            ([], True),
        ],
    )
    def test_a_disk_that_does_not_know_the_last_process_has_lost_records(
        self, machine: Machine, told: list[int], lost: bool
    ) -> None:
        def history(*numbers: int) -> dict[str, Any]:
            known = pb.DirectoryHistory(
                directory_id=b"d" * 16,
                previous_broker_epoch=-1,
                incarnation_ids=[incarnation(1, number) for number in numbers],
            )
            return {
                "log_directories": [b"d" * 16],
                "directory_histories": [known],
                "directories_marked": True,
            }

        machine.register(1, number=1, **history(0))
        machine.heartbeat(1)
        machine.create("t", {0: [1, 2]})
        machine.create("alone", {0: [1]})
        machine.fence(2)
        machine.register(1, number=2, **history(*told))
        assert machine.partition("t").isr == (() if lost else (1,))
        assert machine.partition("alone").last_known_elr == ((1,) if lost else ())

    @pytest.mark.parametrize("why", ["not marked", "the same process", "a new directory"])
    def test_a_directory_that_cannot_know_the_last_process_is_believed(
        self, machine: Machine, why: str
    ) -> None:
        """The process before was of an older version, or found the disk full."""
        here = b"d" * 16
        known = pb.DirectoryHistory(directory_id=here, previous_broker_epoch=-1)
        machine.register(
            1,
            number=1,
            log_directories=[b"e" * 16 if why == "a new directory" else here],
            directories_marked=why != "not marked",
        )
        machine.heartbeat(1)
        machine.create("t", {0: [1]})
        machine.register(
            1,
            number=1 if why == "the same process" else 2,
            log_directories=[here, b"e" * 16] if why == "a new directory" else [here],
            directory_histories=[
                known,
                pb.DirectoryHistory(directory_id=b"e" * 16, incarnation_ids=[incarnation(1, 1)]),
            ][: 2 if why == "a new directory" else 1],
        )
        assert machine.partition("t").last_known_elr == ()

    @pytest.mark.parametrize("why", ["gone", "older"])
    @pytest.mark.parametrize("unclean", ["false", "true"])
    def test_a_lost_directory_costs_the_replicas_in_it(
        self, machine: Machine, why: str, unclean: str
    ) -> None:
        a, b = b"a" * 16, b"b" * 16

        def history(directory: bytes, number: int, *topics: str) -> pb.DirectoryHistory:
            return pb.DirectoryHistory(
                directory_id=directory,
                previous_broker_epoch=-1,
                incarnation_ids=[incarnation(1, number)],
                replicas=[machine.reference(topic) for topic in topics],
            )

        machine.register(1, 1, log_directories=[a, b], directories_marked=True)
        machine.heartbeat(1)
        for topic in ("in-a", "in-b", "in-none"):
            machine.create(
                topic,
                {0: [1, 2]},
                min_insync_replicas="1",
                unclean_leader_election_enable=unclean,
            )
        machine.fence(2)  # 1 goes on alone
        histories = [history(a, 1, "in-a")]
        if why == "older":
            histories.append(history(b, 0, "in-b"))
        directories = [each.directory_id for each in histories]
        machine.register(1, 2, log_directories=directories, directory_histories=histories)
        machine.heartbeat(1)
        state = machine.partition("in-a")
        assert (state.isr, state.leader, state.unclean_elections) == ((1,), 1, 0)
        for lost in ("in-b", "in-none"):
            state = machine.partition(lost)
            assert state.unclean_elections == (unclean == "true"), "told, or not elected"
            assert state.isr == ((1,) if unclean == "true" else ())

    def test_a_directory_that_nobody_knew_holds_nothing(self, machine: Machine) -> None:
        """Its logs may be of any time."""
        machine.register(1, 1, log_directories=[b"a" * 16])
        machine.heartbeat(1)
        machine.create("t", {0: [1]})
        other = pb.DirectoryHistory(directory_id=b"b" * 16, replicas=[machine.reference("t")])
        machine.register(1, 2, log_directories=[b"b" * 16], directory_histories=[other])
        assert machine.partition("t").last_known_elr == (1,)

    def test_a_running_leader_that_finds_corruption_gives_up(self, machine: Machine) -> None:
        machine.create("t", {0: [1, 2]})
        machine.register(1, corrupt=[machine.reference("t")])
        assert machine.partition("t").leader == 2
        assert not machine.image.brokers[1].fenced

    @pytest.mark.parametrize("member", [True, False])
    def test_what_a_corrupt_replica_fetched_counts_no_more(
        self, machine: Machine, member: bool
    ) -> None:
        """A fetch of the old log may reach the leader after the log was begun again."""
        machine.create("t", {0: [1, 2, 3]})
        if not member:
            machine.fence(3)
            machine.heartbeat(3)
        before = machine.partition("t")
        assert (3 in before.isr) is member
        machine.register(3, corrupt=[machine.reference("t")])
        state = machine.partition("t")
        assert (state.leader, state.isr) == (1, (1, 2))
        assert state.leader_epoch == before.leader_epoch + 1

    def test_a_directory_that_is_gone_may_have_held_anything(self) -> None:
        machine = Machine()
        machine.register(1, log_directories=[b"a", b"b"])
        machine.heartbeat(1)
        machine.create("t", {0: [1]})
        machine.register(1, number=1, log_directories=[b"b", b"a", b"c"])
        assert machine.partition("t").isr == (1,)
        machine.register(1, number=2, log_directories=[b"a", b"c"])
        assert machine.partition("t").isr == ()


class TestFencing:
    def test_leaders_move_and_the_isr_shrinks(self, machine: Machine) -> None:
        machine.create("t", {0: [1, 2, 3], 1: [2, 1, 3]})
        assert machine.fence(1)
        assert [machine.partition("t", n).leader for n in (0, 1)] == [2, 2]
        assert [machine.partition("t", n).leader_epoch for n in (0, 1)] == [1, 0]
        assert machine.partition("t", 1).isr == (2, 3)

    def test_the_last_one_stays_in_the_isr_and_leads_again(self, machine: Machine) -> None:
        machine.create("t", {0: [1, 2]})
        for broker_id in (1, 2):
            machine.fence(broker_id)
        assert (machine.partition("t").leader, machine.partition("t").isr) == (NO_LEADER, (2,))
        machine.heartbeat(1)
        assert machine.partition("t").leader == NO_LEADER
        machine.heartbeat(2)
        assert machine.partition("t").leader == 2

    def test_fencing_what_is_fenced_or_registered_anew_does_nothing(self, machine: Machine) -> None:
        old_epoch = machine.image.brokers[1].broker_epoch
        machine.fence(1)
        assert not machine.fence(1)
        machine.register(1, number=1)
        machine.heartbeat(1)
        assert not machine.do(lambda context: cluster.fence(context, 1, old_epoch))
        assert not machine.image.brokers[1].fenced


class TestHeartbeat:
    def test_unfenced_only_once_it_has_seen_its_own_registration(self) -> None:
        machine = Machine()
        epoch = machine.register(1)
        assert machine.heartbeat(1, offset=epoch - 1) == cluster.BrokerStanding(True, False, False)
        assert machine.heartbeat(1, offset=epoch, want_fence=True).fenced
        assert machine.heartbeat(1, offset=epoch) == cluster.BrokerStanding(False, True, False)

    def test_a_broker_may_ask_to_be_fenced(self, machine: Machine) -> None:
        assert machine.heartbeat(1, want_fence=True).fenced
        assert machine.image.brokers[1].fenced

    @pytest.mark.parametrize(
        ("changes", "code"),
        [
            ({"broker_id": 9}, ErrorCode.BROKER_ID_NOT_REGISTERED),
            ({"broker_epoch": 0}, ErrorCode.STALE_BROKER_EPOCH),
            ({"incarnation_id": b"other"}, ErrorCode.STALE_BROKER_EPOCH),
        ],
    )
    def test_of_another_registration(
        self, machine: Machine, changes: dict[str, object], code: ErrorCode
    ) -> None:
        fields: dict[str, object] = {
            "broker_id": 1,
            "broker_epoch": machine.epoch_of(1),
            "incarnation_id": incarnation(1),
        }
        request = pb.HeartbeatRequest(**{**fields, **changes})  # type: ignore[arg-type]
        error = refusal(
            lambda: machine.do(
                lambda context: cluster.heartbeat(context, request, shutdown_offset=None)
            )
        )
        assert error.code is code


class TestControlledShutdown:
    def test_leaders_move_first_then_it_may_go(self, machine: Machine) -> None:
        machine.create("t", {0: [1, 2, 3]})
        first = machine.heartbeat(1, want_shutdown=True)
        assert not first.may_shut_down
        assert not first.fenced
        assert machine.partition("t").leader == 2
        assert machine.partition("t").isr == (2, 3)
        moved_at = machine.image.offset
        early = machine.heartbeat(
            1, want_shutdown=True, offset=moved_at - 1, shutdown_offset=moved_at
        )
        assert not early.may_shut_down
        last = machine.heartbeat(1, want_shutdown=True, shutdown_offset=moved_at)
        assert last == cluster.BrokerStanding(True, True, True)
        assert machine.image.brokers[1].fenced

    def test_it_joins_no_isr_meanwhile(self, machine: Machine) -> None:
        machine.create("t", {0: [1, 2, 3]})
        machine.heartbeat(1, want_shutdown=True)
        answer = machine.alter("t", 1, 2, 3)
        assert answer.error == ErrorCode.INELIGIBLE_REPLICA

    def test_a_fenced_broker_may_go_at_once(self, machine: Machine) -> None:
        machine.fence(1)
        assert machine.heartbeat(1, want_shutdown=True).may_shut_down

    def test_the_next_process_starts_afresh(self, machine: Machine) -> None:
        machine.heartbeat(1, want_shutdown=True)
        machine.register(1, number=1)
        machine.heartbeat(1)
        assert machine.image.brokers[1].active


def on(*listeners: str) -> list[Endpoint]:
    return [
        Endpoint(listener=listener, host="h", port=number, protocol=protocol)
        for number, listener in enumerate(listeners, start=9092)
        for protocol in ("PLAINTEXT", "GRPC")
    ]


class TestInterBrokerListener:
    def test_its_own_must_be_among_its_endpoints(self) -> None:
        machine = Machine()
        error = refusal(lambda: machine.register(1, inter_broker_listener="INTERNAL"))
        assert error.code is ErrorCode.INVALID_REGISTRATION
        assert "no listener INTERNAL" in error.message
        only_kafka = [Endpoint(listener="A", host="h", port=1, protocol="PLAINTEXT")]
        error = refusal(
            lambda: machine.register(1, endpoints=only_kafka, inter_broker_listener="A")
        )
        assert "add it to its grpc.listeners" in error.message

    def test_the_one_of_another_broker(self) -> None:
        machine = Machine()
        machine.register(1, endpoints=on("A", "B"), inter_broker_listener="A")
        machine.heartbeat(1)
        error = refusal(lambda: machine.register(2, endpoints=on("B"), inter_broker_listener="B"))
        assert error.code is ErrorCode.INVALID_REGISTRATION
        assert "the inter.broker.listener.name of broker 1" in error.message

    def test_another_broker_does_not_have_its_own(self) -> None:
        machine = Machine()
        machine.register(1, endpoints=on("A"), inter_broker_listener="A")
        machine.heartbeat(1)
        error = refusal(
            lambda: machine.register(2, endpoints=on("A", "B"), inter_broker_listener="B")
        )
        assert "which brokers 1 do not have" in error.message

    def test_the_controllers(self) -> None:
        machine = Machine({"inter.broker.listener.name": "INTERNAL"})
        error = refusal(lambda: machine.register(1))
        assert "the controllers' inter.broker.listener.name" in error.message
        machine.register(1, endpoints=on("INTERNAL"))

    def test_two_that_register_at_the_same_time(self) -> None:
        machine = Machine()
        machine.register(1, endpoints=on("A"), inter_broker_listener="A")
        machine.register(2, endpoints=on("B"), inter_broker_listener="B")
        machine.heartbeat(1)
        error = refusal(lambda: machine.heartbeat(2))
        assert error.code is ErrorCode.INVALID_REGISTRATION
        assert machine.image.brokers[2].fenced

    def test_a_cluster_that_is_stopped_may_come_back_with_another(self) -> None:
        machine = Machine()
        for broker_id in (1, 2):
            machine.register(broker_id, endpoints=on("A"), inter_broker_listener="A")
            machine.heartbeat(broker_id)
        for broker_id in (1, 2):
            machine.fence(broker_id)
        for broker_id in (1, 2):
            machine.register(broker_id, 1, endpoints=on("B"), inter_broker_listener="B")
            machine.heartbeat(broker_id)
        assert not any(each.fenced for each in machine.image.sorted_brokers())

    def test_it_is_changed_broker_by_broker(self) -> None:
        machine = Machine()
        number = 0
        steps = [(on("A"), "A"), (on("A", "B"), "A"), (on("A", "B"), "B"), (on("B"), "B")]
        for listeners, own in steps:
            for broker_id in (1, 2, 3):
                number += 1
                machine.register(broker_id, number, endpoints=listeners, inter_broker_listener=own)
                machine.heartbeat(broker_id)
        assert not any(each.fenced for each in machine.image.sorted_brokers())


class TestRoom:
    @pytest.fixture
    def three(self) -> Machine:
        machine = Machine()
        for broker_id in (1, 2, 3):
            machine.register(broker_id)
            machine.heartbeat(broker_id)
        machine.create("t", {0: [1, 2, 3]}, min_insync_replicas="2")
        return machine

    def test_it_leads_on_until_it_yields(self, three: Machine) -> None:
        three.heartbeat(1, out_of_room=True)
        assert three.partition("t").leader == 1
        three.heartbeat(1, out_of_room=True, yields=True)
        assert (three.partition("t").leader, three.partition("t").isr) == (2, (2, 3))
        three.heartbeat(1, out_of_room=True, yields=True)
        assert three.last_records == ()

    def test_it_is_not_elected(self, three: Machine) -> None:
        three.heartbeat(2, out_of_room=True)
        three.fence(1)
        assert three.partition("t").leader == 3

    def test_whoever_has_room_first_leads_again(self, three: Machine) -> None:
        for broker_id in (2, 3, 1):
            three.heartbeat(broker_id, out_of_room=True)
        for broker_id in (2, 3, 1):
            three.heartbeat(broker_id, out_of_room=True, yields=True)
        epoch = three.partition("t").leader_epoch
        assert (three.partition("t").leader, three.partition("t").isr) == (1, (1, 2, 3))
        three.heartbeat(3)
        state = three.partition("t")
        assert (state.leader, state.isr, state.leader_epoch) == (3, (1, 2, 3), epoch + 1)

    def test_it_joins_no_isr(self, three: Machine) -> None:
        three.heartbeat(1, out_of_room=True, yields=True)
        answer = three.alter("t", 1, 2, 3)
        assert answer.error == ErrorCode.INELIGIBLE_REPLICA
        three.heartbeat(1)
        assert three.alter("t", 1, 2, 3).isr == [1, 2, 3]

    def test_a_new_process_begins_with_what_it_tells(self, three: Machine) -> None:
        three.heartbeat(1, out_of_room=True)
        three.register(1, 1)
        assert three.image.has_room(1)
        three.heartbeat(1, out_of_room=True)
        assert (three.image.has_room(1), three.image.is_active(1)) == (False, True)
