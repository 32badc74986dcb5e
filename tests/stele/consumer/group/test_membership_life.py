"""Many members against the broker's own machine: joins, leaves, crashes, lost and late answers, a
coordinator that moves. Members that the coordinator knows never own a partition twice, and when all
is calm they own everything."""

from __future__ import annotations

import itertools
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.coordinator.group import types
from broker.coordinator.group.types import MemberProtocol
from stele.consumer.group.assignors import ASSIGNORS
from stele.consumer.group.membership import Membership, State
from stele.consumer.group.requests import JoinAnswer, JoinRequest, SyncAnswer, SyncRequest
from stele.errors import ErrorCode
from stele.ids import TopicPartition
from tests.support.coordinators import Heard
from tests.support.groups import SESSION_MS, GroupBench, join_request

TOPICS = ("t", "u")


class _Member:
    """A membership and its driver: one request of it is under way at most."""

    def __init__(self, bench: GroupBench, strategies: list[str]) -> None:
        self._bench = bench
        self.membership = Membership([ASSIGNORS[each] for each in strategies])
        self.membership.subscribe(TOPICS)
        self._asked: JoinRequest | SyncRequest | None = None
        self._heard = Heard()
        self._is_lost = False  # the request never arrived

    def go_on(self, counts: dict[str, int], rng: Random, loss: float) -> None:
        """One step of what comes next, if there is any."""
        membership = self.membership
        if self._asked is not None:
            if self._is_lost or rng.random() < loss:
                membership.on_lost(self._asked.standing)
                self._asked = None
            elif self._heard.told:
                self._hear(self._asked, self._heard.told[0])
        elif membership.needs_join:
            membership.gave_up(membership.giving_up())
            self._join(membership.join_request(), rng.random() >= loss)
        elif membership.state is State.SYNCING:
            self._sync(membership.sync_request(counts), rng.random() >= loss)
        elif membership.state is State.ASSIGNED:
            share = membership.share()
            membership.released(share)
            membership.took_share(share)
        else:
            membership.metadata_changed(counts)

    def _join(self, request: JoinRequest, arrives: bool) -> None:
        self._asked, self._heard, self._is_lost = request, Heard(), not arrives
        if arrives:
            protocols = [MemberProtocol(*each) for each in request.protocols]
            join = join_request("g", request.standing.member_id, protocols=protocols)
            self._heard = self._bench.ask(join)

    def _sync(self, request: SyncRequest, arrives: bool) -> None:
        self._asked, self._heard, self._is_lost = request, Heard(), not arrives
        if arrives:
            standing = request.standing
            self._heard = self._bench.sync(
                standing.member_id,
                standing.generation,
                request.assignments,
                protocol=request.protocol,
            )

    def _hear(self, asked: JoinRequest | SyncRequest, told: object) -> None:
        self._asked = None
        if isinstance(told, ErrorCode):  # the coordinator is gone
            self.membership.on_lost(asked.standing)
        elif isinstance(asked, JoinRequest):
            assert isinstance(told, types.JoinAnswer)
            members = tuple((m.member_id, m.group_instance_id, m.metadata) for m in told.members)
            answer = JoinAnswer(
                told.error,
                "",
                told.member_id,
                told.generation,
                told.protocol or "",
                told.leader,
                members,
                told.skip_assignment,
            )
            self.membership.on_join(asked, answer)
        else:
            assert isinstance(told, types.SyncAnswer)
            self.membership.on_sync(asked, SyncAnswer(told.error, "", told.assignment))

    def heartbeat(self) -> None:
        standing = self.membership.standing
        if self.membership.may_heartbeat:
            error = self._bench.heartbeat(standing.member_id, standing.generation)
            self.membership.on_told(standing, error)

    def leave(self) -> None:
        member_id = self.membership.leave().member_id
        if member_id:
            self._bench.left(member_id)


class _Life:
    def __init__(self, rng: Random, strategies: list[str]) -> None:
        self._rng = rng
        self._strategies = strategies
        self._bench = GroupBench()
        self._counts = {"t": 4, "u": 3}
        self._alive: list[_Member] = []

    def step(self) -> None:
        rng = self._rng
        kind = rng.choices(
            ["go on", "beat", "time", "join", "leave", "crash", "move", "grow"],
            [60, 15, 10, 4, 2, 1, 1, 1],
        )[0]
        some = rng.choice(self._alive) if self._alive else None
        if kind == "join" and len(self._alive) < 5:
            self._alive.append(_Member(self._bench, self._strategies))
        elif kind == "time":
            self._bench.pass_time(rng.choice([1, 100, SESSION_MS / 3]))
        elif kind == "move":
            self._bench.reload()
        elif kind == "grow":
            self._counts[rng.choice(TOPICS)] += 1
        elif some is not None:
            if kind == "go on":
                some.go_on(self._counts, rng, 0.05)
            elif kind == "beat":
                some.heartbeat()
            else:
                self._alive.remove(some)
                if kind == "leave":
                    some.leave()
        self.check()

    def check(self) -> None:
        known = {each.member_id for each in self._bench.described().members}
        owners: dict[TopicPartition, str] = {}
        for member in self._alive:
            membership = member.membership
            if not membership.standing.is_member or membership.standing.member_id not in known:
                continue  # it has not heard yet that it is none
            for name in membership.owned:
                assert name not in owners, f"{name} of {owners[name]} and {membership.standing}"
                owners[name] = membership.standing.member_id

    def calm_down(self) -> None:
        if not self._alive:
            self._alive.append(_Member(self._bench, self._strategies))
        for _ in range(400):
            for member in self._alive:
                member.heartbeat()
                member.go_on(self._counts, self._rng, 0)
                self.check()
            self._bench.pass_time(SESSION_MS / 10)
        assert [each.membership.state for each in self._alive] == [State.STABLE] * len(self._alive)
        owned = list(itertools.chain(*(each.membership.owned for each in self._alive)))
        assert sorted(owned) == sorted(
            TopicPartition(topic, n) for topic in TOPICS for n in range(self._counts[topic])
        )


@pytest.mark.parametrize(
    "strategies", [["range"], ["cooperative-sticky"], ["range", "cooperative-sticky"]]
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32))
def test_the_life_of_a_group(strategies: list[str], seed: int) -> None:
    life = _Life(Random(seed), strategies)
    for _ in range(250):
        life.step()
    life.calm_down()
