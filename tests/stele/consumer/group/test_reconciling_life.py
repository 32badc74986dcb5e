"""Many members of the consumer protocol against the broker's own machine: joins, leaves, crashes,
lost answers, applications that take their time, a coordinator that moves. Members that the
coordinator knows never own a partition twice, and when all is calm they own everything."""

from __future__ import annotations

import itertools
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.coordinator.group.consumer.types import ConsumerDescribeRequest, ConsumerHeartbeatAnswer
from stele.consumer.group.membership import Share, State
from stele.consumer.group.reconciling import Heartbeat, HeartbeatAnswer, ReconcilingMembership
from stele.errors import ErrorCode
from stele.ids import PartitionId, TopicPartition
from tests.support.consumer_protocol import (
    INTERVAL_MS,
    REBALANCE_MS,
    SESSION_MS,
    Cluster,
    ConsumerBench,
    by_topic,
    pairs,
)

TOPICS = ("t", "u")


class _Member:
    def __init__(self, bench: ConsumerBench, member_id: str) -> None:
        self._bench = bench
        self.membership = ReconcilingMembership(member_id)
        self.membership.subscribe(TOPICS)
        self._share: Share | None = None  # the application is being told what it loses

    def go_on(self) -> None:
        """A step of the application's polls."""
        membership = self.membership
        membership.learn({self._bench.cluster.id_of(name): name for name in TOPICS})
        if self._share is not None:
            membership.released(self._share)
            membership.took_share(self._share)
            self._share = None
        elif membership.needs_join:
            membership.gave_up(membership.giving_up())
            membership.join()
        elif membership.state is State.ASSIGNED:
            self._share = membership.share()

    def beat(self, loss: str = "") -> None:
        """``loss``: of the request or of the answer."""
        membership = self.membership
        if membership.may_heartbeat:
            asked = membership.heartbeat()
            answer = None if loss == "request" else self._answer(asked)
            if answer is None or loss == "answer":
                membership.on_lost()
            else:
                membership.on_answer(asked, answer)

    def _answer(self, asked: Heartbeat) -> HeartbeatAnswer | None:
        whole = asked.owned is not None
        heard = self._bench.ask_beat(
            asked.member_id,
            asked.member_epoch,
            instance_id=asked.instance_id,
            rebalance_timeout_ms=REBALANCE_MS if whole else -1,
            topic_names=None if asked.topics is None else tuple(sorted(asked.topics)),
            owned=None
            if asked.owned is None
            else by_topic(frozenset((each.topic_id, each.partition) for each in asked.owned)),
        )
        told = heard.told[0] if heard.told else None
        if not isinstance(told, ConsumerHeartbeatAnswer):
            return None
        assigned = None
        if told.assigned is not None:
            assigned = frozenset(PartitionId(*each) for each in pairs(told.assigned))
        elif whole and told.error is ErrorCode.NONE:
            raise AssertionError("who says everything is told its assignment")
        return HeartbeatAnswer(
            told.error, told.message or "", told.member_epoch, INTERVAL_MS, assigned
        )

    def leave(self) -> None:
        asked = self.membership.leave()
        if asked is not None:
            self._answer(asked)


class _Life:
    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._cluster = Cluster(t=4, u=3)
        self._bench = ConsumerBench(self._cluster)
        self._bench.take(self._bench.machine.loaded(self._bench.now))
        self._numbers = itertools.count()
        self._alive: list[_Member] = []

    def _join(self) -> None:
        self._alive.append(_Member(self._bench, f"m{next(self._numbers)}"))

    def step(self) -> None:
        rng = self._rng
        kind = rng.choices(
            ["go on", "beat", "lose", "time", "join", "leave", "crash", "move", "grow", "anew"],
            [40, 40, 6, 6, 4, 2, 1, 1, 1, 1],
        )[0]
        some = rng.choice(self._alive) if self._alive else None
        if kind == "join" and len(self._alive) < 5:
            self._join()
        elif kind == "time":
            self._bench.pass_time(rng.choice([1, 100, SESSION_MS / 4]))
        elif kind == "move":
            self._bench.reload()
        elif kind == "grow":
            name = rng.choice(TOPICS)
            self._cluster.put(name, self._cluster.counts[name] + 1)
        elif kind == "anew":
            name = rng.choice(TOPICS)
            self._cluster.delete(name)
            self._cluster.put(name, 2)
        elif some is not None:
            if kind == "go on":
                some.go_on()
            elif kind in ("beat", "lose"):
                some.beat(rng.choice(["request", "answer"]) if kind == "lose" else "")
            else:
                self._alive.remove(some)
                if kind == "leave":
                    some.leave()
        self.check()

    def check(self) -> None:
        state = self._bench.ask(ConsumerDescribeRequest("g")).told[0]
        known = {each.member_id: each for each in state.members}
        owners: dict[PartitionId, str] = {}
        for member in self._alive:
            membership = member.membership
            me = known.get(membership.standing.member_id)
            if me is None or not membership.standing.is_member:
                continue  # it has not heard yet that it is none
            for name in membership.owned:
                each = membership.id_of(name)
                assert each not in owners, f"{name} of {owners[each]} and {me.member_id}"
                owners[each] = me.member_id

    def calm_down(self) -> None:
        if not self._alive:
            self._join()
        for _ in range(60):
            for member in self._alive:
                member.go_on()
                member.beat()
                self.check()
            self._bench.pass_time(INTERVAL_MS)
        assert {each.membership.state for each in self._alive} == {State.STABLE}
        owned = list(itertools.chain(*(each.membership.owned for each in self._alive)))
        assert sorted(owned) == sorted(
            TopicPartition(name, n) for name in TOPICS for n in range(self._cluster.counts[name])
        )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32))
def test_the_life_of_a_group(seed: int) -> None:
    life = _Life(Random(seed))
    for _ in range(250):
        life.step()
    life.calm_down()
