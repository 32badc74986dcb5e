"""Clients that read nothing, complete no request or ask for everything, beside a client that
works."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from broker.api import SERVED
from metadata.acls import Acls
from runtime.authorization.acl_authorizer import AclAuthorizer
from runtime.authorization.authorizer import Operation, Resource
from runtime.authorization.caller import Caller
from runtime.kafka.connection_memory import FREE_SHARE_BYTES, ConnectionMemory
from runtime.log_format import AUDIT_LOGGER
from security.audit import PRINCIPAL_LINES, PRINCIPAL_LINES_PER_S
from security.authorizer.decision import Policy
from stele.addresses import Address
from stele.cluster.kafka_connection import KafkaConnection
from stele.errors import ErrorCode
from stele.wire import kafka
from stele.wire.kafka import definitions
from stele.wire.kafka.messages import api_versions, create_topics, fetch, metadata, produce
from stele.wire.kafka.primitives import REQUEST_ELEMENTS_MAX
from tests.support.batches import make_batch
from tests.support.dense_requests import api_named, distinct_requests
from tests.support.one_node import HOST, OneNode, ask, on_a_node, with_machine
from tests.support.timing import LoopClock
from tests.support.turns import Turns
from world.world import World

LIMIT_BYTES = 8 * 1024 * 1024
BATCH_BYTES = 500_000
TOPIC_BYTES = 20 * BATCH_BYTES
HOSTILE = 12


class Hostile(asyncio.Protocol):
    """Sends bytes and reads nothing."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True


async def hostile(world: World, data: bytes) -> Hostile:
    client = Hostile()
    await world.network.connect(Address(HOST, 9092), lambda: client)
    client.transport.write(data)
    return client


def frames(api: Any, version: int, message: Any, count: int = 1) -> bytes:
    return b"".join(
        b"".join(kafka.encode_request(api, version, number, "hostile", message))
        for number in range(count)
    )


def everything(min_bytes: int, max_wait_ms: int = 500) -> fetch.FetchRequest:
    return fetch.FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=2**31 - 1,
        topics=[
            fetch.FetchTopic(
                "t", partitions=[fetch.FetchPartition(0, partition_max_bytes=2**31 - 1)]
            )
        ],
    )


def batch(size: int) -> produce.ProduceRequest:
    records = bytes(make_batch(size=size))
    return produce.ProduceRequest(
        acks=-1,
        timeout_ms=5000,
        topic_data=[
            produce.TopicProduceData(
                name="t", partition_data=[produce.PartitionProduceData(0, records)]
            )
        ],
    )


ATTACKS = {
    "answers that nobody reads": frames(fetch.API, 12, everything(1), 30),
    "answers that wait for the same deadline": frames(fetch.API, 12, everything(2**31 - 1), 30),
    "requests that never end": frames(produce.API, 9, batch(3_000_000))[:-1],
    "metadata that nobody reads": frames(
        metadata.API, 1, metadata.MetadataRequest([metadata.MetadataRequestTopic(name="t")]), 3000
    ),
    "names without end": frames(
        metadata.API, 1, metadata.MetadataRequest([metadata.MetadataRequestTopic(name="")] * 60_000)
    ),
}


async def works(connection: KafkaConnection, world: World) -> None:
    """Check that a producer and a consumer work as usual."""
    for _ in range(5):
        began = world.clock.monotonic()
        answer = await connection.request(produce.API, 9, batch(1000), timeout_s=5)
        said = answer.responses[0].partition_responses[0]
        assert said.error_code == 0
        wanted = everything(1)
        wanted.topics[0].partitions[0].fetch_offset = said.base_offset
        found = await connection.request(fetch.API, 12, wanted, timeout_s=5)
        assert found.responses[0].partitions[0].records
        assert world.clock.monotonic() - began < 1


