"""Whether a node may go down now, as it can tell by itself."""

from __future__ import annotations

import pytest

from node.restart_safety import RestartSafety, of_controllers
from tests.support.controller import Machine


def cluster() -> Machine:
    machine = Machine()
    machine.brokers(1, 2, 3, 4)
    machine.create("t", {0: [1, 2, 3]}, min_insync_replicas="2")
    return machine


def test_a_broker_of_three_may_go_and_the_next_one_may_not() -> None:
    machine = cluster()
    safe = RestartSafety(1, {}).of_partitions(machine.image)
    assert (safe.ok, safe.reason) == (True, "every partition goes on without this broker")
    machine.fence(2)
    found = RestartSafety(1, {}).of_partitions(machine.image)
    assert not found.ok
    assert "1 partitions would be below min.insync.replicas: t-0" in found.reason
    assert RestartSafety(4, {}).of_partitions(machine.image).ok, "it has no replica"


def test_the_last_copy_may_not_go() -> None:
    machine = cluster()
    machine.fence(2)
    machine.fence(3)
    reason = RestartSafety(1, {}).of_partitions(machine.image).reason
    assert "1 partitions would be without a leader: t-0" in reason


def test_a_controller_alone_is_no_broker() -> None:
    assert RestartSafety(3_000, {}).of_partitions(cluster().image).ok


def test_it_looks_again_when_the_metadata_have_changed() -> None:
    machine, safety = cluster(), RestartSafety(1, {})
    first = safety.of_partitions(machine.image)
    assert safety.of_partitions(machine.image) is first
    machine.fence(2)
    assert not safety.of_partitions(machine.image).ok


@pytest.mark.parametrize(
    ("heard", "ok", "reason"),
    [
        ({1: True, 2: True, 3: True}, True, "2 of 3 controllers would be left"),
        ({1: True, 2: True, 3: False}, False, "1 of 3 controllers would be left"),
        ({1: True}, False, "0 of 1 controllers would be left"),
        ({1: True, 2: True, 3: True, 4: True}, True, "3 of 4 controllers would be left"),
        ({1: True, 2: True, 3: True, 4: False}, False, "2 of 4 controllers would be left"),
        (
            None,
            False,
            "only the active controller knows which controllers are there; that is controller 2",
        ),
    ],
)
def test_the_other_controllers_must_be_a_majority(
    heard: dict[int, bool] | None, ok: bool, reason: str
) -> None:
    check = of_controllers(1, heard, 2)
    assert (check.ok, check.reason) == (ok, reason)
