"""Which replicas of a failed directory a broker reports as lost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.replication.replica import Replica, ReplicaState
from broker.replication.reports import given_up
from stele.ids import PartitionId

ME = 1
ID = PartitionId(b"t" * 16, 0)
FAILED = OSError("the device is gone")


@pytest.mark.parametrize(
    ("changes", "is_reported"),
    [
        ({}, True),
        ({"state": ReplicaState.ONLINE}, False),
        ({"state": ReplicaState.CORRUPT}, False),  # reported by its directory
        ({"offline": None}, False),  # it waits for a restart of the broker
        ({"members": {2, 3}}, False),  # nobody relies on it
        ({"members": {ME}}, False),  # nobody else has all its records
        ({"members": {ME}, "topic": "careless"}, True),
        ({"members": {2}, "topic": "careless"}, False),
        ({"members": {ME, 2, 3}, "topic": "careless"}, True),
    ],
)
def test_a_replica_is_lost_where_another_one_may_lead(
    changes: dict[str, Any], is_reported: bool
) -> None:
    given = {"state": ReplicaState.OFFLINE, "offline": FAILED, "members": {ME, 2}, "topic": "t"}
    given |= changes
    replica = SimpleNamespace(
        id=ID,
        topic=given["topic"],
        state=given["state"],
        directory=SimpleNamespace(offline=given["offline"]),
        complete_members=frozenset(cast(set[int], given["members"])),
    )
    found = given_up([cast(Replica, replica)], ME, lambda topic: topic == "careless")
    assert found == ([ID] if is_reported else [])
