"""``stele consume --group``: a member without partitions says why nothing comes."""

from __future__ import annotations

import pytest

from cli import consume


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr("cli.consume.time.monotonic", lambda: now[0])
    return now


def test_a_member_without_partitions_says_so_once(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    member = consume.IdleMember("g")
    for second in range(10):
        clock[0] = float(second)
        member.look(has_partitions=False)
    said = capsys.readouterr().err
    assert said.count("this member of the group 'g' has no partitions, and waits") == 1
    assert "stele group describe g --members" in said


def test_a_rebalance_is_nothing_to_tell_and_a_later_loss_is(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    member = consume.IdleMember("g")
    for second, has_partitions in enumerate([False, False, True, True, False, False]):
        clock[0] = float(second)
        member.look(has_partitions=has_partitions)
    assert capsys.readouterr().err == ""
    clock[0] = 10.0
    member.look(has_partitions=False)
    assert "has no partitions" in capsys.readouterr().err
