"""The clients that a process leaves open for the next micro-batch."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from stele.spark.doors import Door, key
from stele.spark.kept_clients import KeptClients
from stele.spark.options import SinkOptions

WITHIN_S = 30.0


def options(**more: str) -> SinkOptions:
    return SinkOptions.parse({"bootstrap.servers": "127.0.0.1:1", "topic": "t", **more})


class FakeDoor(Door):
    """It has no clients, and notes whether it is closed."""

    def __init__(self, options: SinkOptions) -> None:
        self.is_closed = False
        self.closes_with: Exception | None = None

    def close(self) -> None:
        self.is_closed = True
        if self.closes_with is not None:
            raise self.closes_with


class Opened:
    """Doors, and all that were ever made."""

    def __init__(self, *, most_idle: int = 4, idle_s: float = 600.0) -> None:
        self.made: list[FakeDoor] = []
        self.doors = KeptClients(self._make, key, most_idle=most_idle, idle_s=idle_s)

    def _make(self, options: SinkOptions) -> FakeDoor:
        self.made.append(FakeDoor(options))
        return self.made[-1]

    def use(self, **more: str) -> FakeDoor:
        with self.doors.opened(options(**more)) as door:
            assert isinstance(door, FakeDoor)
            assert not door.is_closed
            return door

    @property
    def open(self) -> list[FakeDoor]:
        return [each for each in self.made if not each.is_closed]


def test_the_next_batch_goes_through_the_same_door() -> None:
    opened = Opened()
    assert opened.use() is opened.use()
    assert len(opened.made) == 1


@pytest.mark.parametrize(
    "more",
    [
        {"ledgerTopic": "another"},
        {"kafka.request.timeout.ms": "1000"},
        {"bootstrap.servers": "127.0.0.1:2"},
    ],
)
def test_other_options_have_another_door(more: dict[str, str]) -> None:
    opened = Opened()
    assert opened.use() is not opened.use(**more)
    assert opened.use() is opened.made[0]


def test_the_topic_of_the_rows_does_not_matter() -> None:
    opened = Opened()
    assert opened.use() is opened.use(topic="another", txnAppId="app")


def test_a_door_that_does_not_fit_waits_for_another_user() -> None:
    opened = Opened()
    first = opened.use()
    with opened.doors.opened(options(), fits=lambda door: door is not first) as other:
        assert other is not first
    assert not first.is_closed
    with opened.doors.opened(options(), fits=lambda door: door is first) as taken:
        assert taken is first


def test_two_users_at_a_time_have_a_door_each() -> None:
    opened = Opened()
    with opened.doors.opened(options()) as one, opened.doors.opened(options()) as other:
        assert one is not other
    assert len(opened.open) == 2


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, GeneratorExit])
def test_a_door_whose_user_failed_is_closed(error: type[BaseException]) -> None:
    opened = Opened()
    with pytest.raises(error), opened.doors.opened(options()):
        raise error
    assert opened.open == []
    assert opened.use() is opened.made[1]


def test_a_door_that_cannot_be_closed_hides_no_error() -> None:
    opened = Opened()
    opened.use().closes_with = OSError("the broker is gone")
    with pytest.raises(ValueError, match="of the task"), opened.doors.opened(options()):
        raise ValueError("of the task")
    assert opened.open == []


def test_only_so_many_doors_wait_and_the_longest_unused_goes() -> None:
    opened = Opened(most_idle=2)
    first, second = opened.use(ledgerTopic="1"), opened.use(ledgerTopic="2")
    opened.use(ledgerTopic="1")
    third = opened.use(ledgerTopic="3")
    assert (first.is_closed, second.is_closed, third.is_closed) == (False, True, False)


def test_an_idle_door_is_closed_after_a_while() -> None:
    opened = Opened(idle_s=0.1)
    opened.use()
    until = time.monotonic() + WITHIN_S
    while opened.open:
        assert time.monotonic() < until
        threading.Event().wait(0.01)
    assert opened.use() is opened.made[1]
    while opened.open:  # the watch goes on for later doors
        assert time.monotonic() < until
        threading.Event().wait(0.01)


def test_a_door_in_use_is_not_idle() -> None:
    opened = Opened(idle_s=0.02)
    with opened.doors.opened(options()) as door:
        opened.use(ledgerTopic="another")
        until = time.monotonic() + WITHIN_S
        while len(opened.open) > 1:
            assert time.monotonic() < until
            threading.Event().wait(0.01)
        assert opened.open == [door]


def test_clients_with_a_total_time_are_for_one_call() -> None:
    opened = Opened()
    more = {"kafka.total.timeout.ms": "60000"}
    assert opened.use(**more).is_closed
    assert opened.use(**more) is opened.made[1]


def test_all_are_closed_together() -> None:
    opened = Opened()
    opened.use(), opened.use(ledgerTopic="another")
    opened.doors.close_idle()
    assert opened.open == []


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_a_forked_process_has_none_of_its_parents_doors() -> None:
    opened = Opened()
    opened.use()
    child = os.fork()
    if child == 0:  # no exception may leave this branch
        code = 1
        try:
            opened.doors.forget()  # what the module's own doors do by themselves
            code = 0 if opened.use() is not opened.made[0] and not opened.made[0].is_closed else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert opened.use() is opened.made[0]


AT_END = """
    import sys
    from stele.sync.face import shared
    from stele.spark.doors import Door, key
    from stele.spark.kept_clients import KeptClients
    from stele.spark.options import SinkOptions

    class Real(Door):
        def close(self):
            super().close()  # needs the clients' loop
            print("closed")

    doors = KeptClients(Real, key)
    given = {"bootstrap.servers": "127.0.0.1:1", "topic": "t"}
    with doors.opened(SinkOptions.parse(given)) as door:
        door.prepared
    print("the end")
"""


def test_a_process_closes_its_doors_at_its_end() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(AT_END)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout.split("\n")[:2]) == (0, ["the end", "closed"])


def test_the_doors_of_the_module_are_forgotten_in_a_child() -> None:
    code = """
        import os
        from stele.spark import doors
        from stele.spark.options import SinkOptions
        given = {"bootstrap.servers": "127.0.0.1:1", "topic": "t"}
        options = SinkOptions.parse(given)
        with doors.doors.opened(options) as first:
            pass
        child = os.fork()
        if child == 0:
            taken = []
            real = doors.Door.__init__
            doors.Door.__init__ = lambda self, options: taken.append(self)
            manager = doors.doors.opened(options)
            is_new = manager.__enter__() is not first
            os._exit(0 if is_new and taken else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (0, "0\n"), ended.stderr
