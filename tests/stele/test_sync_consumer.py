"""The synchronous consumer, whose calls signals and other threads interrupt."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import stele
from stele.consumer.positions import RawBatch
from stele.errors import ClosedError, WakeupError
from stele.sync.face import shared
from tests.support.sync_clients import InMemory, Signalled, signalled_at

COUNT = 20


def poll(consumer: stele.Consumer) -> Any:
    return consumer.poll(5, timeout_ms=5_000)


def iterate(consumer: stele.Consumer) -> Any:
    for record in consumer:  # after ``next(consumer)`` Python may run a handler before we have it
        return record
    return None


def poll_batches(consumer: stele.Consumer) -> Any:
    return consumer.poll_batches(1, timeout_ms=5_000)


def poll_arrow(consumer: stele.Consumer) -> Any:
    return consumer.poll_arrow(1, timeout_ms=5_000)


def offsets(taken: Any) -> list[int]:
    """Of a record, of records, of batches, or of a table."""
    if isinstance(taken, pa.Table):
        return [int(each) for each in taken["offset"].to_pylist()]
    if isinstance(taken, stele.ConsumerRecord):
        return [taken.offset]
    found: list[int] = []
    for each in taken or ():
        if isinstance(each, RawBatch):
            first = max(each.header.base_offset, each.first_offset)
            found += range(first, each.header.next_offset)
        else:
            found.append(each.offset)
    return found


@pytest.mark.parametrize("take", [poll, iterate, poll_batches, poll_arrow])
def test_a_signal_at_any_point_loses_no_record(take: Callable[[stele.Consumer], Any]) -> None:
    memory = InMemory()
    memory.fill(COUNT)
    with memory.consumer() as consumer:
        consumer.assign([("t", 0)])
        point, got_there = 0, True
        while got_there:
            consumer.seek("t", 0, 2)
            got_there, taken = signalled_at(point, lambda: take(consumer))
            read = offsets(taken)
            while not read or read[-1] < COUNT - 1:
                read += offsets(take(consumer))
            assert read == list(range(2, COUNT)), f"a signal at point {point}"
            point += 1
        assert point > 15


class Committing:
    """Consumers that have read one poll. ``check``: only what they returned is committed."""

    def __init__(self) -> None:
        self.memory = InMemory()
        self.memory.fill(COUNT)
        self.read: list[int] = []

    def begin(self) -> stele.Consumer:
        self.memory.committed.clear()
        consumer = self.memory.consumer(group_id="g")
        consumer.assign([("t", 0)])
        self.read = offsets(poll(consumer))
        return consumer

    def check(self, point: int) -> None:
        assert self.memory.committed == {("t", 0): self.read[-1] + 1}, f"a signal at point {point}"

    def poll_or_close(self, consumer: stele.Consumer) -> Any:
        try:
            return poll(consumer)
        except Signalled:
            consumer.close()  # as a handler does, while the call is not over
            raise


@pytest.mark.parametrize("take", [poll, poll_arrow])
def test_only_what_polls_returned_is_committed_after_a_signal(
    take: Callable[[stele.Consumer], Any],
) -> None:
    setting = Committing()
    point, got_there = 0, True
    while got_there:
        consumer = setting.begin()
        got_there, taken = signalled_at(point, lambda: take(consumer))  # noqa: B023
        setting.read += offsets(taken)
        consumer.close()
        setting.check(point)
        point += 1


def test_a_signal_while_closing_does_not_keep_the_consumer_open() -> None:
    setting = Committing()
    point, got_there = 0, True
    while got_there:
        consumer = setting.begin()
        got_there, _ = signalled_at(point, consumer.close)
        consumer.close()
        setting.check(point)
        with pytest.raises(ClosedError):
            consumer.poll()
        point += 1


def test_closing_below_the_frames_of_a_poll() -> None:
    setting = Committing()
    point, got_there = 0, True
    while got_there:
        consumer = setting.begin()
        got_there, taken = signalled_at(
            point,
            lambda: setting.poll_or_close(consumer),  # noqa: B023
        )
        setting.read += offsets(taken)
        consumer.close()
        setting.check(point)
        point += 1


def test_closing_from_another_thread_ends_a_poll() -> None:
    setting = Committing()
    consumer = setting.begin()
    consumer.seek_to_end()
    assert consumer.position("t", 0) == COUNT
    raised: list[BaseException] = []
    polls = threading.Event()

    def poll_for_ever() -> None:
        try:
            while True:
                polls.set()
                assert consumer.poll(timeout_ms=60_000) == []
        except ClosedError as error:
            raised.append(error)

    poller = threading.Thread(target=poll_for_ever)
    poller.start()
    assert polls.wait(5)
    consumer.close()
    poller.join(10)
    assert len(raised) == 1
    assert setting.memory.committed == {("t", 0): COUNT}


def test_a_wakeup_ends_the_poll_under_way_or_the_next_one() -> None:
    memory = InMemory()
    memory.fill(COUNT)
    with memory.consumer() as consumer:
        consumer.assign([("t", 0)])
        consumer.wakeup()
        with pytest.raises(WakeupError):
            consumer.poll()
        read: list[int] = []
        while len(read) < COUNT:
            read += offsets(poll(consumer))
        timer = threading.Timer(0.2, consumer.wakeup)
        timer.start()
        with pytest.raises(WakeupError):
            consumer.poll(timeout_ms=60_000)
        timer.join()
        assert read == list(range(COUNT))
        assert consumer.poll(timeout_ms=1) == []
    consumer.wakeup()


def test_two_threads_cannot_poll_at_once() -> None:
    memory = InMemory()
    memory.fill(0)
    with memory.consumer() as consumer:
        consumer.assign([("t", 0)])
        refused: list[str] = []

        def poll_for_long() -> None:
            try:
                consumer.poll(timeout_ms=60_000)
            except (RuntimeError, WakeupError) as error:
                refused.append(type(error).__name__)
                consumer.wakeup()

        threads = [threading.Thread(target=poll_for_long) for _ in range(2)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(10)
        assert refused == ["RuntimeError", "WakeupError"]


def test_a_commit_that_is_not_waited_for_tells_its_end_on_a_thread_of_its_own() -> None:
    memory = InMemory()
    memory.fill(COUNT)
    told: list[object] = []
    over = threading.Event()
    with memory.consumer(group_id="g") as consumer:
        consumer.assign([("t", 0)])
        count = len(poll(consumer))

        def tell(commit: object) -> None:
            # It may call the client, as the loop's own thread could not.
            told.extend((threading.current_thread().name, consumer.position("t", 0)))
            over.set()

        commit = consumer.commit_async()
        commit.add_done_callback(tell)
        assert commit.result(10) is None
        assert memory.committed == {("t", 0): count}
        assert over.wait(10)
    assert told[1] == count
    assert told[0] in ("stele-callbacks", threading.current_thread().name)


def test_a_commit_is_of_the_offsets_at_its_call() -> None:
    """The loop may come to it later, and the application goes on with its own mapping."""
    memory = InMemory()
    memory.fill(COUNT)
    may_go_on = threading.Event()
    with memory.consumer(group_id="g") as consumer:
        consumer.assign([("t", 0)])
        poll(consumer)
        assert shared.loop is not None
        shared.loop.call_soon_threadsafe(may_go_on.wait)
        mine = {("t", 0): 1}
        commit = consumer.commit_async(mine)
        mine["t", 0] = 2
        may_go_on.set()
        commit.result(10)
        assert memory.committed == {("t", 0): 1}
