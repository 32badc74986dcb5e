"""Both ends of a Kafka connection against each other over TCP."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest

from runtime.kafka.connection import KafkaServerProtocol
from runtime.real.network import RealNetwork
from stele.addresses import Address
from stele.cluster.kafka_connection import ConnectionLostError, KafkaConnection
from stele.errors import ApiError, ErrorCode
from stele.wire import kafka
from stele.wire.kafka.messages import (
    api_versions,
    fetch,
    find_coordinator,
    init_producer_id,
    metadata,
    produce,
)
from tests.support.kafka_server import (
    MAX_REQUEST_BYTES,
    FakeTransport,
    Handlers,
)


@contextlib.asynccontextmanager
async def connected(handlers: Handlers, **options: Any) -> AsyncIterator[KafkaConnection]:
    network = RealNetwork()
    listener = await network.listen(
        Address("127.0.0.1", 0),
        lambda: KafkaServerProtocol(
            handlers, max_request_bytes=MAX_REQUEST_BYTES, listener_name="EXTERNAL"
        ),
    )
    connection = await KafkaConnection.open(network, "127.0.0.1", listener.port, "test", **options)
    try:
        yield connection
    finally:
        connection.close()
        await connection.wait_closed()
        await listener.close()


def answer_all(message: Any) -> Any:
    if isinstance(message, api_versions.ApiVersionsRequest):
        keys = [
            api_versions.ApiVersion(1, 4, 15),
            api_versions.ApiVersion(3, 0, 99),
            api_versions.ApiVersion(0, 20, 21),
        ]
        return api_versions.ApiVersionsResponse(0, keys)
    if isinstance(message, init_producer_id.InitProducerIdRequest):
        return init_producer_id.InitProducerIdResponse(producer_id=message.producer_id)
    if isinstance(message, fetch.FetchRequest):
        records: list[Any] = [b"a" * 1_000_000, memoryview(b"b" * 2_000_000)]
        data = fetch.PartitionData(records=records)
        return fetch.FetchResponse(responses=[fetch.FetchableTopicResponse("t", partitions=[data])])
    return metadata.MetadataResponse(cluster_id="x" * 22)


async def test_request_and_answer() -> None:
    async with connected(Handlers(answer_all)) as connection:
        message = metadata.MetadataRequest()
        answer = await connection.request(metadata.API, 12, message, timeout_s=5)
        assert answer.cluster_id == "x" * 22


async def test_large_answers_arrive_whole() -> None:
    async with connected(Handlers(answer_all)) as connection:
        answers = await asyncio.gather(
            *(
                connection.request(fetch.API, 12, fetch.FetchRequest(), timeout_s=10)
                for _ in range(5)
            )
        )
        for answer in answers:
            records = answer.responses[0].partitions[0].records
            assert isinstance(records, memoryview)
            assert records[:1_000_000] == b"a" * 1_000_000
            assert records[1_000_000:] == b"b" * 2_000_000


async def test_pipelined_requests_get_their_own_answers() -> None:
    async with connected(Handlers(answer_all)) as connection:
        answers = await asyncio.gather(
            *(
                connection.request(
                    init_producer_id.API,
                    4,
                    init_producer_id.InitProducerIdRequest(producer_id=n),
                    timeout_s=5,
                )
                for n in range(500)
            )
        )
        assert [answer.producer_id for answer in answers] == list(range(500))


async def test_versions_are_negotiated() -> None:
    async with connected(Handlers(answer_all)) as connection:
        await connection.negotiate(timeout_s=5)
        assert connection.version_of(fetch.API) == 15
        assert connection.version_of(fetch.API, at_most=12) == 12
        assert connection.version_of(metadata.API) == 13
        for api in (produce.API, find_coordinator.API):
            with pytest.raises(ApiError, match="speaks") as caught:
                connection.version_of(api)
            assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


async def test_everything_pending_fails_when_the_connection_is_lost() -> None:
    handlers = Handlers()
    async with connected(handlers) as connection:
        requests = [
            asyncio.ensure_future(
                connection.request(metadata.API, 9, metadata.MetadataRequest(), timeout_s=5)
            )
            for _ in range(3)
        ]
        await handlers.wait_for(3)
        assert connection.in_flight == 3
        connection.close()
        for each in requests:
            with pytest.raises(ConnectionLostError) as caught:
                await each
            assert caught.value.code.retriable
        with pytest.raises(ConnectionLostError, match="closed on this side"):
            await connection.request(metadata.API, 9, metadata.MetadataRequest(), timeout_s=5)
        assert connection.is_closed


async def test_a_refused_request_shows_as_a_lost_connection() -> None:
    handlers = Handlers()
    handlers.unserved = {3}
    async with connected(handlers) as connection:
        with pytest.raises(ConnectionLostError):
            await connection.request(metadata.API, 9, metadata.MetadataRequest(), timeout_s=5)
        await connection.wait_closed()


async def test_a_request_without_an_answer_in_time_closes_the_connection() -> None:
    async with connected(Handlers()) as connection:
        waiting = asyncio.ensure_future(
            connection.request(metadata.API, 9, metadata.MetadataRequest(), timeout_s=60)
        )
        with pytest.raises(ApiError, match=r"not answered within 0\.05 s") as caught:
            await connection.request(metadata.API, 9, metadata.MetadataRequest(), timeout_s=0.05)
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
        with pytest.raises(ConnectionLostError):
            await waiting


async def test_a_cancelled_request_leaves_the_connection_in_step() -> None:
    handlers = Handlers()
    async with connected(handlers) as connection:
        first = asyncio.ensure_future(
            connection.request(metadata.API, 9, metadata.MetadataRequest(), timeout_s=5)
        )
        second = asyncio.ensure_future(
            connection.request(metadata.API, 9, metadata.MetadataRequest(), timeout_s=5)
        )
        await handlers.wait_for(2)
        first.cancel()
        handlers.taken[0][2](metadata.MetadataResponse(cluster_id="first"))
        handlers.taken[1][2](metadata.MetadataResponse(cluster_id="second"))
        assert (await second).cluster_id == "second"
        assert first.cancelled()


async def test_a_cancelled_request_is_not_due_any_more() -> None:
    handlers = Handlers()
    async with connected(handlers) as connection:
        message = metadata.MetadataRequest()
        first = connection.submit(metadata.API, 9, message, timeout_s=0.05)
        second = connection.submit(metadata.API, 9, message, timeout_s=60)
        await handlers.wait_for(2)
        first.cancel()
        await asyncio.sleep(0.1)  # past the first one's deadline
        handlers.taken[0][2](metadata.MetadataResponse(cluster_id="first"))
        handlers.taken[1][2](metadata.MetadataResponse(cluster_id="second"))
        assert (await second).cluster_id == "second"
        assert not connection.is_closed


class Raw(asyncio.Protocol):
    """A broker that answers one request after the other with given bytes."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.received: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self.received.append(data)
        self.transport.write(self.answers.pop(0))


