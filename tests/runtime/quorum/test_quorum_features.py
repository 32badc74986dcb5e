"""The levels that controllers support are in the voters' record, and a controller that supports too
little is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raft.membership import Refusal
from raft.quorum import Voter
from runtime.quorum.messages import ADD_VOTER, SUPPORTED_FEATURES, UPDATE_VOTER
from stele.addresses import Address
from stele.errors import ErrorCode
from stele.wire.v1 import raft_pb2 as pb
from stele.wire.v1.metadata_pb2 import FeatureRange
from tests.support.raft_quorum import PORT, QuorumCluster, QuorumNode, with_quorum
from world.network import Service

OLD, NEW = (("f", 1, 1),), (("f", 1, 2),)


def told(cluster: QuorumCluster) -> list[dict[int, Any]]:
    """By running node: the levels in the voters' record."""
    running = [each for each in cluster.replicas.values() if each.up]
    return [dict(each.quorum.controller_features) for each in running]


async def add(asker: QuorumNode, leader: QuorumNode, **fields: Any) -> pb.VoterChangeResponse:
    request = pb.AddVoterRequest(**({"voter_id": 4, "timeout_ms": 5000} | fields))
    answer = await asker.call(leader, ADD_VOTER, request.SerializeToString())
    return pb.VoterChangeResponse.FromString(answer)


def fourth(cluster: QuorumCluster) -> dict[str, Any]:
    replica = cluster.replicas[4]
    return {"voter_directory_id": replica.config.directory_id, "endpoint": f"node4:{PORT}"}


async def start_fourth(cluster: QuorumCluster, **settings: Any) -> QuorumNode:
    replica = cluster.replicas[4]
    bootstrap = tuple(Address(f"node{node}", PORT) for node in (1, 2, 3))
    await replica.start(
        voters=(), bootstrap=bootstrap, is_controller=True, endpoint=f"node4:{PORT}", **settings
    )
    return replica


async def start_three(cluster: QuorumCluster) -> QuorumNode:
    for node in (1, 2, 3):
        await cluster.replicas[node].start(features=NEW)
    return await cluster.leader()


@with_quorum(voters=3)
async def test_every_voter_tells_when_it_starts_in_another_version(cluster: QuorumCluster) -> None:
    leader = await start_three(cluster)
    await cluster.until(lambda: told(cluster) == [dict.fromkeys((1, 2, 3), NEW)] * 3)
    end = leader.quorum.log_end_offset
    other = cluster.others(leader)[0]
    await other.stop()
    await other.start(features=OLD)
    expected = dict.fromkeys((1, 2, 3), NEW) | {other.id: OLD}
    await cluster.until(lambda: told(cluster) == [expected] * 3)
    assert leader.quorum.log_end_offset == end + 1
    for replica in cluster.replicas.values():  # it is in the log
        await replica.stop()
    for replica in cluster.replicas.values():
        await replica.start()
    assert told(cluster) == [expected] * 3


@with_quorum(voters=3, observers=1)
async def test_a_new_voter_is_asked_what_it_supports(cluster: QuorumCluster) -> None:
    leader = await start_three(cluster)
    await start_fourth(cluster, features=OLD)
    answer = await add(cluster.others(leader)[0], leader, **fourth(cluster))
    assert answer.error == 0, answer.message
    assert leader.quorum.controller_features[4] == OLD


@with_quorum(voters=3, observers=1)
async def test_a_controller_that_is_just_starting_is_waited_for(cluster: QuorumCluster) -> None:
    leader = await start_three(cluster)
    asker = cluster.others(leader)[0]
    adding = asyncio.ensure_future(add(asker, leader, **fourth(cluster)))
    await asyncio.sleep(1.0)
    assert not adding.done()
    await start_fourth(cluster, features=NEW)
    answer = await adding
    assert answer.error == 0, answer.message
    assert leader.quorum.controller_features[4] == NEW


@with_quorum(voters=3, observers=1)
async def test_a_controller_that_never_starts_is_waited_for_no_longer_than_was_asked(
    cluster: QuorumCluster,
) -> None:
    leader = await start_three(cluster)
    began = cluster.simulation.now
    asker = cluster.others(leader)[0]
    answer = await add(asker, leader, **fourth(cluster), timeout_ms=2000)
    assert answer.error == ErrorCode.REQUEST_TIMED_OUT
    assert "controller 4 does not answer" in answer.message
    assert 1.5 < cluster.simulation.now - began < 2.5


