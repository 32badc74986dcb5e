"""A whole simulated node, which goes on working whatever it is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final, Protocol, cast

from chaos.sim.world.network import SimNetwork
from stele.cluster.kafka_connection import KafkaConnection
from stele.errors import ErrorCode
from stele.security.client_security import PLAINTEXT, ClientSecurity
from stele.wire.kafka.messages import create_topics, fetch, find_coordinator, produce
from stele.wire.kafka.messages.offset_commit import API as OFFSET_COMMIT
from stele.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.fuzz.brokers import Said
from tests.support.batches import make_batch
from tests.support.one_node import HOST, OneNode, ask, with_machine
from world.world import World

_SILENT_FOR_S: Final = 700.0
"""Longer than a connection may be idle."""


async def _check_works(world: World, topic: str) -> None:
    """A client that behaves makes a topic, writes, reads and commits."""
    connection = await KafkaConnection.open(world.network, HOST, 9092, client_id="good")
    creation = create_topics.CreateTopicsRequest(
        topics=[create_topics.CreatableTopic(topic, 1, 1)], timeout_ms=5000
    )
    made = await connection.request(create_topics.API, 7, creation, timeout_s=10)
    assert made.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
    data = produce.PartitionProduceData(0, bytes(make_batch(3)))
    written = await connection.request(
        produce.API,
        9,
        produce.ProduceRequest(None, -1, 5000, [produce.TopicProduceData(topic, b"", [data])]),
        timeout_s=10,
    )
    assert written.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    partition = fetch.FetchPartition(0, partition_max_bytes=100_000)
    wanted = fetch.FetchRequest(
        max_wait_ms=100, topics=[fetch.FetchTopic(topic, partitions=[partition])]
    )
    read = await connection.request(fetch.API, 12, wanted, timeout_s=10)
    assert read.responses[0].partitions[0].records
    await _check_commits(connection, topic)
    connection.close()


async def _check_commits(connection: KafkaConnection, topic: str) -> None:
    async with asyncio.timeout(30):
        found = None
        while found is None or found.coordinators[0].error_code != ErrorCode.NONE:
            asked = find_coordinator.FindCoordinatorRequest(coordinator_keys=["good"])
            found = await connection.request(find_coordinator.API, 4, asked, timeout_s=10)
            await asyncio.sleep(0.1)
        code: int | None = None
        while code is None or code in (
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ):
            offset = OffsetCommitRequestPartition(0, 3)
            commit = OffsetCommitRequest(
                "good", topics=[OffsetCommitRequestTopic(name=topic, partitions=[offset])]
            )
            done = await connection.request(OFFSET_COMMIT, 8, commit, timeout_s=10)
            code = done.topics[0].partitions[0].error_code
            await asyncio.sleep(0.1)
    assert code == ErrorCode.NONE, code


class Waiting(Protocol):
    """Something that may still wait for an answer."""

    def abort(self) -> None: ...


Send = Callable[[World], Awaitable[Sequence[Waiting]]]
"""Sends everything, and returns what may still wait for an answer."""


def check_node(
    send: Send,
    requests: int,
    refusals: Collection[str] = (),
    *,
    settings: Mapping[str, str] | None = None,
    good: ClientSecurity = PLAINTEXT,
) -> None:
    """The node answers or closes, says little, keeps nothing, and serves others as before.
    ``good``: how a client comes in that behaves."""

    async def scenario(machine: OneNode) -> None:
        few = {"offsets_topic_replication_factor": "1", "offsets_topic_num_partitions": "2"}
        await machine.start(**few, **(settings or {}))

        async def questions(world: World) -> None:
            cast(SimNetwork, world.network).security = good
            await _check_works(world, "before")
            waiting = await send(world)
            await _check_works(world, "after")
            for each in waiting:
                each.abort()
            await asyncio.sleep(_SILENT_FOR_S)
            await _check_works(world, "later")
            await asyncio.sleep(1)

        await ask(machine, questions)
        metrics = machine.node.registry.values()
        assert metrics["stele_connection_memory_bytes"] == 0
        assert metrics["stele_connection_count"] == 0
        assert not [name for name in metrics if name.startswith("stele_request_failures")]
        assert machine.node.ready

    with Said(refusals) as said:
        with_machine.run(scenario)
    said.check(2 * requests)
