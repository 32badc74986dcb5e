"""Thin clients above a quota: their streams wait."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from broker.gateway.gateway import Gateway
from broker.grpc.log import LogService
from broker.grpc.paced_stream import PacedStream
from metadata.client_quotas import quota_record
from runtime.authorization.caller import NODE_ITSELF, Caller, Plane
from stele.config import ClientWorld
from stele.wire.v1 import log_pb2 as pb
from tests.support.broker_apis import Edges
from tests.support.client_quotas import entity
from tests.support.worlds import virtual
from world.network import Peer

MESSAGE = bytes(600)


class Pipe:
    """A client that sends without end, and takes everything at once."""

    def __init__(self) -> None:
        self.sent_s: list[float] = []
        self.is_closed = False

    async def send(self, message: bytes) -> None:
        self.sent_s.append(asyncio.get_running_loop().time())

    async def receive(self) -> bytes | None:
        return None if self.is_closed else MESSAGE

    async def close(self) -> None:
        self.is_closed = True


def with_quota(key: str, value: float) -> Edges:
    edges = Edges()
    edges.commit(quota_record(entity(user="ann"), key, value))
    return edges


def paced(edges: Edges, pipe: Pipe, counts_sent: bool, principal: str = "User:ann") -> PacedStream:
    caller = Caller(principal, "c", "EXTERNAL", Plane.GRPC, "10.0.0.9")
    return PacedStream(pipe, edges.quotas, caller, counts_sent=counts_sent)


async def times(stream: PacedStream, is_sending: bool, count: int) -> list[float]:
    """When each message has passed, from now on."""
    loop = asyncio.get_running_loop()
    began, passed = loop.time(), []
    for _ in range(count):
        if is_sending:
            await stream.send(MESSAGE)
        else:
            assert await stream.receive() == MESSAGE
        passed.append(loop.time() - began)
    return passed


@pytest.mark.parametrize(
    ("key", "counts_sent"), [("producer_byte_rate", False), ("consumer_byte_rate", True)]
)
@virtual
async def test_the_next_message_waits(key: str, counts_sent: bool) -> None:
    edges, pipe = with_quota(key, 1_000), Pipe()
    stream = paced(edges, pipe, counts_sent)
    passed = await times(stream, counts_sent, 40)
    assert passed[:4] == [0, 0, 0, 0], "2,000 bytes at once, and the fourth is above"
    for count in range(4, 40):
        assert passed[count] == pytest.approx(count * len(MESSAGE) / 1_000 - 2)
    assert len(pipe.sent_s) == (40 if counts_sent else 0)


@pytest.mark.parametrize(
    ("key", "counts_sent"), [("producer_byte_rate", True), ("consumer_byte_rate", False)]
)
@virtual
async def test_the_other_direction_does_not_count(key: str, counts_sent: bool) -> None:
    edges = with_quota(key, 1)
    for is_sending in (True, False):
        assert set(await times(paced(edges, Pipe(), counts_sent), is_sending, 20)) == {0}


@pytest.mark.parametrize("principal", ["User:bob", NODE_ITSELF])
@virtual
async def test_others_do_not_wait(principal: str) -> None:
    edges = with_quota("producer_byte_rate", 1)
    assert set(await times(paced(edges, Pipe(), False, principal), False, 20)) == {0}


@virtual
async def test_a_wait_ends_with_the_stream() -> None:
    edges, pipe = with_quota("producer_byte_rate", 1), Pipe()
    stream = paced(edges, pipe, False)
    await stream.receive()
    waiting = asyncio.create_task(stream.receive())
    await asyncio.sleep(1)
    assert not waiting.done()
    await stream.close()
    async with asyncio.timeout(1):
        assert await waiting is None


@virtual
async def test_streams_obey_quotas_that_come_later() -> None:
    edges = Edges()
    stream = paced(edges, Pipe(), False)
    assert set(await times(stream, False, 5)) == {0}
    edges.commit(quota_record(entity(user="ann"), "producer_byte_rate", 10))
    assert (await times(stream, False, 2))[1] == pytest.approx(58)


class Publishing(Pipe):
    """A client that sends records of a topic that is not there."""

    def __init__(self, count: int) -> None:
        super().__init__()
        record = pb.PublishRecord(value=MESSAGE)
        self._left = [pb.PublishRequest(topic="gone", records=[record]).SerializeToString()] * count
        self.asked_s: list[float] = []

    async def receive(self) -> bytes | None:
        self.asked_s.append(asyncio.get_running_loop().time())
        return self._left.pop() if self._left else None


@virtual
async def test_publish_reads_slowly() -> None:
    edges, pipe = Edges(), Publishing(6)
    edges.commit(quota_record(entity(user="ANONYMOUS"), "producer_byte_rate", 1_000))
    gateway = Gateway(edges.context, ClientWorld(edges.clock, edges.network, Random(1)))
    serve = LogService(gateway, "EXTERNAL").service().streams["/stele.v1.Log/Publish"]
    began = asyncio.get_running_loop().time()
    await serve(pipe, Peer("10.0.0.9:5", None))
    waited = [time - began for time in pipe.asked_s]
    assert waited[3] < 2, "the first record waits for metadata of its topic"
    assert waited[6] == pytest.approx(2.06, abs=0.1), "some 4,060 bytes, and 2,000 at once"
    assert len(pipe.sent_s) > 0, "each record is answered"
