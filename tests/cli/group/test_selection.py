"""The partitions that ``--topic`` names."""

from __future__ import annotations

import pytest

from cli.group.selection import check_exist, selected
from cli.output import CommandError
from stele.ids import TopicPartition

KNOWN = {"orders": range(3), "payments": range(1)}


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (["orders"], [("orders", 0), ("orders", 1), ("orders", 2)]),
        (["orders:2"], [("orders", 2)]),
        (["orders:2,0", "orders:2", "payments"], [("orders", 0), ("orders", 2), ("payments", 0)]),
        ([], []),
    ],
)
def test_selections(wanted: list[str], expected: list[tuple[str, int]]) -> None:
    assert selected(wanted, KNOWN) == expected


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("order", "there is no topic 'order'. Did you mean 'orders'?"),
        ("xyz:0", "there is no topic 'xyz'."),
        ("orders:3", "topic 'orders' has no partition 3: it has 3"),
        ("orders:", "not of the form"),
        ("orders:a", "not of the form"),
        ("orders:0:1", "not of the form"),
        ("orders:-1", "not of the form"),
        ("orders:²", "not of the form"),
    ],
)
def test_what_is_not_there(wanted: str, said: str) -> None:
    with pytest.raises(CommandError) as refused:
        selected([wanted], KNOWN)
    assert said in str(refused.value)


def test_partitions_of_a_file_are_checked() -> None:
    check_exist([TopicPartition("orders", 0)], KNOWN)
    with pytest.raises(CommandError, match="no partition 1"):
        check_exist([TopicPartition("payments", 1)], KNOWN)
    with pytest.raises(CommandError, match="Did you mean 'payments'"):
        check_exist([TopicPartition("payment", 0)], KNOWN)