@pytest.mark.parametrize("adding", [True, False])
@with_quorum(voters=3, observers=1)
async def test_who_supports_too_little_does_not_get_into_the_record(
    cluster: QuorumCluster, adding: bool
) -> None:
    def check(voter: Voter) -> Refusal | None:
        return Refusal(ErrorCode.UNSUPPORTED_VERSION, "too old") if voter.features == OLD else None

    leader = await start_three(cluster)
    await cluster.until(lambda: told(cluster) == [dict.fromkeys((1, 2, 3), NEW)] * 3)
    leader.quorum.check_voters_by(check)
    before = leader.quorum.voters
    other = cluster.others(leader)[0]
    if adding:
        await start_fourth(cluster, features=OLD)
        answer = await add(other, leader, **fourth(cluster))
    else:
        request = pb.UpdateVoterRequest(
            voter_id=other.id,
            voter_directory_id=other.config.directory_id,
            endpoint=f"{other.machine}:{PORT}",
            features=[FeatureRange(name="f", min_level=1, max_level=1)],
        )
        reply = await other.call(leader, UPDATE_VOTER, request.SerializeToString())
        answer = pb.VoterChangeResponse.FromString(reply)
    assert (answer.error, answer.message) == (ErrorCode.UNSUPPORTED_VERSION, "too old")
    assert leader.quorum.voters == before


@with_quorum(voters=3, observers=1)
async def test_a_check_that_cannot_be_made_yet_is_waited_for(cluster: QuorumCluster) -> None:
    asked: list[Voter] = []

    def check(voter: Voter) -> Refusal | None:
        asked.append(voter)
        return Refusal(ErrorCode.REQUEST_TIMED_OUT, "not yet") if len(asked) == 1 else None

    leader = await start_three(cluster)
    await start_fourth(cluster, features=NEW)
    leader.quorum.check_voters_by(check)
    answer = await add(cluster.others(leader)[0], leader, **fourth(cluster))
    assert answer.error == 0, answer.message
    assert len(asked) >= 2


@with_quorum(voters=3, observers=1)
async def test_another_controller_than_the_one_to_be_added_answers(cluster: QuorumCluster) -> None:
    leader = await start_three(cluster)
    await start_fourth(cluster, features=NEW)
    before = leader.quorum.voters.ids
    asker = cluster.others(leader)[0]
    for fields in ({"voter_directory_id": bytes([9]) * 16}, {"endpoint": f"node1:{PORT}"}):
        answer = await add(asker, leader, **(fourth(cluster) | fields))
        assert answer.error == ErrorCode.INVALID_REQUEST
        assert "is not controller 4 with the directory id" in answer.message
    assert leader.quorum.voters.ids == before


@with_quorum(voters=3, observers=1)
async def test_a_version_that_cannot_tell_counts_as_one_that_told_nothing(
    cluster: QuorumCluster,
) -> None:
    leader = await start_three(cluster)
    fourth_one = await start_fourth(cluster, features=NEW)
    service = fourth_one.quorum.service()
    unary = {name: each for name, each in service.unary.items() if name != SUPPORTED_FEATURES}
    network = fourth_one.process.world.network
    await fourth_one.process.run(network.serve(Address("node4", PORT + 1), Service(unary=unary)))
    elsewhere = fourth(cluster) | {"endpoint": f"node4:{PORT + 1}"}
    answer = await add(cluster.others(leader)[0], leader, **elsewhere)
    assert answer.error == 0, answer.message
    (added,) = [each for each in leader.quorum.voters.voters if each.id == 4]
    assert added.features in ((), NEW)  # as a voter it tells


@pytest.mark.parametrize("wrong", [("", 1, 1), ("f", -1, 1), ("f", 2, 1), ("f", 0, 32768)], ids=str)
@with_quorum(voters=3)
async def test_levels_that_no_record_can_hold_are_refused(
    cluster: QuorumCluster, wrong: tuple[str, int, int]
) -> None:
    leader = await start_three(cluster)
    name, least, greatest = wrong
    other = cluster.others(leader)[0]
    request = pb.UpdateVoterRequest(
        voter_id=other.id,
        voter_directory_id=other.config.directory_id,
        endpoint=f"{other.machine}:{PORT}",
        features=[FeatureRange(name=name, min_level=least, max_level=greatest)],
    )
    reply = await other.call(leader, UPDATE_VOTER, request.SerializeToString())
    answer = pb.VoterChangeResponse.FromString(reply)
    assert answer.error == ErrorCode.INVALID_REQUEST
    assert "are no levels of a feature" in answer.message
    assert not leader.fatal