async def fill(connection: KafkaConnection) -> None:
    creation = create_topics.CreateTopicsRequest(
        topics=[create_topics.CreatableTopic("t", 1, 1)], timeout_ms=5000
    )
    await connection.request(create_topics.API, 7, creation, timeout_s=10)
    for _ in range(TOPIC_BYTES // BATCH_BYTES):
        await connection.request(produce.API, 9, batch(BATCH_BYTES), timeout_s=10)


def held_under(attack: str, limit_bytes: int) -> tuple[int, int]:
    """The most bytes that all connections used, and how many hostile ones were closed."""
    most, closed = [0], [0]
    memories: set[ConnectionMemory] = set()
    change = ConnectionMemory.change

    def noted(memory: ConnectionMemory, delta_bytes: int) -> None:
        memories.add(memory)
        change(memory, delta_bytes)
        most[0] = max(most[0], memory.held_bytes)

    async def scenario(machine: OneNode) -> None:
        await machine.start(queued_max_request_bytes=str(limit_bytes))

        async def questions(world: World) -> None:
            connection = await KafkaConnection.open(world.network, HOST, 9092, client_id="good")
            await fill(connection)
            others = [await hostile(world, ATTACKS[attack]) for _ in range(HOSTILE)]
            await works(connection, world)
            await asyncio.sleep(2)
            await works(connection, world)
            await asyncio.sleep(30)
            await works(connection, world)
            closed[0] = sum(other.is_lost for other in others)
            for other in others:
                other.transport.abort()
            await asyncio.sleep(1)
            (memory,) = memories
            assert memory.held_bytes < FREE_SHARE_BYTES
            assert memory.waiting == 0

        await ask(machine, questions)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConnectionMemory, "change", noted)
        with_machine.run(scenario)
    return most[0], closed[0]


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_hostile_clients_hold_is_bounded_and_others_go_on(attack: str) -> None:
    held, _ = held_under(attack, LIMIT_BYTES)
    per_connection = max(FREE_SHARE_BYTES, 2 * BATCH_BYTES)
    assert held <= LIMIT_BYTES + (HOSTILE + 1) * per_connection


def test_without_a_limit_they_hold_what_they_ask_for() -> None:
    """This shows that the test above tests something."""
    held, _ = held_under("answers that nobody reads", -1)
    assert held > 10 * LIMIT_BYTES


def test_half_received_requests_that_hold_all_memory_give_way() -> None:
    _, closed = held_under("requests that never end", 4 * 1024 * 1024)
    assert closed > 0


@on_a_node(connections_max_idle_ms="2000")
async def test_a_closed_client_that_does_not_read_is_cut_off(
    machine: OneNode, world: World
) -> None:
    """Its answers fill the network, and are too few for the connection to count as stalled."""
    request = api_versions.ApiVersionsRequest("hostile", "1")
    frame = b"".join(kafka.encode_request(api_versions.API, 3, 1, "hostile", request))
    refused = (4).to_bytes(4) + b"\xff\xff\x00\x00"
    client = await hostile(world, 1000 * frame + refused)

    def connections() -> float:
        return machine.node.registry.values()["stele_connection_count"]

    await asyncio.sleep(1.5)
    assert connections() == 1
    await asyncio.sleep(2.0)
    assert connections() == 0
    assert client.is_lost


# ------------------------------------------------------------------- the work of one turn

ADMINISTRATION_MAX = 10_000
CALLS_PER_ELEMENT = 2.5
"""In one turn, of a request that has as many elements as it may. Handled in one turn, it would take
five to a hundred of them for each: in the whole these are 10 to 80 ms."""


CALLS_PER_REFUSED = 3.1
CALLS_OF_SLICES = 10_000
"""The same for what a client may not do: a slice of 256 elements, and three cheap calls for each
element that is counted."""


