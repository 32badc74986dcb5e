"""The requests that ``bench calls`` sends: for each kind what has to be there, and the request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from itertools import count, repeat
from typing import Any, Final, NamedTuple, Protocol

from stele.wire.batch import BatchBuilder
from stele.wire.kafka import Api, Struct
from stele.wire.kafka.messages import (
    consumer_group_heartbeat,
    fetch,
    heartbeat,
    join_group,
    offset_commit,
    produce,
    sync_group,
)

ALONE: Final = "alone"  # a topic with one replica
REPLICATED: Final = "replicated"  # a topic with three replicas
FOLLOWED: Final = "followed"
"""A topic of two replicas. The broker of the second one is down, and the client fetches for it."""

GROUPS: Final = "__consumer_offsets"
BATCH_BYTES: Final = 16 * 1024
WAIT_MS: Final = 20
"""How long a Fetch without new records waits."""

_PRODUCE_VERSION: Final = 12  # the last that names topics
_FETCH_VERSION: Final = 12
_FOLLOWER_FETCH_VERSION: Final = 17
_RECORDS: Final = 16
_FOLLOWED_BATCHES: Final = 100
_GROUP: Final = "classic"
_CONSUMER_GROUP: Final = "consumer"
_PROTOCOL: Final = join_group.JoinGroupRequestProtocol("range", b"metadata")


class Call(NamedTuple):
    """A request of a version."""

    api: Api[Any, Any]
    version: int
    message: Struct


class Follower(NamedTuple):
    """The broker that is down, as its leader knows it."""

    broker_id: int
    broker_epoch: int
    topic_id: bytes  # of FOLLOWED
    leader_epoch: int


class Peer(Protocol):
    """The leader of a topic, or the coordinator of all groups."""

    follower: Follower | None

    async def ask(self, call: Call) -> Any:
        """The answer."""
        ...


Prepare = Callable[[Peer], Awaitable[Iterator[Call]]]
"""Brings about what a kind of request needs. Returns the requests, which have no end."""


class Kind(NamedTuple):
    name: str
    topic: str  # whose leader is asked
    prepare: Prepare


def _batch(records: int, record_bytes: int) -> bytearray:
    builder = BatchBuilder()
    for _ in range(records):
        builder.append(None, bytes(record_bytes), timestamp_ms=1)
    return builder.build()


def _produce(topic: str, batch: bytearray, acks: int) -> Prepare:
    async def prepare(peer: Peer) -> Iterator[Call]:
        partitions = [produce.PartitionProduceData(0, batch)]
        data = produce.TopicProduceData(name=topic, partition_data=partitions)
        message = produce.ProduceRequest(None, acks, 30_000, [data])
        return repeat(Call(produce.API, _PRODUCE_VERSION, message))

    return prepare


def _fetch(topic: str, offset: int) -> Call:
    partition = fetch.FetchPartition(0, fetch_offset=offset, partition_max_bytes=BATCH_BYTES)
    message = fetch.FetchRequest(
        max_wait_ms=WAIT_MS,
        min_bytes=1,
        max_bytes=BATCH_BYTES,
        topics=[fetch.FetchTopic(topic=topic, partitions=[partition])],
    )
    return Call(fetch.API, _FETCH_VERSION, message)


def _fetch_as(follower: Follower, offset: int, session_id: int, session_epoch: int) -> Call:
    partition = fetch.FetchPartition(
        0, follower.leader_epoch, offset, follower.leader_epoch, 0, BATCH_BYTES
    )
    message = fetch.FetchRequest(
        replica_state=fetch.ReplicaState(follower.broker_id, follower.broker_epoch),
        max_wait_ms=WAIT_MS,
        min_bytes=1,
        max_bytes=BATCH_BYTES,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[fetch.FetchTopic(topic_id=follower.topic_id, partitions=[partition])],
    )
    return Call(fetch.API, _FOLLOWER_FETCH_VERSION, message)


async def _end_offset(peer: Peer, topic: str) -> int:
    answer = await peer.ask(_fetch(topic, 0))
    return int(answer.responses[0].partitions[0].high_watermark)


async def _fetch_found(peer: Peer) -> Iterator[Call]:
    return repeat(_fetch(ALONE, 0))


async def _fetch_waiting(peer: Peer) -> Iterator[Call]:
    return repeat(_fetch(ALONE, await _end_offset(peer, ALONE)))


async def _follow(peer: Peer) -> Iterator[Call]:
    """A follower's session that finds one more batch for each request. After the last batch it
    begins again."""
    batch = next(await _produce(FOLLOWED, _SIXTEEN_KIB, 1)(peer))
    for _ in range(_FOLLOWED_BATCHES + 1):
        await peer.ask(batch)
    return await _session(peer, lambda number: number % _FOLLOWED_BATCHES * _RECORDS)


async def _follow_waiting(peer: Peer) -> Iterator[Call]:
    """A follower's session that has everything."""
    end_offset = await _end_offset(peer, FOLLOWED)
    return await _session(peer, lambda number: end_offset)


