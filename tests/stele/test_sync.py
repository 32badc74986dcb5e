"""The parts of the synchronous clients that need no cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest

import stele
from stele.consumer.group.listener import RebalanceListener, call
from stele.errors import ClosedError, ConfigError, DeliveryTimeoutError, UnreachableError
from stele.ids import TopicPartition
from stele.producer.outcomes import BatchOutcome
from stele.records import RecordMetadata
from stele.sync import Delivery
from stele.sync.calls_back import CallsBack

WRITTEN = BatchOutcome("t", 0, 3, [0, 0, 1])
LATE = BatchOutcome.failed(DeliveryTimeoutError("late", maybe_written=True))


def test_public_names() -> None:
    for name in stele.__all__:
        assert getattr(stele, name) is not None
    with pytest.raises(AttributeError, match="nope"):
        stele.nope  # noqa: B018


def test_a_delivery_is_waited_for_across_threads() -> None:
    delivery = Delivery()
    got: list[RecordMetadata] = []
    waiter = threading.Thread(target=lambda: got.append(delivery.result(5)))
    waiter.start()
    with pytest.raises(TimeoutError):
        delivery.exception(0.01)
    delivery.settle(WRITTEN, 2)
    waiter.join(5)
    assert got == [("t", 0, 5, 1)]
    assert delivery.exception() is None


def test_callbacks_come_once_before_or_after() -> None:
    delivery = Delivery()
    seen: list[str] = []
    delivery.add_done_callback(lambda _: seen.append("before"))
    assert not delivery.done()
    delivery.settle(LATE, 0)
    delivery.add_done_callback(lambda _: seen.append("after"))
    assert seen == ["before", "after"]
    with pytest.raises(DeliveryTimeoutError):
        delivery.result()


def test_nobody_there() -> None:
    waits: list[str] = []
    with (
        stele.Admin("127.0.0.1:1", default_api_timeout_ms=300, on_wait=waits.append) as admin,
        pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1: .*refused"),
    ):
        admin.list_topics()
    assert waits
    with pytest.raises(ClosedError):
        admin.list_topics()


def test_bad_options_and_closing_twice() -> None:
    with pytest.raises(ConfigError, match="max_in_flight"):
        stele.Producer("127.0.0.1:1", max_in_flight=9)
    producer = stele.Producer("127.0.0.1:1")
    producer.close()
    producer.close()
    with pytest.raises(ClosedError):
        producer.send("t", b"1")


class _CalledBack(CallsBack):
    """Calls its user's function from the loop, as a consumer does in a rebalance."""

    def close(self) -> None:
        self._is_open = False

    def rebalance(self, on_partitions_assigned: Callable[[list[TopicPartition]], None]) -> str:
        listener = self._called_by_the_caller(RebalanceListener(on_partitions_assigned))

        async def work() -> str:
            await call(listener.on_partitions_assigned, [TopicPartition("t", 1)])
            return "done"

        self._settle_alone()
        return self._call_back(work)[1]

    def _put_back(self, records: Sequence[object]) -> None:
        assert not records

    def look(self) -> int:
        return self._do(lambda: 7)


def test_a_listener_runs_in_the_thread_that_called_and_may_call_the_client() -> None:
    client = _CalledBack()
    heard: list[object] = []

    def listener(partitions: list[TopicPartition]) -> None:
        heard.extend((partitions, threading.current_thread(), client.look()))

    assert client.rebalance(listener) == "done"
    assert heard == [[("t", 1)], threading.current_thread(), 7]


def test_what_a_listener_raises_comes_out_of_the_call() -> None:
    client = _CalledBack()

    def fail(partitions: list[TopicPartition]) -> None:
        raise ValueError("mine")

    def interrupt(partitions: list[TopicPartition]) -> None:
        raise KeyboardInterrupt

    def poll_again(partitions: list[TopicPartition]) -> None:
        client.rebalance(fail)

    with pytest.raises(ValueError, match="mine"):
        client.rebalance(fail)
    with pytest.raises(KeyboardInterrupt):
        client.rebalance(interrupt)
    with pytest.raises(RuntimeError, match="cannot poll"):
        client.rebalance(poll_again)
    assert client.rebalance(lambda partitions: None) == "done"
    client.close()
    with pytest.raises(ClosedError):
        client.rebalance(fail)
