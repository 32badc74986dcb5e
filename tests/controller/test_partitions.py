"""Elections and eligible leader replicas."""

from __future__ import annotations

import pytest

from controller import configs, elections
from controller.partitions import Election, Rules, change, prefers_another
from metadata.partitions import NO_LEADER, RECOVERED, RECOVERING, PartitionState, changed_state
from stele.errors import ErrorCode
from stele.ids import PartitionId
from stele.wire.v1 import admin_pb2 as admin
from tests.support.controller import Machine

KEY = PartitionId(b"0123456789abcdef", 0)


def after(state: PartitionState, active: set[int], min_isr: int = 1, **how: object) -> object:
    rules = Rules(active.__contains__, min_isr, bool(how.pop("unclean_allowed", False)))
    record = change(KEY, state, rules, **how)  # type: ignore[arg-type]
    return None if record is None else changed_state(state, record.partition_change)


def isr_of(*replicas: int, leader: int = 1, elr: tuple[int, ...] = ()) -> PartitionState:
    return PartitionState(replicas=(1, 2, 3), isr=replicas, leader=leader, elr=elr)


@pytest.mark.parametrize(
    ("state", "active", "min_isr", "how", "leader", "isr", "elr"),
    [
        # Clean: the next live replica of the ISR, in order of preference.
        (isr_of(1, 2, 3), {2, 3}, 1, {"leaving": frozenset({1})}, 2, (2, 3), ()),
        (isr_of(1, 3), {2, 3}, 1, {"leaving": frozenset({1})}, 3, (3,), ()),
        # Nobody else: the last one stays, without leading.
        (isr_of(1), {2, 3}, 1, {"leaving": frozenset({1})}, NO_LEADER, (1,), ()),
        # A replica that leaves below min.insync.replicas stays eligible; above it does not.
        (isr_of(1, 2, 3), {1, 2, 3}, 2, {"isr": [1, 2]}, 1, (1, 2), ()),
        (isr_of(1, 2), {1, 2, 3}, 2, {"isr": [1]}, 1, (1,), (2,)),
        (isr_of(1, 2, 3), {1, 2, 3}, 2, {"isr": [1]}, 1, (1,), (2, 3)),
        (isr_of(1, elr=(2,)), {1, 2, 3}, 2, {"isr": [1, 3]}, 1, (1, 3), ()),
        # min.insync.replicas above the number of replicas means all of them.
        (isr_of(1, 2, 3), {1, 2, 3}, 9, {"isr": [1, 2]}, 1, (1, 2), (3,)),
        # An eligible replica leads, so nobody has to wait for the last member of the ISR.
        (isr_of(1, elr=(3,)), {2, 3}, 2, {"leaving": frozenset({1})}, 3, (3,), (1,)),
        (isr_of(1, leader=-1, elr=(3,)), {3}, 2, {}, 3, (3,), (1,)),
        # Lost records: out of both, even as the last one.
        (isr_of(1), {1, 2, 3}, 1, {"lossy": frozenset({1})}, NO_LEADER, (), ()),
        (isr_of(1, elr=(2,)), {1, 2}, 2, {"lossy": frozenset({2})}, 1, (1,), ()),
        # Preferred: moves, but only into the ISR.
        (isr_of(1, 2, leader=2), {1, 2}, 1, {"election": Election.PREFERRED}, 1, (1, 2), ()),
    ],
)
def test_change(
    state: PartitionState,
    active: set[int],
    min_isr: int,
    how: dict[str, object],
    leader: int,
    isr: tuple[int, ...],
    elr: tuple[int, ...],
) -> None:
    new = after(state, active, min_isr, **how)
    assert isinstance(new, PartitionState)
    assert (new.leader, new.isr, new.elr) == (leader, isr, elr)
    assert new.leader_epoch == state.leader_epoch + (leader != state.leader or "lossy" in how)
    assert new.partition_epoch == state.partition_epoch + 1
    assert new.unclean_elections == 0


@pytest.mark.parametrize(("active", "leader"), [({1, 3}, 3), ({1, 2, 3}, 2), ({1}, 1)])
def test_a_replica_whose_disk_is_lost_is_the_last_choice_of_an_unclean_election(
    active: set[int], leader: int
) -> None:
    """Its broker is alive, and works with its other disks."""
    state = after(isr_of(1), active, lossy=frozenset({1}), unclean_allowed=True)
    assert isinstance(state, PartitionState)
    assert (state.leader, state.isr, state.unclean_elections) == (leader, (leader,), 1)


@pytest.mark.parametrize(
    ("state", "active", "how"),
    [
        (isr_of(1, 2, 3), {1, 2, 3}, {}),
        (isr_of(1, leader=-1), {2, 3}, {}),
        (isr_of(2, 3, leader=2), {1, 2, 3}, {"election": Election.PREFERRED}),
        (isr_of(1, 2), {1, 2}, {"election": Election.UNCLEAN}),
        (isr_of(1, 2), {1, 2}, {"unclean_allowed": True}),
    ],
)
def test_no_change(state: PartitionState, active: set[int], how: dict[str, object]) -> None:
    assert after(state, active, 1, **how) is None