async def _session(peer: Peer, offset_of: Callable[[int], int]) -> Iterator[Call]:
    """The requests of a follower's session. Each names the offset that ``offset_of`` gives."""
    follower = peer.follower
    assert follower is not None, "its broker is down"
    session_id = (await peer.ask(_fetch_as(follower, offset_of(0), 0, 0))).session_id
    return (_fetch_as(follower, offset_of(each), session_id, each) for each in count(1))


async def _joined(peer: Peer) -> tuple[join_group.JoinGroupRequest, Any]:
    message = join_group.JoinGroupRequest(
        _GROUP, 30_000, 30_000, protocol_type="consumer", protocols=[_PROTOCOL]
    )
    answer = await peer.ask(Call(join_group.API, 5, message))
    message.member_id = answer.member_id
    return message, await peer.ask(Call(join_group.API, 5, message))


async def _join(peer: Peer) -> Iterator[Call]:
    message, _ = await _joined(peer)
    return repeat(Call(join_group.API, 5, message))


async def _heartbeat(peer: Peer) -> Iterator[Call]:
    message, joined = await _joined(peer)
    assignments = [sync_group.SyncGroupRequestAssignment(message.member_id, b"all")]
    await peer.ask(
        Call(
            sync_group.API,
            3,
            sync_group.SyncGroupRequest(
                _GROUP, joined.generation_id, message.member_id, assignments=assignments
            ),
        )
    )
    own = heartbeat.HeartbeatRequest(_GROUP, joined.generation_id, message.member_id)
    return repeat(Call(heartbeat.API, 4, own))


async def _consumer_heartbeat(peer: Peer) -> Iterator[Call]:
    api = consumer_group_heartbeat.API
    first = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        _CONSUMER_GROUP,
        "m" * 22,
        0,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=[ALONE],
        topic_partitions=[],
    )
    answer = await peer.ask(Call(api, 1, first))
    later = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        _CONSUMER_GROUP, answer.member_id, answer.member_epoch
    )
    return repeat(Call(api, 1, later))


async def _commit(peer: Peer) -> Iterator[Call]:
    partitions = [offset_commit.OffsetCommitRequestPartition(0, 1, -1, "")]
    topics = [offset_commit.OffsetCommitRequestTopic(name=ALONE, partitions=partitions)]
    message = offset_commit.OffsetCommitRequest("simple", topics=topics)
    return repeat(Call(offset_commit.API, 8, message))


_ONE_RECORD: Final = _batch(1, 100)
_SIXTEEN_KIB: Final = _batch(_RECORDS, 1000)

KINDS: Final = (
    Kind("Produce 16 KiB, RF 1, acks=1", ALONE, _produce(ALONE, _SIXTEEN_KIB, 1)),
    Kind("Produce 1 record, RF 1, acks=1", ALONE, _produce(ALONE, _ONE_RECORD, 1)),
    Kind("Produce 16 KiB, RF 3, acks=all", REPLICATED, _produce(REPLICATED, _SIXTEEN_KIB, -1)),
    Kind("Produce 1 record, RF 3, acks=all", REPLICATED, _produce(REPLICATED, _ONE_RECORD, -1)),
    Kind("Fetch of a consumer, 16 KiB", ALONE, _fetch_found),
    Kind("Fetch of a consumer, waits", ALONE, _fetch_waiting),
    Kind("JoinGroup", GROUPS, _join),
    Kind("Heartbeat", GROUPS, _heartbeat),
    Kind("ConsumerGroupHeartbeat", GROUPS, _consumer_heartbeat),
    Kind("OffsetCommit", GROUPS, _commit),
    Kind("Fetch of a follower, 16 KiB", FOLLOWED, _follow),
    Kind("Fetch of a follower, waits", FOLLOWED, _follow_waiting),
)
