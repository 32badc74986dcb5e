"""Random lives of a group coordinator beside clients and a twin that remember everything."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from broker.coordinator.group.machine import GroupMachine
from broker.coordinator.group.records import OffsetKey, decode_key, decode_offset, group_record
from broker.coordinator.group.types import (
    DeleteRequest,
    DescribeAnswer,
    DescribeRequest,
    GroupState,
    JoinAnswer,
    LeavingMember,
    MemberProtocol,
    OffsetToCommit,
    SyncAnswer,
    TopicToFetch,
)
from stele.errors import ErrorCode
from stele.ids import TopicPartition
from tests.support.coordinators import Heard
from tests.support.groups import MARKER, RANGE, GroupBench
from tests.support.strict_steps import Strict

STICKY = MemberProtocol("sticky", RANGE[0].metadata)
PROTOCOLS = (RANGE, (*RANGE, STICKY), (STICKY, *RANGE))
SESSION_MS = 10_000
REBALANCE_MS = 12_000
PARTITION = TopicPartition("t", 0)


@dataclass
class Client:
    """A consumer that does as the answers say, except where a rule has it do otherwise."""

    instance: str | None
    member_id: str = ""
    generation: int = -1
    leader: str = ""
    # The members in the leader's answer: it assigns partitions to them.
    members: tuple[Any, ...] = ()
    skips: bool = False
    assignment: bytes | None = None
    joining: Heard | None = None
    syncing: Heard | None = None

    @property
    def name(self) -> str:
        return self.instance or self.member_id

    def forget(self) -> None:
        self.member_id, self.generation, self.assignment = "", -1, None
        self.members, self.leader = (), ""


Life = tuple[int, int]
"""The number of coordinators so far, and of deletions."""


@dataclass
class Twin:
    """All answers that clients have had."""

    # By life: the greatest answered generation, and the answered members of each generation. A
    # deleted group begins another life, as does a group with another coordinator.
    generation: dict[Life, int] = field(default_factory=lambda: defaultdict(int))
    joined: dict[tuple[Life, int], set[str]] = field(default_factory=lambda: defaultdict(set))
    ever_joined: set[tuple[str, int]] = field(default_factory=set)


class StrictBench(Strict, GroupBench):
    pass


class GroupLife(RuleBasedStateMachine):
    """One group; its clients come and go; the coordinator fails, and its log refuses records."""

    @initialize(delay_ms=st.sampled_from((0, 3_000)), size=st.sampled_from((3, 100)))
    def begin(self, delay_ms: int, size: int) -> None:
        self.bench = StrictBench(
            group_initial_rebalance_delay_ms=delay_ms,
            group_max_size=size,
            offsets_retention_check_interval_ms=30_000,
            offsets_retention_minutes=1,
        )
        self.bench.take(self.bench.machine.loaded(self.bench.now))
        self.max_size = size
        self.clients = [Client(None), Client(None), Client(None), Client("i"), Client("j")]
        self.twin = Twin()
        self.heard: list[Heard] = []
        self.joins: list[Heard] = []  # without an answer, in order
        self.coordinators = 1

    @property
    def life(self) -> Life:
        tombstone = group_record("g", None)
        return self.coordinators, sum(record == tombstone for record in self.bench.log)

    # ------------------------------------------------------------------------ clients

    def keep(self, heard: Heard) -> Heard:
        self.heard.append(heard)
        return heard

    def join_as(self, client: Client, protocols: tuple[MemberProtocol, ...]) -> None:
        client.joining = self.keep(
            self.bench.join(
                member_id=client.member_id,
                instance=client.instance,
                protocols=protocols,
                session_ms=SESSION_MS,
                rebalance_ms=REBALANCE_MS,
            )
        )
        self.joins.append(client.joining)
        self.listen()

    def sync_as(self, client: Client) -> None:
        assignments = {}
        if client.leader == client.member_id and not client.skips:
            for each in client.members:
                name = each.group_instance_id or each.member_id
                assignments[each.member_id] = f"{client.generation}/{name}".encode()
        client.syncing = self.keep(
            self.bench.sync(
                client.member_id,
                client.generation,
                assignments,
                instance=client.instance,
                protocol=None,
            )
        )
        self.listen()

    def listen(self) -> None:
        """Have the clients hear their answers. The twin also hears answers to clients that have
        been restarted since."""
        for heard in [each for each in self.joins if each.told]:
            self.joins.remove(heard)
            if isinstance(heard.told[0], JoinAnswer):
                self.note_join(heard.told[0])
        answers = []
        for client in self.clients:
            if client.joining is not None and client.joining.told:
                (answer,) = client.joining.told
                client.joining = None
                answers.append((client, answer))
        for client, answer in answers:
            self.heard_join(client, answer)
        for client, answer in answers:
            self.check_members(client, answer)
        for client in self.clients:
            if client.syncing is not None and client.syncing.told:
                (answer,) = client.syncing.told
                client.syncing = None
                self.heard_sync(client, answer)

    def note_join(self, answer: JoinAnswer) -> None:
        if answer.error is ErrorCode.NONE:
            twin, life = self.twin, self.life
            assert answer.generation >= twin.generation[life]
            twin.generation[life] = answer.generation
            twin.joined[life, answer.generation].add(answer.member_id)
            twin.ever_joined.add((answer.member_id, answer.generation))

    def heard_join(self, client: Client, answer: JoinAnswer | ErrorCode) -> None:
        if isinstance(answer, ErrorCode):
            return
        match answer.error:
            case ErrorCode.NONE:
                client.member_id, client.generation = answer.member_id, answer.generation
                client.leader, client.members = answer.leader, answer.members
                client.skips = answer.skip_assignment
                client.assignment = None
            case ErrorCode.MEMBER_ID_REQUIRED:
                assert client.instance is None
                client.member_id = answer.member_id
            case ErrorCode.REBALANCE_IN_PROGRESS:
                pass
            case _:
                client.forget()

    def check_members(self, client: Client, answer: JoinAnswer | ErrorCode) -> None:
        """A leader assigns to members that have joined the generation, and to static ones."""
        if isinstance(answer, ErrorCode) or answer.skip_assignment:
            return
        ids = [each.member_id for each in answer.members]
        assert len(set(ids)) == len(ids)
        assert len(ids) <= max(self.max_size, 0) + 2
        joined = self.twin.joined[self.life, answer.generation]
        for each in answer.members:
            assert each.group_instance_id is not None or each.member_id in joined

    def heard_sync(self, client: Client, answer: SyncAnswer | ErrorCode) -> None:
        if isinstance(answer, ErrorCode):
            return
        match answer.error:
            case ErrorCode.NONE:
                whole = f"{client.generation}/{client.name}".encode()
                assert answer.assignment in (whole, b"")
                client.assignment = answer.assignment
            case ErrorCode.REBALANCE_IN_PROGRESS:
                pass
            case _:
                client.forget()

    def let_pass(self, ms: int) -> None:
        """Answers are heard when they are given: the group may begin another life later."""
        self.bench.on_answered = self.listen
        self.bench.pass_time(ms)
        self.bench.on_answered = lambda: None
        self.listen()

    def mend(self) -> None:
        """The log takes records, and they are committed."""
        self.bench.refusal = ErrorCode.NONE
        self.bench.commits_at_once = True
        self.bench.commit()
        self.listen()

    # ------------------------------------------------------------------------ rules

    clients_ = st.integers(0, 4)

    @rule(which=clients_, protocols=st.sampled_from(PROTOCOLS))
    def join(self, which: int, protocols: tuple[MemberProtocol, ...]) -> None:
        self.join_as(self.clients[which], protocols)

    @rule(which=clients_)
    def restart(self, which: int) -> None:
        client = self.clients[which]
        client.forget()
        client.joining = client.syncing = None

    @rule(which=clients_)
    def sync(self, which: int) -> None:
        self.sync_as(self.clients[which])

    @rule(which=clients_, back=st.sampled_from((0, 0, 1)))
    def heartbeat(self, which: int, back: int) -> None:
        client = self.clients[which]
        generation = client.generation - back
        self.keep(self.bench.ask_heartbeat(client.member_id, generation, instance=client.instance))

    @rule(which=st.sets(clients_, min_size=1), by_instance=st.booleans())
    def leave(self, which: set[int], by_instance: bool) -> None:
        clients = [self.clients[each] for each in sorted(which)]
        leaving = (
            LeavingMember("" if by_instance else each.member_id, each.instance) for each in clients
        )
        self.keep(self.bench.leave(*leaving))
        self.listen()

    @rule(which=clients_, offset=st.integers(0, 99), simple=st.booleans())
    def commit_offset(self, which: int, offset: int, simple: bool) -> None:
        client = Client(None) if simple else self.clients[which]
        heard = self.bench.ask_commit(
            OffsetToCommit(*PARTITION, offset),
            member_id=client.member_id,
            generation=client.generation,
            instance=client.instance,
        )
        self.keep(heard)
        for answer in heard.told:
            if not isinstance(answer, ErrorCode) and answer.errors == (ErrorCode.NONE,):
                known = (client.member_id, client.generation) in self.twin.ever_joined
                assert known or client.generation < 0

    @rule(
        which=clients_,
        offset=st.integers(0, 99),
        simple=st.booleans(),
        producer_id=st.integers(1, 2),
    )
    def commit_in_transaction(
        self, which: int, offset: int, simple: bool, producer_id: int
    ) -> None:
        client = Client(None) if simple else self.clients[which]
        heard = self.bench.ask_commit(
            OffsetToCommit(*PARTITION, offset),
            member_id=client.member_id,
            generation=client.generation,
            instance=None if simple else client.instance,
            producer_id=producer_id,
        )
        self.keep(heard)
        for answer in heard.told:
            if not isinstance(answer, ErrorCode) and answer.errors == (ErrorCode.NONE,):
                known = (client.member_id, client.generation) in self.twin.ever_joined
                assert known or client.generation < 0

    @rule(producer_id=st.integers(1, 2), commits=st.booleans())
    def end_transaction(self, producer_id: int, commits: bool) -> None:
        self.bench.end_transaction(producer_id, commits=commits)
        self.listen()

    @rule(ms=st.sampled_from((0, 500, 3_000, 8_000, 15_000, 70_000)))
    def pass_time(self, ms: int) -> None:
        self.let_pass(ms)

    @rule()
    def delete_group(self) -> None:
        self.keep(self.bench.ask(DeleteRequest("g")))

    @rule(refused=st.booleans())
    def change_disk(self, refused: bool) -> None:
        self.bench.refusal = ErrorCode.NOT_ENOUGH_REPLICAS if refused else ErrorCode.NONE

    @rule()
    def lag(self) -> None:
        self.bench.commits_at_once = False

    @rule()
    def catch_up(self) -> None:
        self.bench.commits_at_once = True
        self.bench.commit()
        self.listen()

    @rule()
    def fail_over(self) -> None:
        self.bench.reload()
        self.coordinators += 1
        self.listen()
        assert all(len(each.told) == 1 for each in self.heard)

    @rule()
    def settle(self) -> None:
        """If all clients obey their answers, the group is stable soon, and all are in it."""
        if self.max_size < len(self.clients):
            return
        self.mend()
        for _ in range(12):
            for client in self.clients:
                self.behave(client)
            self.let_pass(3_000)
        state = self.bench.described()
        assert state.state is GroupState.STABLE
        assert {each.member_id for each in state.members} == {
            each.member_id for each in self.clients
        }
        for client in self.clients:
            assert client.generation == self.clients[0].generation
            assert client.assignment == f"{client.generation}/{client.name}".encode()

    def behave(self, client: Client) -> None:
        if client.joining is not None or client.syncing is not None:
            return
        if client.member_id and client.generation >= 0:
            error = self.bench.heartbeat(
                client.member_id, client.generation, instance=client.instance
            )
            if error is ErrorCode.NONE and client.assignment:
                return
            if error is ErrorCode.NONE and client.assignment is None:
                self.sync_as(client)
                return
            if error not in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
                client.forget()
            client.assignment = None
        self.join_as(client, RANGE)
        if client.joining is None and client.generation < 0:
            self.join_as(client, RANGE)

    # ------------------------------------------------------------------------ laws

    @invariant()
    def everybody_is_answered_once_at_most(self) -> None:
        assert all(len(each.told) <= 1 for each in self.heard)

    @invariant()
    def nobody_is_there_twice(self) -> None:
        for state in self.described(self.bench.machine):
            ids = [each.member_id for each in state.members]
            instances = [each.group_instance_id for each in state.members]
            static = [each for each in instances if each is not None]
            assert len(set(ids)) == len(ids)
            assert len(set(static)) == len(static)
            assert bool(ids) or state.state in (
                GroupState.EMPTY,
                GroupState.DEAD,
                GroupState.PREPARING_REBALANCE,
            )

    def described(self, machine: GroupMachine) -> Iterator[DescribeAnswer]:
        """The group as it is, with changes that are not committed yet."""
        (reply,) = machine.take(DescribeRequest("g"), Heard(), self.bench.now).replies
        assert isinstance(reply.answer, DescribeAnswer)
        yield reply.answer

    @invariant()
    def the_log_holds_what_must_last(self) -> None:
        """A group at rest is the same for the next coordinator."""
        (state,) = self.described(self.bench.machine)
        if state.state in (GroupState.STABLE, GroupState.EMPTY):
            (rebuilt,) = self.described(self.bench.rebuilt())
            unrecorded = GroupState.DEAD  # somebody was given an id, or came and went at once
            assert rebuilt == state or (rebuilt.state is unrecorded and not state.members)

    @invariant()
    def offsets_are_those_of_the_committed_log(self) -> None:
        assert self.bench.offset(*PARTITION) == self.logged(self.bench.high_watermark)[0]

    @invariant()
    def offsets_that_may_change_are_not_stable(self) -> None:
        """A reader also waits for an offset whose transaction is over, while its marker is not
        committed."""
        asked = TopicToFetch(PARTITION.topic, (PARTITION.partition,))
        heard = self.bench.ask_offsets(asked, require_stable=True)
        self.keep(heard)
        offset, is_pending = self.logged(len(self.bench.log))
        for answer in heard.told:
            (found,) = answer.offsets
            assert (found.error is ErrorCode.UNSTABLE_OFFSET_COMMIT) == is_pending
            assert is_pending or found.offset == offset

    def logged(self, end: int) -> tuple[int, bool]:
        """What the log up to an offset comes to: the committed offset, and whether a transaction
        may change it."""
        bench = self.bench
        found: tuple[int, int] | None = None  # the offset of the record, and what it says
        pending: dict[int, tuple[int, int]] = {}
        for at, record in enumerate(bench.log[:end]):
            producer_id = bench.producers.get(at)
            if record is MARKER and producer_id is not None:
                ended = pending.pop(producer_id, None)
                if ended is not None and bench.commits[at]:
                    found = max(found or ended, ended)
            elif not isinstance(decode_key(record.key), OffsetKey):
                continue
            elif record.value is None:
                found = None
                pending.clear()
            elif producer_id is not None:
                pending[producer_id] = at, decode_offset(record.value).offset
            else:
                found = at, decode_offset(record.value).offset
        return (-1 if found is None else found[1]), bool(pending)

    def teardown(self) -> None:
        """In the end nobody waits, and a group whose clients are gone goes, too."""
        if not hasattr(self, "heard"):
            return  # it has not begun
        self.mend()
        for producer_id in (1, 2):
            self.bench.end_transaction(producer_id, commits=False)
        self.let_pass(400_000)
        assert self.bench.described().state is GroupState.DEAD
        assert all(len(each.told) == 1 for each in self.heard)


TestGroupLife = GroupLife.TestCase
TestGroupLife.settings = settings(max_examples=40, stateful_step_count=30)
