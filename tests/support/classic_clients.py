"""Clients of the classic protocol that obey their answers, also in a group of consumers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from broker.coordinator.group.types import (
    JoinAnswer,
    LeavingMember,
    MemberProtocol,
    SyncAnswer,
)
from stele.errors import ErrorCode
from stele.ids import TopicPartition
from stele.wire.consumer_protocol import Assignment, Subscription
from tests.support.consumer_protocol import ConsumerBench, Pairs
from tests.support.coordinators import Heard

SESSION_MS = 10_000
REBALANCE_MS = 30_000


@dataclass
class ClassicClient:
    """An eager one gives everything up before it joins. Another one keeps what it owns until an
    assignment takes it away (KIP-429); it assigns a partition only when nobody owns it."""

    bench: ConsumerBench
    instance_id: str | None = None
    topics: tuple[str, ...] = ("t",)
    is_eager: bool = True
    member_id: str = ""
    generation: int = -1
    owned: Pairs = frozenset()
    joining: Heard | None = None
    syncing: Heard | None = None
    has_to_join: bool = True
    errors: list[ErrorCode] = field(default_factory=list)
    """The errors that it got, except the request to join again."""

    @property
    def name(self) -> str:
        return "range" if self.is_eager else "cooperative-sticky"

    @property
    def is_member(self) -> bool:
        return self.generation >= 0

    def act(self) -> None:
        """Do the next thing: hear an answer, join, fetch the assignment, or send a heartbeat."""
        if self.joining is not None:
            self._hear_join()
        elif self.syncing is not None:
            self._hear_sync()
        elif self.has_to_join:
            self.join()
        else:
            self.beat()

    # ------------------------------------------------------------------------- requests

    def join(self) -> None:
        if self.is_eager:
            self.owned = frozenset()
        self.has_to_join = False
        self.syncing = None
        protocols = (MemberProtocol(self.name, self._subscription()),)
        self.joining = self.bench.join(
            member_id=self.member_id,
            instance=self.instance_id,
            protocols=protocols,
            session_ms=SESSION_MS,
            rebalance_ms=REBALANCE_MS,
        )
        self._hear_join()

    def _subscription(self) -> bytes:
        return Subscription(self.topics, owned=self._named(self.owned)).encode()

    def _named(self, pairs: Pairs) -> tuple[TopicPartition, ...]:
        topics = self.bench.cluster.topics
        there = [(topics[each].name, n) for each, n in sorted(pairs) if each in topics]
        return tuple(TopicPartition(*each) for each in there)

    def _hear_join(self) -> None:
        if self.joining is None or not self.joining.told:
            return
        (answer,), self.joining = self.joining.told, None
        if not isinstance(answer, JoinAnswer):
            self.has_to_join = True
        elif answer.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id, self.has_to_join = answer.member_id, True
        elif answer.error is ErrorCode.NONE:
            self.member_id, self.generation = answer.member_id, answer.generation
            self._sync(self._assigned(answer))
        else:
            self._hear_error(answer.error)

    def _assigned(self, answer: JoinAnswer) -> dict[str, bytes]:
        if answer.leader != self.member_id:
            return {}
        told = {each.member_id: Subscription.decode(each.metadata) for each in answer.members}
        owners = {each: name for name, known in told.items() for each in known.owned}
        shares: dict[str, list[TopicPartition]] = {each: [] for each in told}
        ids = sorted(told)
        for name, count in sorted(self.bench.cluster.counts.items()):
            readers = [each for each in ids if name in told[each].topics]
            for number in range(count if readers else 0):
                partition = TopicPartition(name, number)
                reader = readers[number % len(readers)]
                if owners.get(partition, reader) == reader:
                    shares[reader].append(partition)
        return {each: Assignment(tuple(share)).encode() for each, share in shares.items()}

    def _sync(self, assignments: dict[str, bytes]) -> None:
        self.syncing = self.bench.sync(
            self.member_id,
            self.generation,
            assignments,
            instance=self.instance_id,
            protocol=self.name,
        )
        self._hear_sync()

    def _hear_sync(self) -> None:
        if self.syncing is None or not self.syncing.told:
            return
        (answer,), self.syncing = self.syncing.told, None
        if not isinstance(answer, SyncAnswer):
            self.has_to_join = True
        elif answer.error is ErrorCode.NONE:
            ids = self.bench.cluster.topics.ids
            partitions = Assignment.decode(answer.assignment).partitions
            given = frozenset((ids[t], n) for t, n in partitions if t in ids)
            # What was taken away is revoked, and then it joins again (KIP-429).
            self.has_to_join = not self.is_eager and bool(self.owned - given)
            self.owned = given
        else:
            self._hear_error(answer.error)

    def beat(self) -> None:
        heard = self.bench.ask_heartbeat(self.member_id, self.generation, instance=self.instance_id)
        for error in heard.told:
            self._hear_error(error)

    def _hear_error(self, error: ErrorCode) -> None:
        match error:
            case ErrorCode.NONE:
                pass
            case ErrorCode.REBALANCE_IN_PROGRESS | ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                self.has_to_join = True
            case ErrorCode.ILLEGAL_GENERATION:
                self.errors.append(error)
                self.owned, self.generation, self.has_to_join = frozenset(), -1, True
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.FENCED_INSTANCE_ID:
                self.errors.append(error)
                self.give_up()
            case ErrorCode.NOT_COORDINATOR | ErrorCode.NOT_ENOUGH_REPLICAS:
                pass
            case _:
                self.errors.append(error)
                self.has_to_join = True

    # ------------------------------------------------------------------------- ends

    def give_up(self) -> None:
        """The process ends, or has lost everything."""
        self.owned, self.member_id, self.generation = frozenset(), "", -1
        self.joining = self.syncing = None
        self.has_to_join = True

    def leave(self) -> None:
        leaving = LeavingMember(self.member_id, self.instance_id)
        self.owned = frozenset()
        self.bench.leave(leaving)
        self.give_up()


def act_all(*clients: Any, rounds: int = 12, ms: float = 1_000) -> None:
    """Let all clients of both protocols obey their answers, while time goes by."""
    for _ in range(rounds):
        for each in clients:
            if isinstance(each, ClassicClient):
                each.act()
            else:
                each.beat()
                each.reconcile()
        bench = clients[0].bench
        bench.pass_time(ms)
