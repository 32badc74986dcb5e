"""What a reader of a compacted topic must find, by what its writers know."""

from __future__ import annotations

import pytest

from chaos.sim.work.compacted import KeyedHistory
from stele.wire.batch import Record


def record(offset: int, key: bytes, value: bytes | None) -> Record:
    return Record(offset, 0, key, value)


class History(KeyedHistory):
    """A history with what it reports."""

    def __init__(self) -> None:
        self.reported: list[str] = []
        super().__init__(self.reported.append)

    def wrote(self, offset: int | None, key: bytes, value: bytes | None) -> None:
        """None: the outcome is unknown."""
        self.asked(key, value)
        if offset is not None:
            self.acknowledged(key, value, offset)


def test_a_reader_finds_the_last_acknowledged_value_or_a_later_one() -> None:
    history = History()
    history.wrote(0, b"a", b"1")
    history.wrote(2, b"a", b"2")
    history.wrote(None, b"a", b"3")
    expected = history.expected()
    history.judge([record(2, b"a", b"2")], expected)
    history.judge([record(2, b"a", b"2"), record(4, b"a", b"3")], expected)
    assert not history.reported
    history.judge([record(0, b"a", b"1")], expected)
    assert "b'a' was acknowledged at 2, and a reader from the start found 0" in history.reported[0]
    history.judge([], expected)
    assert len(history.reported) == 2


def test_what_was_acknowledged_after_the_reader_began_need_not_be_found() -> None:
    history = History()
    history.wrote(0, b"a", b"1")
    expected = history.expected()
    history.wrote(2, b"a", b"2")
    history.judge([record(0, b"a", b"1")], expected)
    assert not history.reported


@pytest.mark.parametrize("offset", [1, None])
def test_a_key_that_may_have_a_tombstone_need_not_be_found(offset: int | None) -> None:
    history = History()
    history.wrote(0, b"a", b"1")
    before = history.expected()
    history.wrote(offset, b"a", None)
    assert not history.expected()
    history.judge([], before)
    assert not history.reported
    history.wrote(3, b"a", b"2")
    assert bool(history.expected()) is (offset is not None)


def test_a_reader_finds_only_what_was_written_each_value_in_one_place() -> None:
    history = History()
    history.wrote(0, b"a", b"1")
    for wrong in (
        [record(1, b"a", b"1")],
        [record(0, b"b", b"1")],
        [record(0, b"a", b"else")],
        [record(0, b"a", b"1"), record(0, b"a", b"1")],
    ):
        history.judge(wrong, {})
        assert len(history.reported) == 1, wrong
        history.reported.clear()
