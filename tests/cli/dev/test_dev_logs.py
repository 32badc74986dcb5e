"""The ends of logs, beside a twin that reads them whole."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.dev import logs
from cli.dev.logs import LogTail

LINES = st.lists(st.text("ab", max_size=5), max_size=20)


@given(LINES, LINES, st.integers(0, 25), st.integers(1, 7))
def test_a_tail_is_the_last_lines_and_then_the_new_ones(
    old: list[str], new: list[str], count: int, block_bytes: int
) -> None:
    with TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(logs, "_BLOCK_BYTES", block_bytes)
        path = Path(directory) / "log"
        path.write_text("".join(f"{each}\n" for each in old))
        tail = LogTail(path, count)
        assert tail.new_lines() == old[max(len(old) - count, 0) :]
        with path.open("a") as log:
            log.writelines(f"{each}\n" for each in new)
        assert tail.new_lines() == new


@given(LINES, st.text("ab", min_size=1, max_size=5), st.integers(1, 25), st.integers(1, 7))
def test_a_line_that_is_being_written_counts_as_the_last(
    old: list[str], half: str, count: int, block_bytes: int
) -> None:
    with TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(logs, "_BLOCK_BYTES", block_bytes)
        path = Path(directory) / "log"
        path.write_text("".join(f"{each}\n" for each in old) + half)
        tail = LogTail(path, count)
        assert [*tail.new_lines(), tail.unfinished] == [*old, half][-count:]


def test_a_log_that_is_not_there_yet_is_read_from_its_begin(tmp_path: Path) -> None:
    tail = LogTail(tmp_path / "log", 3)
    assert tail.new_lines() == []
    (tmp_path / "log").write_text("".join(f"{number}\n" for number in range(9)) + "half")
    assert tail.new_lines() == [str(number) for number in range(9)]
    assert tail.unfinished == "half"
    with (tmp_path / "log").open("a") as log:
        log.write(" a line\n")
    assert tail.new_lines() == ["half a line"]
    assert tail.unfinished == ""
