"""A Kafka connection against a fake transport."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable
from functools import partial

import pytest

from runtime.kafka.requests import Queue
from stele.errors import ErrorCode
from stele.wire import kafka
from stele.wire.kafka.messages import (
    api_versions,
    find_coordinator,
    metadata,
    produce,
)
from tests.support.kafka_server import (
    ANSWER,
    MAX_REQUEST_BYTES,
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


async def test_waits_in_queues_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_waits_of_answers_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
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
