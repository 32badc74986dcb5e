"""Changes of voters with the real driver: endpoints, snapshots, restarts, peers that move."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from raft.membership import AddVoter, RemoveVoter, VoterChange
from raft.quorum import ReplicaKey, Voter, VoterSet
from raft.ready import Role
from runtime.config.addresses import CONTROLLER
from runtime.quorum.config import QuorumConfig, QuorumVoter
from runtime.quorum.endpoints import Endpoints
from runtime.quorum.inspection import voters_on_disk
from runtime.quorum.messages import ADD_VOTER, REMOVE_VOTER
from runtime.quorum.peers import Peers
from stele.addresses import Address
from stele.errors import ApiError, ErrorCode
from stele.security.client_security import PLAINTEXT
from stele.wire.v1 import raft_pb2 as pb
from stele.world import RpcError
from tests.support.raft_quorum import DIRECTORY, PORT, QuorumCluster, QuorumNode, with_quorum


def voter(replica: QuorumNode) -> Voter:
    key = ReplicaKey(replica.id, replica.config.directory_id)
    return Voter(key, f"{replica.machine}:{replica.port}")


async def until_directories_are_known(cluster: QuorumCluster, leader: QuorumNode) -> None:
    await cluster.until(
        lambda: all(any(each.key.directory_id) for each in leader.quorum.voters.voters)
    )


async def change(leader: QuorumNode, what: VoterChange) -> None:
    await leader.process.run(leader.quorum.change_voters(what))


async def grow(cluster: QuorumCluster, node_id: int, **settings: Any) -> QuorumNode:
    """Make another controller a voter. It knows only the first one."""
    replica = cluster.replicas[node_id]
    await replica.start(
        voters=(),
        bootstrap=(Address("node1", PORT),),
        is_controller=True,
        endpoint=f"node{node_id}:{PORT}",
        **settings,
    )
    leader = await cluster.leader()
    await cluster.until(lambda: replica.quorum.log_end_offset == leader.quorum.log_end_offset)
    await change(leader, AddVoter(voter(replica), 5.0))
    return replica


@with_quorum(voters=1, observers=2)
async def test_the_log_remembers_the_voters(cluster: QuorumCluster) -> None:
    await cluster.replicas[1].start()
    for node_id in (2, 3):
        await grow(cluster, node_id)
    leader = await cluster.leader()
    await leader.propose(b"x")
    await cluster.until_equal()
    everybody = list(cluster.replicas.values())
    expected = VoterSet(voter(each) for each in everybody)
    assert all(each.quorum.voters == expected for each in everybody)
    for replica in everybody:
        await replica.stop()
        disk = cluster.simulation.process(replica.machine).world.disk
        assert voters_on_disk(disk, DIRECTORY, "cluster") == expected
    for replica in everybody:
        await replica.start()
    assert all(each.quorum.voters == expected for each in everybody)
    await (await cluster.leader(after_epoch=1)).propose(b"y")
    await cluster.until_equal()


@with_quorum(voters=1, observers=2)
async def test_a_snapshot_carries_the_voters(cluster: QuorumCluster) -> None:
    often = {"snapshot_after_bytes": 500, "snapshot_interval_ms": 0}
    first = cluster.replicas[1]
    await first.start(**often)
    await grow(cluster, 2, **often)
    leader = await cluster.leader()
    for number in range(300):
        await leader.propose(b"%d" % number)
        await asyncio.sleep(0.05)
    await cluster.until(lambda: leader.quorum.log_start_offset > 20)
    voters = leader.quorum.voters
    assert len(voters) == 2
    # The record of the voters is no longer in the log. A new replica gets the voters with the
    # snapshot,
    new = cluster.replicas[3]
    await new.start(voters=(), bootstrap=(Address("node2", PORT),), **often)
    await cluster.until(lambda: new.witness.state == leader.witness.state)
    assert new.witness.snapshot
    assert new.quorum.voters == voters
    # and a replica that restarts has them in its own snapshot.
    for replica in cluster.replicas.values():
        await replica.stop()
    for replica in cluster.replicas.values():
        await replica.start()
        assert replica.quorum.voters == voters
    await cluster.leader(after_epoch=leader.quorum.leader.epoch)


@with_quorum(voters=3, observers=1)
async def test_a_voter_that_moves_tells_the_others(cluster: QuorumCluster) -> None:
    leader = await cluster.start()
    await cluster.until(lambda: all(any(v.key.directory_id) for v in leader.quorum.voters.voters))
    moved, other = cluster.others(leader)
    await moved.stop()
    moved.port = PORT + 1
    await moved.start(endpoint=f"{moved.machine}:{PORT + 1}")

    def is_known() -> bool:
        found = [each.quorum.voters.get(moved.id) for each in cluster.replicas.values()]
        return all(e is not None and e.endpoint == f"{moved.machine}:{PORT + 1}" for e in found)

    await cluster.until(is_known, timeout_s=20.0)
    other.kill()  # the leader needs it where it is now
    await leader.process.run(leader.quorum.transfer_leadership(moved.id))
    assert await cluster.leader(after_epoch=1) is moved
    await moved.propose(b"x")
    await cluster.until_equal(leader, moved)


@with_quorum(voters=3)
async def test_all_voters_move_at_once_when_the_configuration_knows_where(
    cluster: QuorumCluster,
) -> None:
    leader = await cluster.start()
    await until_directories_are_known(cluster, leader)
    await cluster.until_equal()
    everybody = list(cluster.replicas.values())
    for replica in everybody:
        await replica.stop()
    elsewhere = tuple(QuorumVoter(each.id, each.machine, PORT + 1) for each in everybody)
    for replica in everybody:
        replica.port = PORT + 1
        await replica.start(voters=elsewhere)
    expected = VoterSet(voter(each) for each in everybody)
    await cluster.until(
        lambda: all(each.quorum.voters == expected for each in everybody), timeout_s=60.0
    )
    await (await cluster.leader(after_epoch=1)).propose(b"x")
    await cluster.until_equal()


@with_quorum(voters=3)
async def test_a_leader_that_removes_itself_hands_over(cluster: QuorumCluster) -> None:
    leader = await cluster.start()
    await cluster.until(lambda: all(any(v.key.directory_id) for v in leader.quorum.voters.voters))
    await change(leader, RemoveVoter(ReplicaKey(leader.id, leader.config.directory_id)))
    after = await cluster.leader(after_epoch=1)
    assert after is not leader
    await cluster.until(lambda: leader.quorum.role is Role.OBSERVER)
    await after.propose(b"x")
    await cluster.until_equal()  # it goes on as an observer
    assert leader.id not in after.quorum.voters.ids
    assert not leader.fatal


async def ask(
    asker: QuorumNode, target: QuorumNode, method: str, **fields: Any
) -> pb.VoterChangeResponse:
    kind = pb.AddVoterRequest if method == ADD_VOTER else pb.RemoveVoterRequest
    answer = await asker.call(target, method, kind(**fields).SerializeToString())
    return pb.VoterChangeResponse.FromString(answer)


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"cluster_id": "other"}, ErrorCode.INCONSISTENT_CLUSTER_ID, "this is cluster cluster"),
        ({"voter_directory_id": b""}, ErrorCode.INVALID_REQUEST, "directory"),
        ({"voter_directory_id": b"short"}, ErrorCode.INVALID_REQUEST, "directory id of 5 bytes"),
        ({"endpoint": ""}, ErrorCode.INVALID_REQUEST, "endpoint"),
        ({"endpoint": "nowhere"}, ErrorCode.INVALID_REQUEST, "'nowhere' is no endpoint"),
        ({"voter_id": 1}, ErrorCode.DUPLICATE_VOTER, "1"),
        (
            {"timeout_ms": 1000},
            ErrorCode.REQUEST_TIMED_OUT,
            "controller 9 does not answer at node9:9093",
        ),
    ],
)
@with_quorum
async def test_what_is_wrong_with_a_new_voter(
    cluster: QuorumCluster, fields: dict[str, Any], error: ErrorCode, words: str
) -> None:
    leader = await cluster.start()
    await leader.propose(b"x")
    before = leader.quorum.voters
    good = {"voter_id": 9, "voter_directory_id": bytes(15) + b"9", "endpoint": "node9:9093"}
    answer = await ask(cluster.others(leader)[0], leader, ADD_VOTER, **(good | fields))
    assert (answer.error, answer.leader_id) == (error, leader.id)
    assert words in answer.message
    assert leader.quorum.voters.ids == before.ids


@with_quorum
async def test_what_is_learned_meanwhile_is_not_taken_for_the_voter_that_was_given_up(
    cluster: QuorumCluster,
) -> None:
    late = cluster.replicas[3]
    for node_id in (1, 2):
        await cluster.replicas[node_id].start()
    leader = await cluster.leader()
    absent = Voter(ReplicaKey(9, bytes([9]) * 16), "node9:9093")
    adding = asyncio.ensure_future(change(leader, AddVoter(absent, 2.0)))
    await asyncio.sleep(1.0)
    assert leader.quorum.voters.directory_id(late.id) == bytes(16)
    await late.start()  # the record of the voters changes: its directory is known now
    with pytest.raises(ApiError, match="did not catch up"):
        await adding
    assert leader.quorum.voters.directory_id(late.id) == late.config.directory_id
    assert leader.quorum.voters.ids == (1, 2, 3)


@with_quorum
async def test_whoever_does_not_lead_names_the_leader(cluster: QuorumCluster) -> None:
    leader = await cluster.start()
    other = cluster.others(leader)[0]
    key = {"voter_id": leader.id, "voter_directory_id": leader.config.directory_id}
    answer = await ask(leader, other, REMOVE_VOTER, **key)
    assert (answer.error, answer.leader_id) == (ErrorCode.NOT_CONTROLLER, leader.id)


@pytest.mark.parametrize("moment_ms", [0, 1, 2, 3, 5, 10])
def test_a_leader_that_falls_in_the_midst_says_what_is_certain(moment_ms: int) -> None:
    cluster = QuorumCluster(seed=moment_ms, voters=3)

    async def main() -> None:
        leader = await cluster.start()
        await cluster.until(
            lambda: all(any(v.key.directory_id) for v in leader.quorum.voters.voters)
        )
        gone = cluster.others(leader)[0]
        outcome: list[object] = []

        async def remove() -> None:
            try:
                await change(leader, RemoveVoter(ReplicaKey(gone.id, gone.config.directory_id)))
                outcome.append(None)
            except ApiError as error:
                outcome.append(error.code)

        removal = asyncio.ensure_future(remove())
        await asyncio.sleep(moment_ms / 1000)
        cluster.isolate(leader)
        await asyncio.sleep(8.0)
        cluster.simulation.fabric.heal()
        await removal
        after = await cluster.leader(after_epoch=1)
        await after.propose(b"x")
        await cluster.until_equal()
        removed = gone.id not in after.quorum.voters.ids
        if outcome == [None]:
            assert removed
        else:
            assert outcome in ([ErrorCode.REQUEST_TIMED_OUT], [ErrorCode.NOT_CONTROLLER])

    cluster.simulation.run(main())


# -------------------------------------------------------------------------------- addresses


def endpoints(**settings: Any) -> Endpoints:
    voters = (QuorumVoter(1, "old1", 1), QuorumVoter(2, "old2", 1))
    return Endpoints(QuorumConfig("cluster", 9, bytes(16), voters, **settings))


def place(known: Endpoints, node_id: int) -> str:
    found = known.get(node_id)
    return str(found and found.address)


def test_addresses_of_the_record_come_before_configured_ones() -> None:
    known = endpoints(bootstrap=(Address("b", 1), Address("b", 2)))
    assert known.bootstrap_ids == (-2, -3, 1, 2)
    assert [place(known, each) for each in (1, 2, 3, -2, -3)] == [
        "old1:1",
        "old2:1",
        "None",
        "b:1",
        "b:2",
    ]
    record = VoterSet([Voter(ReplicaKey(1), "new1:1"), Voter(ReplicaKey(3), "new3:1")])
    known.settle(record, None)
    assert [place(known, each) for each in (1, 2, 3)] == ["new1:1", "old2:1", "new3:1"]


def test_an_address_that_does_not_answer_gives_way() -> None:
    known = endpoints()
    known.settle(VoterSet([Voter(ReplicaKey(1), "new1:1")]), None)
    tried = []
    for _ in range(3):
        tried.append(place(known, 1))
        known.failed(1)
    assert tried == ["new1:1", "old1:1", "new1:1"]


def test_a_leader_outside_of_the_record_is_found_as_long_as_it_leads() -> None:
    known = endpoints()
    known.settle(VoterSet([Voter(ReplicaKey(4), "four:1"), Voter(ReplicaKey(5), "five:1")]), 4)
    known.settle(VoterSet([Voter(ReplicaKey(5), "five:1")]), 4)  # it removes itself
    assert place(known, 4) == "four:1"
    known.settle(VoterSet([Voter(ReplicaKey(5), "five:1")]), 5)
    assert known.get(4) is None
    known.tell(7, "seven:1", CONTROLLER)  # added behind the end of this log
    known.settle(VoterSet([Voter(ReplicaKey(5), "five:1")]), 7)
    assert place(known, 7) == "seven:1"
    known.tell(7, "", CONTROLLER)
    assert place(known, 7) == "seven:1"


class _Channel:
    def __init__(self, closed: list[str], host: str) -> None:
        self._closed = closed
        self._host = host

    async def call(self, method: str, request: bytes, *, timeout_s: float) -> bytes:
        return b""

    async def close(self) -> None:
        self._closed.append(self._host)


async def test_no_channel_is_kept_to_a_voter_that_left_or_moved() -> None:
    closed: list[str] = []
    network = SimpleNamespace(channel=lambda address: _Channel(closed, address.host))
    config = QuorumConfig("cluster", 9, bytes(16), ())
    no_inbox = cast(Any, None)  # none of these calls is the core's
    connectors = {CONTROLLER: cast(Any, network)}
    peers = Peers(config, connectors, Endpoints(config), no_inbox, no_inbox)

    def voters(*named: tuple[int, str]) -> VoterSet:
        return VoterSet([Voter(ReplicaKey(each), f"{host}:1") for each, host in named])

    peers.settle(voters((1, "one"), (2, "two"), (3, "three")), 1)
    for node_id in (1, 2, 3):
        await peers.ask(node_id, "x", b"")
    peers.settle(voters((1, "one"), (2, "moved")), 1)
    await asyncio.sleep(0)
    assert sorted(closed) == ["three", "two"]
    with pytest.raises(RpcError, match="nobody has said where node 3 is"):
        await peers.ask(3, "x", b"")
    await peers.close()
    assert sorted(closed) == ["one", "three", "two"]


# -------------------------------------------------------------------------------- listeners

BOTH = "OLD://two:1+NEW://two:2"


def moving(*names: str, own: str = "") -> Endpoints:
    """The endpoints of a node that connects by these listeners of controllers."""
    return endpoints(endpoint=own, controllers=dict.fromkeys(names, PLAINTEXT))


def recorded(known: Endpoints, *texts: str) -> None:
    voters = [Voter(ReplicaKey(each), text) for each, text in enumerate(texts, start=1)]
    known.settle(VoterSet(voters), None)


@pytest.mark.parametrize(
    ("names", "recorded_at", "expected"),
    [
        (("OLD",), BOTH, "OLD://two:1"),
        (("NEW",), BOTH, "NEW://two:2"),
        (("NEW", "OLD"), BOTH, "NEW://two:2"),
        (("OLD", "NEW"), BOTH, "OLD://two:1"),
        (("NEW", "OLD"), "OLD://two:1", "OLD://two:1"),
        (("OLD", "NEW"), "NEW://two:2", "NEW://two:2"),
        # Earlier versions recorded a single listener under the usual name, whatever it was called.
        (("NEW",), "two:1", "NEW://two:1"),
    ],
)
def test_a_node_uses_the_first_of_its_listeners_that_a_controller_has(
    names: tuple[str, ...], recorded_at: str, expected: str
) -> None:
    known = moving(*names)
    recorded(known, recorded_at)
    assert str(known.get(1)) == expected


def test_a_listener_that_fails_gives_way_to_no_other_one() -> None:
    known = moving("NEW", "OLD")
    recorded(known, BOTH)
    known.tell(1, "moved:1", "OLD")
    tried = set()
    for _ in range(4):
        tried.add(str(known.get(1)))
        known.failed(1)
    assert tried == {"NEW://two:2", "NEW://old1:1"}, "or TLS that fails would end in plaintext"


def test_a_node_warns_of_a_controller_that_has_none_of_its_listeners(
    caplog: pytest.LogCaptureFixture,
) -> None:
    known = moving("OLD")
    for _ in range(2):
        recorded(known, BOTH, "two:1", "NEW://three:2")
    (said,) = caplog.messages
    assert "controller 3 has the listeners NEW://three:2, and controller.listener.names" in said
    assert "has only OLD" in said


def test_a_replica_learns_where_the_leader_is_on_its_own_listener() -> None:
    known = moving("OLD", "NEW", own="OLD://me:1+NEW://me:2")
    recorded(known, BOTH, "OLD://three:1")
    assert known.text_of(1, "NEW") == "two:2"
    assert known.text_of(1, "OLD") == "two:1"
    assert known.text_of(9, "NEW") == "me:2"
    assert known.text_of(None, "NEW") == ""
    known.tell(7, "seven:2", "NEW")
    assert str(known.get(7)) == "NEW://seven:2"
    known.tell(7, "seven:1", "OLD")
    assert str(known.get(7)) == "OLD://seven:1"
    assert known.text_of(7, "NEW") == "seven:2"


async def test_each_listener_has_connections_of_its_own() -> None:
    opened: list[str] = []

    def connector(name: str) -> Any:
        def channel(address: Address) -> _Channel:
            opened.append(f"{name} {address}")
            return _Channel([], address.host)

        return SimpleNamespace(channel=channel)

    known = moving("NEW", "OLD")
    config = QuorumConfig("cluster", 9, bytes(16), ())
    no_inbox = cast(Any, None)
    connectors = {name: connector(name) for name in ("NEW", "OLD")}
    peers = Peers(config, connectors, known, no_inbox, no_inbox)
    recorded(known, BOTH, "OLD://three:1")
    for node_id in (1, 2, 1):
        await peers.ask(node_id, "x", b"")
    assert opened == ["NEW two:2", "OLD three:1"]
    await peers.close()
