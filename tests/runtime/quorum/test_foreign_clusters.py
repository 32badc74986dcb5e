"""Nodes of another cluster at addresses that this quorum knows."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from runtime.config.addresses import CONTROLLER, NamedAddress
from runtime.quorum.messages import (
    BEGIN_QUORUM_EPOCH,
    END_QUORUM_EPOCH,
    FETCH,
    FETCH_SNAPSHOT,
    VOTE,
    ForeignClusterError,
    decode_response,
)
from stele.addresses import Address
from stele.errors import ErrorCode
from stele.wire.v1 import raft_pb2 as pb
from tests.support.raft_quorum import PORT, QuorumCluster, QuorumNode, with_quorum
from world.network import Peer, Service

RESPONSES: dict[str, Any] = {
    VOTE: pb.VoteResponse,
    BEGIN_QUORUM_EPOCH: pb.BeginQuorumEpochResponse,
    END_QUORUM_EPOCH: pb.EndQuorumEpochResponse,
    FETCH: pb.QuorumFetchResponse,
    FETCH_SNAPSHOT: pb.FetchSnapshotResponse,
}


def refusal(method: str) -> bytes:
    """As an older node of another cluster refuses: with its own epoch and leader."""
    answer = RESPONSES[method](
        error=ErrorCode.INCONSISTENT_CLUSTER_ID,
        epoch=80,
        leader_id=2,
        leader_endpoint=f"elsewhere:{PORT}",
    )
    encoded: bytes = answer.SerializeToString()
    return encoded


async def serve_foreigner(cluster: QuorumCluster, machine: str, asked: list[str]) -> None:
    async def refuse(method: str, _: bytes, __: Peer) -> bytes:
        asked.append(method)
        return refusal(method)

    process = cluster.simulation.process(machine)
    service = Service(unary={method: partial(refuse, method) for method in RESPONSES})
    await process.run(process.world.network.serve(Address(machine, PORT), service))


@pytest.mark.parametrize("method", RESPONSES)
def test_nothing_of_a_foreign_refusal_is_handed_out(method: str) -> None:
    with pytest.raises(ForeignClusterError):
        decode_response(method, refusal(method))


@pytest.mark.parametrize("taken", ["a voter that leads", "a voter that follows"])
@with_quorum
async def test_a_foreign_cluster_at_a_voters_address_is_as_good_as_nobody(
    cluster: QuorumCluster, taken: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "runtime.quorum.peers")

    leader = await cluster.start()
    gone = leader if taken == "a voter that leads" else cluster.others(leader)[0]
    gone.kill()
    asked: list[str] = []
    await serve_foreigner(cluster, gone.machine, asked)
    after = leader.quorum.leader.epoch if gone is leader else 0
    leads = await cluster.leader(after_epoch=after)
    epoch = leads.quorum.leader.epoch
    await asyncio.sleep(10)
    assert asked
    for each in cluster.replicas.values():
        if each.up:
            assert tuple(each.quorum.leader) == (leads.id, epoch)
            assert each.quorum.endpoint(2) == NamedAddress(CONTROLLER, "node2", PORT)
    await leads.propose(b"a")
    await cluster.until_equal()

    said = [record.getMessage() for record in caplog.records]
    assert said, "the operator has to hear of it"
    assert all("belongs to another cluster than cluster" in each for each in said)
    assert len(said) <= 4, "it is said once for each address, not at each call"


@with_quorum
async def test_a_damaged_epoch_in_an_answer_ends_no_epoch(cluster: QuorumCluster) -> None:
    """An epoch of 2^31 - 1 would be the last one: no election could follow."""
    leader = await cluster.start()
    leader.kill()
    asked: list[str] = []

    async def answer(method: str, _: bytes, __: Peer) -> bytes:
        asked.append(method)
        encoded: bytes = RESPONSES[method](epoch=2**31 - 1, leader_id=-1).SerializeToString()
        return encoded

    process = cluster.simulation.process(leader.machine)
    service = Service(unary={method: partial(answer, method) for method in RESPONSES})
    await process.run(process.world.network.serve(Address(leader.machine, PORT), service))
    leads = await cluster.leader(after_epoch=leader.quorum.leader.epoch)
    assert asked
    assert leads.quorum.leader.epoch < 100
    await leads.propose(b"a")


@with_quorum(observers=1)
async def test_an_observer_with_a_foreign_bootstrap_server_finds_its_own_quorum(
    cluster: QuorumCluster,
) -> None:
    observer = cluster.replicas[4]
    observer.config = replace(
        observer.config, voters=(), bootstrap=(Address("node1", PORT), Address("foreign", PORT))
    )
    asked: list[str] = []
    await serve_foreigner(cluster, "foreign", asked)
    leader = await cluster.start()
    voters: list[QuorumNode] = [cluster.replicas[each] for each in (1, 2, 3)]
    for each in voters:
        each.kill()
    await cluster.until(lambda: bool(asked), timeout_s=20.0)
    for each in voters:
        await each.start()
    leader = await cluster.leader()
    await leader.propose(b"a")
    await cluster.until_equal(timeout_s=20.0)
    assert observer.witness.records == [b"a"]
    assert tuple(observer.quorum.leader) == tuple(leader.quorum.leader)