async def test_negotiation_falls_back_to_what_an_older_broker_speaks() -> None:
    """It answers in version 0 (KIP-511), with its range or, if it is even older, without."""
    refusal = api_versions.ApiVersionsResponse(35, [api_versions.ApiVersion(18, 0, 2)])
    ranges = api_versions.ApiVersionsResponse(0, [api_versions.ApiVersion(1, 4, 12)])
    for keys, version in ((refusal.api_keys, 2), ([], 0)):
        refusal.api_keys = keys
        answers = [kafka.encode_response(18, 0, 0, refusal)]
        answers.append(kafka.encode_response(18, version, 1, ranges))
        raw = Raw(*(b"".join(each) for each in answers))
        network = RealNetwork()
        listener = await network.listen(Address("127.0.0.1", 0), lambda raw=raw: raw)  # type: ignore[misc]
        connection = await KafkaConnection.open(network, "127.0.0.1", listener.port)
        await connection.negotiate(timeout_s=5)
        asked = [struct.unpack_from(">hh", each, 4) for each in raw.received]
        assert asked == [(18, 4), (18, version)]
        assert connection.broker_versions == {1: (4, 12)}
        connection.close()
        await connection.wait_closed()
        await listener.close()


@pytest.mark.parametrize(
    "answer",
    [
        struct.pack(">ii", 4, 99) + bytes(1),  # of another request
        struct.pack(">ii", 5, 0) + b"\x00",  # cut
        struct.pack(">i", -7),
        struct.pack(">i", 2) + b"ab",
        struct.pack(">ii", 4, 0)[:0] + b"\x7f\xff\xff\xff",  # larger than allowed
    ],
)
async def test_an_answer_that_is_none_closes_the_connection(answer: bytes) -> None:
    network = RealNetwork()
    listener = await network.listen(Address("127.0.0.1", 0), lambda: Raw(answer))
    connection = await KafkaConnection.open(network, "127.0.0.1", listener.port, "test")
    with pytest.raises((ConnectionLostError, kafka.MalformedMessageError)):
        await connection.request(metadata.API, 9, metadata.MetadataRequest(), timeout_s=5)
    assert connection.is_closed
    await connection.wait_closed()
    await listener.close()


async def test_nobody_listening_is_an_os_error() -> None:
    network = RealNetwork()
    listener = await network.listen(Address("127.0.0.1", 0), lambda: Raw(b""))
    await listener.close()
    with pytest.raises(ConnectionRefusedError):
        await KafkaConnection.open(network, "127.0.0.1", listener.port)


async def test_a_request_without_an_answer_is_handed_over_when_the_system_has_it() -> None:
    connection = KafkaConnection("broker:9092", "test")
    with pytest.raises(ConnectionLostError):
        connection.post(produce.API, 9, produce.ProduceRequest(acks=0))
    transport = FakeTransport()
    connection.connection_made(transport)
    assert connection.post(produce.API, 9, produce.ProduceRequest(acks=0)).done()
    connection.pause_writing()  # as a transport does while it keeps bytes
    waiting = [connection.post(produce.API, 9, produce.ProduceRequest(acks=0)) for _ in range(2)]
    assert not any(each.done() for each in waiting)
    assert connection.in_flight == 0
    connection.resume_writing()
    assert all(each.done() for each in waiting)
    connection.pause_writing()
    lost = connection.post(produce.API, 9, produce.ProduceRequest(acks=0))
    connection.close()
    with pytest.raises(ConnectionLostError):
        await lost
    assert transport.write_calls == 4
