"""The law of voters that start again."""

from __future__ import annotations

import pytest

from chaos.sim.laws.resumed_following import VotersGoOnWithTheirLeader
from chaos.sim.world.wire import Said, Stage
from raft.ready import HardState
from raft.voter_history import VoterHistory
from runtime.quorum.messages import END_QUORUM_EPOCH, FETCH, VOTE
from runtime.quorum.state import FILE_NAME, encode
from stele.wire.v1.raft_pb2 import VoteRequest
from tests.support.law_bench import METADATA_LOG, LawBench, voters


@pytest.fixture
def bench() -> LawBench:
    bench = LawBench()
    core = bench.core(101)
    core.epoch, core.history = 5, VoterHistory(voters(101, 102, 103))
    return bench


def begins(bench: LawBench, *methods: str, leader: int | None, epoch: int = 5) -> list[str]:
    """What the law says of calls of voter 101 whose file names the leader of that epoch."""
    law = VotersGoOnWithTheirLeader(bench.cluster, bench.report)
    bench.put(101, f"{METADATA_LOG}/{FILE_NAME}", encode(HardState(epoch, leader), "c"))
    request = VoteRequest(candidate_id=101, epoch=5, pre_vote=True).SerializeToString()
    for method in methods:
        law.hear(Stage.SENT, Said("c101", "c102", method, request))
    return bench.broken()


def test_who_knows_a_leader_fetches_first(bench: LawBench) -> None:
    assert not begins(bench, FETCH, VOTE, leader=102)
    (report,) = begins(bench, VOTE, leader=102)
    assert "102 leads epoch 5" in report


@pytest.mark.parametrize(("leader", "epoch"), [(None, 5), (101, 5), (102, 4), (104, 5)])
def test_who_knows_none_in_its_epoch_may_stand(
    bench: LawBench, leader: int | None, epoch: int
) -> None:
    assert not begins(bench, VOTE, leader=leader, epoch=epoch)


def test_each_process_begins_anew(bench: LawBench) -> None:
    law = VotersGoOnWithTheirLeader(bench.cluster, bench.report)
    bench.put(101, f"{METADATA_LOG}/{FILE_NAME}", encode(HardState(5, 102), "c"))
    law.hear(Stage.SENT, Said("c101", "c102", FETCH, b""))
    bench.controllers[101].restart()
    law.hear(Stage.SENT, Said("c101", "c102", VOTE, VoteRequest().SerializeToString()))
    assert bench.broken()
    assert law.looked == 2


def test_who_hears_first_that_the_leader_leads_no_more_may_stand(bench: LawBench) -> None:
    law = VotersGoOnWithTheirLeader(bench.cluster, bench.report)
    bench.put(101, f"{METADATA_LOG}/{FILE_NAME}", encode(HardState(5, 102), "c"))
    law.hear(Stage.ARRIVED, Said("c102", "c101", END_QUORUM_EPOCH, b""))
    request = VoteRequest(candidate_id=101, epoch=6).SerializeToString()
    law.hear(Stage.SENT, Said("c101", "c102", VOTE, request))
    assert not bench.broken()
    assert law.looked == 0
