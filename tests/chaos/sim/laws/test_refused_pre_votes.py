"""The law of refused pre-votes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from chaos.sim.laws.refused_pre_votes import PreVotesAreRefusedForAReason
from chaos.sim.world.wire import Said, Stage
from raft.ready import Role
from runtime.quorum.messages import VOTE
from stele.wire.v1.raft_pb2 import VoteRequest, VoteResponse
from tests.support.law_bench import LawBench


class Silence:
    """Voter 102 follows in epoch 5, and has heard nothing from its leader; 101 asks it."""

    def __init__(self) -> None:
        self.bench = LawBench()
        self.law = PreVotesAreRefusedForAReason(self.bench.cluster, self.bench.report)
        self.core: Any = self.bench.core(102)
        self.core.end_offset = 10
        self.heard(False)
        clock = SimpleNamespace(monotonic=lambda: 1.0)
        world = SimpleNamespace(clock=clock)
        self.bench.controllers[102].process = SimpleNamespace(incarnation=1, world=world)

    def heard(self, is_in_touch: bool) -> None:
        self.core.in_touch = lambda now: is_in_touch

    def asks(self, **more: Any) -> Said:
        fields = {"candidate_id": 101, "voter_id": 102, "epoch": 5, "pre_vote": True}
        request = VoteRequest(**{**fields, "last_epoch": 5, "last_offset": 10, **more})
        said = Said("c101", "c102", VOTE, request.SerializeToString())
        self.law.hear(Stage.ARRIVED, said)
        return said

    def answers(self, said: Said, *, granted: bool = False, epoch: int = 5) -> list[str]:
        answer = VoteResponse(granted=granted, epoch=epoch).SerializeToString()
        self.law.hear(Stage.ANSWERED, said._replace(answer=answer))
        return self.bench.broken()


@pytest.fixture
def silence() -> Silence:
    return Silence()


def test_who_hears_nobody_may_only_grant(silence: Silence) -> None:
    assert not silence.answers(silence.asks(), granted=True)
    (report,) = silence.answers(silence.asks())
    assert "refuses its pre-vote to c101" in report
    assert silence.law.looked == 2


@pytest.mark.parametrize("worse", [{"last_offset": 9}, {"last_epoch": 4}, {"pre_vote": False}])
def test_a_worse_log_and_a_vote_may_be_refused(silence: Silence, worse: dict[str, Any]) -> None:
    assert not silence.answers(silence.asks(**worse))


def test_who_hears_its_leader_at_one_of_the_moments_may_refuse(silence: Silence) -> None:
    said = silence.asks()
    silence.heard(True)
    assert not silence.answers(said)
    silence.asks()
    silence.heard(False)
    assert not silence.answers(said)


def test_who_stands_itself_or_is_in_a_later_epoch_may_refuse(silence: Silence) -> None:
    said = silence.asks()
    assert not silence.answers(said, epoch=6)
    silence.core.role = Role.PROSPECTIVE
    assert not silence.answers(said)
    assert silence.law.looked == 0