class TestUnclean:
    @pytest.mark.parametrize("how", [{"unclean_allowed": True}, {"election": Election.UNCLEAN}])
    def test_it_is_recorded(self, how: dict[str, object]) -> None:
        new = after(isr_of(1, leader=-1), {3}, 2, **how)
        assert isinstance(new, PartitionState)
        assert (new.leader, new.isr, new.elr, new.unclean_elections) == (3, (3,), (), 1)
        assert new.leader_recovery_state == RECOVERING

    def test_not_while_an_eligible_replica_is_there(self) -> None:
        new = after(isr_of(1, leader=-1, elr=(3,)), {2, 3}, 2, unclean_allowed=True)
        assert isinstance(new, PartitionState)
        assert (new.leader, new.unclean_elections) == (3, 0)

    def test_a_preferred_election_is_never_unclean(self) -> None:
        """The preferred replica is the last one of the ISR, and gone."""
        state = isr_of(1, leader=-1)
        assert after(state, {3}, 2, unclean_allowed=True, election=Election.PREFERRED) is None

    def test_those_last_known_to_be_eligible_come_first(self) -> None:
        state = PartitionState(replicas=(1, 2, 3), isr=(), leader=-1, last_known_elr=(3,))
        new = after(state, {1, 2, 3}, 1, unclean_allowed=True)
        assert isinstance(new, PartitionState)
        assert (new.leader, new.last_known_elr) == (3, ())

    def test_the_topic_decides(self) -> None:
        for allowed, leader in (("false", NO_LEADER), ("true", 2)):
            machine = Machine()
            machine.brokers(1, 2)
            machine.create("t", {0: [1, 2]}, unclean_leader_election_enable=allowed)
            machine.fence(2)
            machine.heartbeat(2)
            assert machine.partition("t").isr == (1,)
            machine.fence(1)
            assert machine.partition("t").leader == leader

    def test_allowing_it_elects_at_once(self) -> None:
        machine = Machine()
        machine.brokers(1, 2)
        machine.create("t", {0: [1, 2]})
        machine.fence(2)
        machine.heartbeat(2)
        machine.fence(1)
        assert machine.partition("t").leader == NO_LEADER
        _alter_config(machine, "unclean.leader.election.enable", "true")
        assert machine.partition("t").leader == 2
        assert machine.partition("t").unclean_elections == 1

    def test_the_leader_declares_it_recovered(self) -> None:
        machine = Machine()
        machine.brokers(1, 2)
        machine.create("t", {0: [1, 2]}, unclean_leader_election_enable="true")
        machine.fence(2)
        machine.heartbeat(2)
        machine.fence(1)
        assert machine.partition("t").leader_recovery_state == RECOVERING
        answer = machine.alter("t", 2, leader_recovery_state=RECOVERED)
        assert answer.error == ErrorCode.NONE
        assert machine.partition("t").leader_recovery_state == RECOVERED


def _alter_config(machine: Machine, name: str, value: str) -> None:
    change_ = admin.AlterConfigsRequest.Change(name=name, value=value)
    request = admin.AlterConfigsRequest(
        resources=[
            admin.AlterConfigsRequest.Resource(
                resource=admin.ConfigResource(type=2, name="t"), changes=[change_]
            )
        ]
    )
    answer = machine.do(lambda context: configs.alter_configs(context, request))
    assert answer.resources[0].error == ErrorCode.NONE, answer


def test_fewer_required_replicas_end_eligibility_with_the_same_decision() -> None:
    machine = Machine()
    machine.brokers(1, 2)
    machine.create("t", {0: [1, 2]}, min_insync_replicas="2")
    machine.fence(2)
    assert machine.partition("t").elr == (2,)
    _alter_config(machine, "min.insync.replicas", "1")
    assert machine.partition("t").elr == ()


