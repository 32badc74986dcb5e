"""Both ends of a Kafka connection: against a fake transport, and against each other over TCP."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest

from runtime.kafka.connection import KafkaServerProtocol
from runtime.kafka.requests import Queue
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
    ANSWER,
    MAX_REQUEST_BYTES,
    FakeTransport,
    Handlers,
    Server,
    request,
)


async def test_requests_arrive_whole_however_they_are_cut() -> None:
    data = b"".join(request(n, "x" * (n * 40)) for n in range(20))
    for piece in (1, 3, 7, 100, 1 << 30):
        server = Server()
        assert server.feed(data, piece) == len(data)
        assert [header.correlation_id for header, _, _ in server.handlers.taken] == list(range(20))
        assert {message.key for _, message, _ in server.handlers.taken} == {"group"}
        assert server.protocol.bytes_in == len(data)
        assert server.protocol.requests == server.protocol.in_flight == 20


async def test_large_frames_between_small_ones() -> None:
    batch = bytes(range(256)) * 12_000  # 3 MB: larger than the steps a frame grows by
    message = produce.ProduceRequest(
        topic_data=[
            produce.TopicProduceData("t", partition_data=[produce.PartitionProduceData(0, batch)])
        ]
    )
    large = b"".join(kafka.encode_request(produce.API, 9, 1, None, message))
    data = request(0) + large + request(2) + large[:4] + large[4:]
    for piece in (1000, 65_536, 1 << 30):
        server = Server()
        assert server.feed(data, piece) == len(data)
        assert len(server.handlers.taken) == 4
        views = [
            server.handlers.taken[n][1].topic_data[0].partition_data[0].records for n in (1, 3)
        ]
        assert all(view == batch for view in views)
        assert views[0].obj is not views[1].obj  # a frame's memory is never used again
        views[0][0] = 99
        assert views[1] == batch


async def test_answers_leave_in_the_order_of_requests() -> None:
    server = Server()
    server.feed(b"".join(map(request, range(4))))
    responds = [respond for _, _, respond in server.handlers.taken]
    responds[2](ANSWER)
    responds[1](ANSWER)
    assert server.answers() == []
    responds[0](ANSWER)
    assert server.answers() == [0, 1, 2]
    assert server.transport.write_calls == 1
    responds[3](ANSWER)
    assert server.answers() == [0, 1, 2, 3]
    assert server.protocol.in_flight == 0
    assert server.protocol.bytes_out == sum(map(len, server.transport.written))


def names(correlation_id: int, count: int) -> bytes:
    asked = [metadata.MetadataRequestTopic(name="n")] * count
    message = metadata.MetadataRequest(asked)
    return b"".join(kafka.encode_request(metadata.API, 1, correlation_id, "c", message))


def unknown(count: int) -> metadata.MetadataResponse:
    return metadata.MetadataResponse(topics=[metadata.MetadataResponseTopic(3, name="n")] * count)


async def turns_until(is_over: Callable[[], object]) -> int:
    turns = 0
    while not is_over():
        assert turns < 1000
        await asyncio.sleep(0)
        turns += 1
    return turns


async def test_requests_and_answers_of_many_elements_take_several_turns_and_keep_order() -> None:
    """One slice in each turn. Later requests wait, and are not read meanwhile."""
    server = Server()
    server.feed(request(0) + names(1, 5000) + request(2))
    assert len(server.handlers.taken) == 1
    assert not server.transport.is_reading()
    server.handlers.taken[0][2](ANSWER)
    assert server.answers() == [0]
    assert await turns_until(lambda: len(server.handlers.taken) == 3) >= 4
    assert server.transport.is_reading()
    assert len(server.handlers.taken[1][1].topics) == 5000
    server.handlers.taken[1][2](unknown(5000))
    server.handlers.taken[2][2](ANSWER)
    assert server.answers() == [0]
    with pytest.raises(RuntimeError, match="twice"):
        server.handlers.taken[1][2](unknown(1))
    assert await turns_until(lambda: server.protocol.in_flight == 0) >= 4
    assert server.answers() == [0, 1, 2]


async def test_waits_in_queues_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
    server = Server()
    server.handlers.in_turn = {find_coordinator.API.key}
    server.feed(request(0) + request(1))
    now = 101.0
    server.handlers.taken[0][2](ANSWER)
    now = 103.0
    server.handlers.taken[1][2](ANSWER)
    assert server.handlers.waits == [(1, Queue.REQUESTS, 1.0)]


async def test_waits_of_answers_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
    server = Server()
    server.feed(request(0) + request(1) + names(2, 1))
    responds = [respond for _, _, respond in server.handlers.taken]
    responds[2](unknown(5000))
    now = 101.0
    responds[1](ANSWER)
    now = 103.0
    responds[0](ANSWER)
    await turns_until(lambda: server.protocol.in_flight == 0)
    waits = [(1, Queue.ANSWERS, 2.0), (2, Queue.ANSWERS, 3.0)]
    assert server.handlers.waits == waits


async def test_a_long_request_that_turns_out_malformed_closes_the_connection() -> None:
    server = Server()
    broken = bytearray(names(1, 5000))
    broken[-1] = 0xFF  # not UTF-8
    server.feed(request(0) + broken + request(2))
    await turns_until(lambda: server.protocol.in_flight == 1)
    assert not server.transport.is_closing()
    server.handlers.taken[0][2](ANSWER)
    assert server.answers() == [0]
    assert server.transport.is_closing()
    assert len(server.handlers.taken) == 1


async def test_a_connection_lost_within_a_slice_is_left_alone() -> None:
    server = Server()
    server.feed(names(1, 5000))
    await turns_until(lambda: server.handlers.taken)
    server.handlers.taken[0][2](unknown(5000))
    server.feed(names(2, 5000))
    server.protocol.connection_lost(None)
    for _ in range(10):
        await asyncio.sleep(0)
    assert server.answers() == []
    assert len(server.handlers.taken) == 1


async def test_no_answer_where_none_is_due() -> None:
    server = Server()
    server.feed(b"".join(map(request, range(3))))
    responds = [respond for _, _, respond in server.handlers.taken]
    responds[1](None)
    responds[2](ANSWER)
    responds[0](None)
    assert server.answers() == [2]


async def test_answering_twice_is_a_fault() -> None:
    server = Server()
    server.feed(request(0) + request(1))
    _, _, respond = server.handlers.taken[1]
    respond(ANSWER)
    with pytest.raises(RuntimeError, match="twice"):
        respond(ANSWER)


async def test_reading_stops_while_too_many_requests_are_in_flight() -> None:
    server = Server(max_in_flight_requests=3)
    data = b"".join(map(request, range(10)))
    server.feed(data)
    assert not server.transport.is_reading()
    assert server.protocol.in_flight == 3
    server.handlers.taken[0][2](ANSWER)
    # The next was already received: it is taken without more reading.
    assert server.protocol.in_flight == 3
    assert not server.transport.is_reading()
    while server.protocol.in_flight:
        server.handlers.taken[len(server.answers())][2](ANSWER)
    assert server.transport.is_reading()
    assert server.answers() == list(range(10))


async def test_reading_stops_while_too_many_bytes_are_in_flight() -> None:
    server = Server(max_in_flight_bytes=5000)
    server.feed(request(0, "x" * 6000))
    assert not server.transport.is_reading()
    server.handlers.taken[0][2](ANSWER)
    assert server.transport.is_reading()


async def test_reading_stops_while_the_peer_takes_nothing() -> None:
    server = Server(Handlers(lambda _: ANSWER))
    server.protocol.pause_writing()
    assert not server.transport.is_reading()
    server.protocol.resume_writing()
    assert server.transport.is_reading()
    server.feed(request(1))
    assert server.answers() == [1]


async def test_many_answered_at_once_do_not_recurse() -> None:
    server = Server(Handlers(lambda _: ANSWER), max_in_flight_requests=1)
    data = b"".join(map(request, range(3000)))
    assert server.feed(data) == len(data)
    assert server.answers() == list(range(3000))


# ------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "the peer speaks HTTP, and this port speaks Kafka's protocol"),
        (b"\x16\x03\x01\x02\x00\x01", "the peer speaks TLS, and this end speaks plaintext"),
        (b"\x15\x03\x03\x00\x02\x02", "security protocol of the listener"),
        (struct.pack(">i", -1), "a frame of -1 bytes"),
        (struct.pack(">i", MAX_REQUEST_BYTES + 1), "at most 4000000"),
        (struct.pack(">i", 0), "a request of 0 bytes"),
        (struct.pack(">ihhih", 10, 0, 9, 1, -1), "a request of 10 bytes"),
        (struct.pack(">ihhih", 10, 99, 0, 1, -1), "API key 99 version 0 is not served"),
        (struct.pack(">ihhih", 10, 0, 99, 1, -1), "API key 0 version 99 is not served"),
        (request(1)[:4] + b"\xff" * (len(request(1)) - 4), "API key -1 version -1"),
    ],
)
async def test_what_is_no_request_closes_the_connection(
    data: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server()
    with caplog.at_level(logging.WARNING):
        server.feed(data)
    assert server.transport.is_closing()
    assert server.handlers.taken == []
    assert "10.0.0.7:5555 on EXTERNAL" in caplog.text
    assert reason in caplog.text


async def test_requests_before_garbage_are_answered_first() -> None:
    server = Server()
    server.feed(request(1) + struct.pack(">i", -1) + request(2))
    assert not server.transport.is_closing()
    server.handlers.taken[0][2](ANSWER)
    assert server.answers() == [1]
    assert server.transport.is_closing()
    assert len(server.handlers.taken) == 1


async def test_a_known_api_that_this_node_does_not_serve(caplog: pytest.LogCaptureFixture) -> None:
    server = Server()
    server.handlers.unserved = {10}
    server.feed(request(1))
    assert server.transport.is_closing()
    assert "API key 10 version 3" in caplog.text


async def test_newer_api_versions_requests_learn_the_range() -> None:
    server = Server()
    server.feed(struct.pack(">ihhih", 13, 18, 90, 5, -1) + b"new")
    frame = b"".join(server.transport.written)[4:]
    answer = kafka.decode_response(api_versions.API, 4, frame)
    assert kafka.read_correlation_id(frame) == 5
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert answer.api_keys == [api_versions.ApiVersion(18, 0, 4)]
    assert not server.transport.is_closing()


async def test_a_failing_handler_costs_its_connection_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server(Handlers(lambda _: 1 / 0))
    server.feed(request(1) + request(2))
    assert server.transport.is_closing()
    assert len(server.handlers.taken) == 1
    assert "ZeroDivisionError" in caplog.text


async def test_an_answer_that_cannot_be_encoded_closes(caplog: pytest.LogCaptureFixture) -> None:
    server = Server(Handlers(lambda _: find_coordinator.FindCoordinatorResponse(port=1 << 40)))
    server.feed(request(1))
    assert server.transport.is_closing()
    assert "FindCoordinatorResponse v3" in caplog.text


# --------------------------------------------------------------------------------- ending


async def test_draining_answers_what_was_taken_and_takes_no_more() -> None:
    server = Server()
    server.feed(request(1) + request(2))
    server.protocol.drain()
    assert not server.transport.is_reading()
    assert not server.transport.is_closing()
    for _, _, respond in server.handlers.taken:
        respond(ANSWER)
    assert server.answers() == [1, 2]
    assert server.transport.is_closing()
    idle = Server()
    idle.protocol.drain()
    assert idle.transport.is_closing()


async def test_a_peer_that_stops_sending_still_gets_its_answers() -> None:
    server = Server(max_in_flight_requests=1)
    server.feed(request(1) + request(2))
    assert server.protocol.eof_received()
    assert not server.transport.is_closing()
    server.handlers.taken[0][2](ANSWER)
    server.handlers.taken[1][2](ANSWER)
    assert server.answers() == [1, 2]
    assert server.transport.is_closing()


async def test_a_lost_connection_withdraws_what_is_not_answered() -> None:
    server = Server()
    server.feed(request(1) + request(2) + request(3))
    withdrawn: list[int] = []
    first, second, third = server.handlers.requests
    for number, each in ((1, first), (2, second), (3, third)):
        each.withdraw = partial(withdrawn.append, number)
    first.answer(ANSWER)
    third.answer(ANSWER)
    server.protocol.connection_lost(None)
    assert withdrawn == [2]
    second.answer(ANSWER)
    assert server.handlers.answered_ids == [1, 3, 2]
    assert server.answers() == [1]


async def test_answers_after_the_connection_is_lost_are_dropped() -> None:
    server = Server()
    server.feed(request(1) + request(2)[:5])
    server.protocol.connection_lost(None)
    server.handlers.taken[0][2](ANSWER)
    assert server.transport.written == []
    assert server.events == ["connect", "close"]
    assert server.protocol.in_flight == 0


# ------------------------------------------------------------------------------- over TCP


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
