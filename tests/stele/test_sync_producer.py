"""The synchronous producer: each record has one outcome, whatever callers and callbacks do."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stele
from stele.errors import ApiError, BufferFullError, ClosedError, ErrorCode
from stele.producer.partitioner import LONG_KEY_BYTES, partition_of
from stele.sync import Delivery
from stele.sync.face import shared
from stele.wire import native
from stele.wire.batch import decode
from tests.support.stele import Fault
from tests.support.sync_clients import InMemory, signalled_at

MODULE, READER = native.load("auto")
needs_module = pytest.mark.skipif(MODULE is None, reason=READER)

WRONG: dict[str, dict[str, Any]] = {
    "a value of text": {"value": "text"},
    "a key of text": {"value": b"x", "key": "text"},
    "a time with a fraction": {"value": b"x", "timestamp_ms": 1.5},
    "a time beyond 63 bits": {"value": b"x", "timestamp_ms": 2**70},
    "a negative time": {"value": b"x", "timestamp_ms": -1},
    "a header's value of text": {"value": b"x", "headers": [("k", "v")]},
    "a header's name of bytes": {"value": b"x", "headers": [(b"k", b"v")]},
    "a header's name that has no UTF-8": {"value": b"x", "headers": [("\ud800", b"v")]},
    "headers that are no pairs": {"value": b"x", "headers": [("k",)]},
    "headers that are a number": {"value": b"x", "headers": 7},
    "a partition of text": {"value": b"x", "partition": "0"},
    "a partition with a fraction": {"value": b"x", "partition": 0.0},
    "a partition that is not there": {"value": b"x", "partition": 9},
    "a partition that is a list": {"value": b"x", "partition": [0]},
    "a value that is too large": {"value": bytes(5 << 20)},
}


@pytest.mark.parametrize("what", WRONG)
def test_a_record_that_cannot_be_sent_fails_alone(what: str) -> None:
    memory = InMemory()
    memory.fill(0)
    with memory.producer(linger_ms=20) as producer:
        before = producer.send("t", b"before")
        wrong = producer.send("t", **WRONG[what])
        after = [producer.send("t", b"after") for _ in range(3)]
        assert isinstance(wrong.exception(5), ApiError)
        assert [each.result(5).offset for each in (before, *after)] == [0, 1, 2, 3]
        with pytest.raises(ApiError):
            producer.flush()
        producer.flush()
    assert memory.cluster.values() == [b"before", b"after", b"after", b"after"]


@pytest.mark.parametrize("topic", [b"t", "\ud800", "t" * 40_000, None, 7])
def test_a_topic_that_no_request_can_hold_is_refused_and_harms_no_other(topic: Any) -> None:
    memory = InMemory()
    memory.fill(0)
    with memory.producer(max_block_ms=2_000) as producer:
        with pytest.raises(ApiError, match="INVALID_TOPIC_EXCEPTION"):
            producer.send(topic, b"x")
        assert producer.send("t", b"x").result(5).offset == 0


def test_a_callback_that_raises_changes_nothing() -> None:
    memory = InMemory()
    memory.fill(0)
    called: list[int] = []

    def fail(delivery: Delivery) -> None:
        called.append(delivery.result(0).offset)
        raise SystemExit

    with memory.producer(linger_ms=20) as producer:
        deliveries = [producer.send("t", b"x") for _ in range(5)]
        for each in deliveries:
            each.add_done_callback(fail)
        producer.flush()
        assert called == [0, 1, 2, 3, 4]  # all of them, when ``flush`` returns
        assert [each.exception(5) for each in deliveries] == [None] * 5
        assert producer.send("t", b"later").result(5).offset == 5


def test_a_callback_may_send_to_another_topic_flush_and_close() -> None:
    memory = InMemory()
    memory.fill(0)
    memory.fill(0, "dead")
    producer = memory.producer()
    closed = threading.Event()

    def bury(delivery: Delivery) -> None:
        producer.send("dead", b"letter").result(5)
        producer.flush()
        producer.close()
        closed.set()

    producer.send("t", b"x").add_done_callback(bury)
    assert closed.wait(10)
    assert memory.cluster.values("dead") == [b"letter"]
    with pytest.raises(ClosedError):
        producer.send("t", b"y")


def test_a_callback_that_comes_after_the_end_is_called_all_the_same() -> None:
    memory = InMemory()
    memory.fill(0)
    with memory.producer() as producer:
        delivery = producer.send("t", b"x")
    called = threading.Event()
    delivery.add_done_callback(lambda _: called.set())
    assert called.wait(10)


def test_a_user_function_on_the_loop_cannot_call_a_synchronous_client() -> None:
    memory = InMemory()
    memory.fill(0)
    raised: list[BaseException] = []

    def wait(reason: str) -> None:
        try:
            producer.why()
        except RuntimeError as error:
            raised.append(error)
        raise ValueError("from on_wait")

    with memory.producer(on_wait=wait, max_block_ms=1_000) as producer:
        with pytest.raises(ApiError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            producer.send("missing", b"x")
        assert producer.send("t", b"x").result(5).offset == 0
    assert "cannot call synchronous clients" in str(raised[0])


def test_buffer_memory_counts_what_is_handed_over_and_max_block_ms_ends_the_wait() -> None:
    memory = InMemory()
    memory.fill(0)
    producer = memory.producer(
        buffer_memory=1 << 20, batch_size=1 << 14, max_block_ms=300, delivery_timeout_ms=60_000
    )
    producer.send("t", b"first").result(5)
    memory.cluster.frozen.update((1, 2, 3))
    begun = time.monotonic()
    accepted, waited_s = _send_until_full(producer, bytes(50_000))
    assert accepted * 50_000 < 1 << 20
    assert 0.25 < waited_s < 5
    assert _send_until_full(producer, bytes(1_000))[0] < 1_000
    assert time.monotonic() - begun < 10
    producer.abort()


def _send_until_full(producer: stele.Producer, value: bytes) -> tuple[int, float]:
    """How many records were accepted, and how long the one waited that was not."""
    accepted = 0
    while True:
        begun = time.monotonic()
        try:
            producer.send("t", value)
        except BufferFullError:
            return accepted, time.monotonic() - begun
        accepted += 1


def test_many_threads_share_the_buffer_and_nothing_is_lost() -> None:
    memory = InMemory()
    memory.fill(0)
    deliveries: list[list[Delivery]] = [[] for _ in range(4)]
    with memory.producer(buffer_memory=1 << 14, batch_size=1 << 12) as producer:

        def send(number: int) -> None:
            for each in range(300):
                deliveries[number].append(producer.send("t", b"%d %d" % (number, each)))

        threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        producer.flush()
        found = memory.cluster.values()
        for number, own in enumerate(deliveries):
            offsets = [each.result(5).offset for each in own]
            assert [found[each] for each in offsets] == [b"%d %d" % (number, e) for e in range(300)]
            assert offsets == sorted(offsets)
        assert len(found) == 1200


def test_a_topic_that_vanished_holds_up_no_other() -> None:
    memory = InMemory()
    memory.fill(0)
    memory.fill(0, "gone")
    with memory.producer(max_block_ms=1_000, metadata_max_age_ms=1_000) as producer:
        producer.send("gone", b"x").result(5)
        producer.send("t", b"x").result(5)
        memory.cluster.hidden_topics.add("gone")
        deadline = time.monotonic() + 10
        lost = producer.send("gone", b"y")
        while not any(name.partition == -1 for name in producer.why()):
            assert time.monotonic() < deadline
            lost = producer.send("gone", b"y")
            time.sleep(0.05)  # until the metadata have told the producer
        begun = time.monotonic()
        for _ in range(10):
            producer.send("gone", b"z")
        producer.send("t", b"y").result(5)
        assert time.monotonic() - begun < 0.9
        error = lost.exception(10)
        assert isinstance(error, ApiError)
        assert error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        memory.cluster.hidden_topics.clear()
        with pytest.raises(ApiError):
            producer.flush()


@pytest.mark.parametrize("topic", ["t", "unknown so far"])
def test_a_signal_at_any_point_of_a_send_leaves_the_producer_whole(topic: str) -> None:
    memory = InMemory()
    memory.fill(0, topic)
    point, got_there = 0, True
    while got_there:
        with memory.producer() as producer:
            if topic == "t":
                producer.send("t", b"first").result(5)
            got_there, _ = signalled_at(point, lambda: producer.send(topic, b"x"))
            assert producer.send(topic, b"last").result(5) is not None
        point += 1
    assert memory.cluster.values(topic)[-1] == b"last"


def test_a_signal_at_any_point_of_a_wait_harms_nobody() -> None:
    memory = InMemory()
    memory.fill(0)
    with memory.producer() as producer:
        point, got_there = 0, True
        while got_there:
            delivery = producer.send("t", b"x")
            got_there, _ = signalled_at(point, lambda: delivery.result(5))  # noqa: B023
            assert delivery.result(5).topic == "t"
            point += 1
        point, got_there = 0, True
        while got_there:
            delivery = producer.send("t", b"x")
            got_there, _ = signalled_at(point, producer.flush)
            assert delivery.result(5).topic == "t"
            point += 1


ACTIONS = st.lists(
    st.sampled_from(
        ["send", "wrong", "callback raises", "callback sends", "refused", "lost", "flush", "signal"]
    ),
    max_size=12,
)


class Sending:
    """A producer and the outcomes that it has reported."""

    def __init__(self) -> None:
        self.memory = InMemory()
        self.partition = self.memory.fill(0)
        self.producer = self.memory.producer(max_block_ms=2_000, retry_backoff_ms=1)
        self.sent: list[Delivery] = []
        self.outcomes: list[list[BaseException | None]] = []

    def note(self, delivery: Delivery) -> None:
        told: list[BaseException | None] = []
        self.sent.append(delivery)
        self.outcomes.append(told)
        delivery.add_done_callback(lambda done: told.append(done.exception(0)))

    def do(self, action: str, point: int) -> None:
        producer = self.producer
        if action == "flush":
            _tolerate(producer.flush)
        elif action == "signal":
            _, accepted = signalled_at(point, lambda: producer.send("t", b"x"))
            if accepted is not None:
                self.note(accepted)
        else:
            if action == "refused":
                self.partition.faults.append(Fault(ErrorCode.INVALID_RECORD))
            elif action == "lost":
                self.partition.faults.append(Fault(breaks=True))
            value: Any = "text" if action == "wrong" else b"x"
            self.note(producer.send("t", value))
        if action == "callback raises":
            self.sent[-1].add_done_callback(_fail)
        elif action == "callback sends":
            self.sent[-1].add_done_callback(lambda _: producer.send("t", b"of a callback"))

    def check(self) -> None:
        assert all(each.done() for each in self.sent)
        assert self.outcomes == [[each.exception(0)] for each in self.sent]
        written = [each.result(0) for each in self.sent if each.exception(0) is None]
        assert len({each.offset for each in written}) == len(written)
        assert {each.topic for each in written} <= {"t"}


@settings(max_examples=40, deadline=None)
@given(ACTIONS, st.sampled_from(["close", "abort"]), st.integers(0, 30))
def test_every_accepted_record_has_exactly_one_outcome(
    actions: list[str], end: str, point: int
) -> None:
    sending = Sending()
    for action in actions:
        sending.do(action, point)
    producer = sending.producer
    ending = producer.close if end == "close" else producer.abort
    signalled_at(point, lambda: _tolerate(ending))
    producer.abort()
    sending.check()


DATA = st.none() | st.binary(max_size=4) | st.just(b"k" * (LONG_KEY_BYTES + 1))
SENDS = st.lists(
    st.tuples(
        st.sampled_from(["t", "t", "t", "u"]),
        DATA | st.binary(max_size=4).map(bytearray) | st.just("text"),
        DATA,
        st.lists(st.tuples(st.text(max_size=2), DATA), max_size=2),
        st.none() | st.integers(0, 9) | st.just(-1),
        st.none() | st.integers(0, 2),
    ),
    max_size=30,
)


@pytest.mark.parametrize("module", [None, pytest.param(MODULE, marks=needs_module)])
@settings(max_examples=60, deadline=None)
@given(sends=SENDS, is_halved=st.booleans())
def test_records_that_wait_together_are_judged_and_written_each_alone(
    module: Any, sends: list[Any], *, is_halved: bool
) -> None:
    memory = InMemory()
    for topic in ("t", "u"):
        memory.cluster.create(topic, 2)
    producer = memory.producer(batch_size=500, linger_ms=1)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(native, "NATIVE", module)
        for topic in ("t", "u"):  # so that the topic is known
            assert producer.send(topic, b"", partition=0).result(20).offset == 0
        if is_halved:
            memory.cluster.partition("t").faults.append(Fault(ErrorCode.MESSAGE_TOO_LARGE))
        with loop_stopped():
            deliveries = [producer.send(*each) for each in sends]
        outcomes = [each.exception(20) for each in deliveries]
        _tolerate(producer.close)
    written = {("t", 0): [0], ("u", 0): [0]}
    for (topic, value, key, headers, time_ms, partition), delivery, error in zip(
        sends, deliveries, outcomes, strict=True
    ):
        is_wrong = value == "text" or time_ms == -1 or partition == 2
        if isinstance(error, ApiError):
            cannot_be_halved = is_halved and error.code is ErrorCode.MESSAGE_TOO_LARGE
            assert is_wrong or cannot_be_halved
            is_halved = is_halved and not cannot_be_halved  # only one batch was too large
            continue
        assert not is_wrong
        told = delivery.result(0)
        offsets = written.setdefault((topic, told.partition), [])
        offsets.append(told.offset)
        (record,) = (
            each
            for batch in memory.cluster.partition(topic, told.partition).batches
            for each in decode(batch)
            if each.offset == told.offset
        )
        assert record[2:] == (key, None if value is None else bytes(value), tuple(headers))
        assert record.timestamp_ms == told.timestamp_ms
        assert time_ms in (None, told.timestamp_ms)
        assert partition in (None, told.partition)
        if partition is None and key is not None:
            assert told.partition == partition_of(key, 2)
    assert all(offsets == list(range(len(offsets))) for offsets in written.values())


@contextlib.contextmanager
def loop_stopped() -> Iterator[None]:
    """The clients' thread does nothing meanwhile, so all that is sent waits together."""
    stopped, may_go_on = threading.Event(), threading.Event()

    def stop() -> None:
        stopped.set()
        may_go_on.wait(20)

    shared.get().call_soon_threadsafe(stop)
    assert stopped.wait(20)
    try:
        yield
    finally:
        may_go_on.set()


def _fail(delivery: Delivery) -> None:
    raise ValueError("from a callback")


def _tolerate(call: Callable[[], None]) -> None:
    """The deliveries have the errors of ``flush``, too."""
    try:
        call()
    except stele.SteleError:
        return