class TestElectLeaders:
    def elect(self, machine: Machine, *numbers: int, unclean: bool = False) -> dict[int, int]:
        request = admin.ElectLeadersRequest(
            partitions=[admin.TopicPartitionName(topic="t", partition=n) for n in numbers],
            unclean=unclean,
        )
        answer = machine.do(lambda context: elections.elect_leaders(context, request))
        return {partition.partition: partition.error for partition in answer.partitions}

    @pytest.fixture
    def machine(self) -> Machine:
        machine = Machine()
        machine.brokers(1, 2)
        machine.create("t", {0: [1, 2], 1: [2, 1]})
        machine.fence(1)
        machine.heartbeat(1)
        return machine

    def test_preferred(self, machine: Machine) -> None:
        assert self.elect(machine, 0, 1, 7) == {
            0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            1: ErrorCode.ELECTION_NOT_NEEDED,
            7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        machine.alter("t", 1, 2, number=0)
        assert self.elect(machine) == {0: ErrorCode.NONE}
        assert machine.partition("t", 0).leader == 1

    def test_unclean(self, machine: Machine) -> None:
        machine.fence(2)
        machine.fence(1)
        assert self.elect(machine, 0, unclean=True) == {0: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
        machine.heartbeat(1)
        assert machine.partition("t", 0).leader == NO_LEADER
        assert self.elect(machine, 0, unclean=True) == {0: ErrorCode.NONE}
        assert machine.partition("t", 0).leader == 1
        assert machine.partition("t", 0).unclean_elections == 1

    def test_rebalance_returns_leadership_when_too_much_is_elsewhere(
        self, machine: Machine
    ) -> None:
        machine.alter("t", 1, 2, number=0)
        assert machine.do(lambda c: elections.rebalance(c, percentage=100)) == 0
        assert machine.do(lambda c: elections.rebalance(c, percentage=10)) == 1
        assert machine.partition("t", 0).leader == 1
        assert machine.do(lambda c: elections.rebalance(c, percentage=10)) == 0


def test_rebalance_leaves_alone_what_the_preferred_replica_leads() -> None:
    """Its ISR may have a member without room, which stays until it yields."""
    machine = Machine()
    machine.brokers(1, 2, 3)
    machine.create("elsewhere", {0: [1, 3]})
    machine.fence(1)
    machine.heartbeat(1)
    machine.alter("elsewhere", 1, 3)
    machine.create("here", {0: [1, 2]})
    machine.heartbeat(2, out_of_room=True)
    assert machine.partition("here").isr == (1, 2)
    assert machine.do(lambda c: elections.rebalance(c, percentage=10)) == 1
    assert (machine.partition("elsewhere").leader, machine.partition("here").leader) == (1, 1)
    assert machine.partition("here").isr == (1, 2)


def test_rebalance_leaves_alone_what_the_preferred_replica_may_not_lead() -> None:
    """Also under rules by which another decision would let it lead."""
    machine = Machine()
    machine.brokers(1, 2)
    machine.create("t", {0: [1, 2]})
    machine.fence(1)
    machine.fence(2)
    machine.heartbeat(1)
    machine.static["unclean.leader.election.enable"] = "true"
    assert machine.do(lambda c: elections.rebalance(c, percentage=10)) == 0
    assert machine.do(elections.elect_leaderless) == 1


def test_rebalance_makes_no_unclean_leader() -> None:
    machine = Machine()
    machine.brokers(1, 2)
    machine.create("t", {0: [1, 2]})
    machine.fence(2)
    machine.heartbeat(2)
    machine.fence(1)
    machine.static["unclean.leader.election.enable"] = "true"
    assert (machine.partition("t").isr, machine.partition("t").leader) == ((1,), NO_LEADER)
    assert machine.do(lambda c: elections.rebalance(c, percentage=10)) == 0
    assert machine.partition("t").leader == NO_LEADER


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (isr_of(1, 2), False),
        (isr_of(1, 2, leader=2), True),
        (isr_of(2, 3, leader=2), False),
        (isr_of(2, 3, leader=NO_LEADER), False),
    ],
)
def test_another_is_preferred_only_if_it_is_in_the_isr(
    state: PartitionState, expected: bool
) -> None:
    assert prefers_another(state) is expected


@pytest.mark.parametrize(
    ("state", "full", "min_isr", "leader", "isr"),
    [
        # Others with room lead, and writes do not wait for the one without.
        (isr_of(1, 2, 3), {1}, 2, 2, (2, 3)),
        (isr_of(1, 2, 3), {2}, 2, 1, (1, 3)),
        # Too few have room: the ISR keeps all complete replicas, and one with room leads.
        (isr_of(1, 2, 3), {1, 2}, 2, 3, (1, 2, 3)),
        (isr_of(1, 2), {1}, 2, 2, (1, 2)),
        # Nobody has room: leadership stays where it is.
        (isr_of(1, 2, 3, leader=2), {1, 2, 3}, 2, 2, (1, 2, 3)),
        (isr_of(1), {1}, 1, 1, (1,)),
        (isr_of(1, 2, 3, leader=NO_LEADER), {1, 2, 3}, 1, 1, (1, 2, 3)),
    ],
)
@pytest.mark.parametrize("election", [Election.CLEAN, Election.PREFERRED])
def test_a_broker_without_room(
    state: PartitionState,
    full: set[int],
    min_isr: int,
    leader: int,
    isr: tuple[int, ...],
    election: Election,
) -> None:
    rules = Rules({1, 2, 3}.__contains__, min_isr, False, lambda broker: broker not in full)
    record = change(KEY, state, rules, election=election)
    changed = state if record is None else changed_state(state, record.partition_change)
    assert (changed.leader, changed.isr) == (leader, isr)