def largest_requests(name: str) -> list[tuple[str, int, Any, int, Any]]:
    """(array, elements, API, version, message): as many distinct elements as an array may hold."""
    served = next(each for each in SERVED if definitions.find(each.api.key).name == name)
    version = served.versions[1]
    counts = [REQUEST_ELEMENTS_MAX - 2]  # with the arrays that it may stand in
    if name in DECIDED:
        counts.append(ADMINISTRATION_MAX)
    elif name in OF_GROUPS:  # more are refused as a whole
        counts = [ADMINISTRATION_MAX]
    return [
        (array, count, api, version, message)
        for count in counts
        for array, api, message in distinct_requests(name, version, count)
    ]


DECIDED = ("CreateTopics", "DeleteTopics")
OF_GROUPS = ("DescribeGroups", "DeleteGroups", "ConsumerGroupDescribe")
LARGEST = (
    "Fetch",
    "Metadata",
    "FindCoordinator",
    "CreateTopics",
    "DeleteTopics",
    "ListOffsets",
    "OffsetForLeaderEpoch",
    "DescribeConfigs",
    "AlterReplicaLogDirs",
    "DescribeLogDirs",
    "DescribeProducers",
    "DescribeTopicPartitions",
    "ListPartitionReassignments",
    "DescribeTransactions",
    "AddPartitionsToTxn",
)
OF_MEMBERS = ("ConsumerGroupHeartbeat", "ShareGroupHeartbeat")
REFUSED = (
    "OffsetFetch",
    *OF_GROUPS,
    "ListOffsets",
    "OffsetForLeaderEpoch",
    "DescribeConfigs",
    "DescribeTransactions",
    "FindCoordinator",
    "CreateTopics",
    "AddPartitionsToTxn",
    "AlterReplicaLogDirs",
    "DescribeProducers",
    "DescribeTopicPartitions",
    "OffsetDelete",
)


_EVERY = tuple(definitions.find(each.api.key).name for each in SERVED)
_WITH_ARRAYS = tuple(
    name
    for name in _EVERY
    if name != "ListConfigResources"
    and any(distinct_requests(name, api_named(name)[0].max_version, 1))
)
"""ListConfigResources has an array of single bytes."""


def refused_requests(name: str) -> Iterator[tuple[str, int, Any, int, Any]]:
    """As ``largest_requests``, also of the oldest version if its arrays are others. Half of what an
    array may hold is above what administrators may name at once."""
    served = next(each for each in SERVED if definitions.find(each.api.key).name == name)
    oldest, newest = served.decodable.start, served.versions[1]
    before: set[str] = set()
    for version in (newest, oldest):
        for count in (REQUEST_ELEMENTS_MAX // 2, ADMINISTRATION_MAX):
            for array, api, message in distinct_requests(name, version, count, but=before):
                if isinstance(message, produce.ProduceRequest):
                    message.acks = -1  # otherwise it has no answer
                yield array, count, api, version, message
        before |= {array for array, _, _ in distinct_requests(name, newest, 1)}


class AgainstHostile(AclAuthorizer):
    """Denies everything to the hostile client, and notes it as a cluster with ACLs does."""

    def allows(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        return caller.client_id != "hostile"

    def over(self, acls: Acls) -> AgainstHostile:
        return self


@pytest.fixture
def authorizer(request: pytest.FixtureRequest) -> AclAuthorizer:
    """The parameter, if there is one, is a policy that holds for all clients."""
    policy = getattr(request, "param", None)
    if policy is not None:
        return AclAuthorizer(policy, Acls, LoopClock())
    return AgainstHostile(Policy(frozenset()), Acls, LoopClock())


@pytest.mark.parametrize("name", LARGEST)
@on_a_node
async def test_the_largest_requests_are_worked_on_in_many_turns(
    machine: OneNode, world: World, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await check_turns(machine, world, name, monkeypatch)


@pytest.mark.parametrize("authorizer", [Policy(allow_everyone_if_no_acl_found=True)], indirect=True)
@pytest.mark.parametrize("name", OF_MEMBERS)
@on_a_node
async def test_permissions_for_the_topics_of_a_member_are_looked_up_in_many_turns(
    machine: OneNode,
    world: World,
    authorizer: AclAuthorizer,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await check_turns(machine, world, name, monkeypatch)


@pytest.mark.parametrize("name", REFUSED)
@on_a_node
async def test_what_a_client_may_not_do_is_refused_in_many_turns_and_few_lines(
    machine: OneNode,
    world: World,
    authorizer: AgainstHostile,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, AUDIT_LOGGER)
    await check_turns(machine, world, name, monkeypatch)
    written = [each for each in caplog.records if each.name == AUDIT_LOGGER]
    assert 0 < len(written) <= PRINCIPAL_LINES + 1 + 10 * PRINCIPAL_LINES_PER_S


@pytest.mark.parametrize("name", _WITH_ARRAYS)
@on_a_node
async def test_every_api_answers_a_client_that_may_do_nothing_in_many_turns(
    machine: OneNode,
    world: World,
    authorizer: AgainstHostile,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where the request is refused as a whole and its answer names every element."""
    worst = await turns_of(machine, world, refused_requests(name), monkeypatch)
    most = {
        what: calls
        for what, (calls, count) in worst.items()
        if calls > CALLS_OF_SLICES + CALLS_PER_REFUSED * count
    }
    assert most == {}


@on_a_node
async def test_a_produce_request_that_is_refused_takes_many_turns_and_few_lines(
    machine: OneNode,
    world: World,
    authorizer: AgainstHostile,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Of 32,000 topics. The request behind it, which waits for no turn, does not overtake it."""
    caplog.set_level(logging.INFO, AUDIT_LOGGER)
    turns, good = Turns(monkeypatch), await KafkaConnection.open(world.network, HOST, 9092)
    await fill(good)
    turns.loop = machine.process.loop
    data = produce.PartitionProduceData(0, b"")
    topics = [produce.TopicProduceData(f"t {number}", b"", [data]) for number in range(32_000)]
    bad = await KafkaConnection.open(world.network, HOST, 9092, client_id="hostile")
    answered: list[int] = []

    async def send(some: list[produce.TopicProduceData]) -> produce.ProduceResponse:
        request = produce.ProduceRequest(None, -1, 5000, some)
        answer = await bad.request(produce.API, 9, request, timeout_s=60)
        answered.append(len(some))
        return answer

    large, small = asyncio.ensure_future(send(topics)), asyncio.ensure_future(send(topics[:1]))
    await works(good, world)
    errors = {
        part.error_code
        for answer in await asyncio.gather(large, small)
        for topic in answer.responses
        for part in topic.partition_responses
    }
    assert errors == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert answered == [32_000, 1]
    assert turns.most <= CALLS_OF_SLICES + CALLS_PER_REFUSED * len(topics)
    written = [each for each in caplog.records if each.name == AUDIT_LOGGER]
    assert 0 < len(written) <= PRINCIPAL_LINES + 1 + 10 * PRINCIPAL_LINES_PER_S


async def check_turns(
    machine: OneNode, world: World, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    worst = await turns_of(machine, world, largest_requests(name), monkeypatch)
    per_element = {what: calls / count for what, (calls, count) in worst.items()}
    assert {what: calls for what, calls in per_element.items() if calls > CALLS_PER_ELEMENT} == {}


async def turns_of(
    machine: OneNode,
    world: World,
    requests: Iterable[tuple[str, int, Any, int, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> dict[str, tuple[int, int]]:
    """The most calls in one turn for each request, and how many elements it has."""
    turns, worst = Turns(monkeypatch), dict[str, tuple[int, int]]()
    good = await KafkaConnection.open(world.network, HOST, 9092, client_id="good")
    await fill(good)
    turns.loop = machine.process.loop
    for array, count, api, version, message in requests:
        turns.most = 0
        bad = await KafkaConnection.open(world.network, HOST, 9092, client_id="hostile")
        asked = asyncio.ensure_future(bad.request(api, version, message, timeout_s=60))
        await works(good, world)
        await asked
        worst[f"{count} {array} in {api.request.__name__} v{version}"] = turns.most, count
    return worst
