"""Which replicas are taken for those in a directory that is not open, and where they are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.membership.directories import Unopened
from broker.replication.unopened import UnopenedReplica, UnopenedReplicas
from metadata.directories import LOST, MIGRATING, UNASSIGNED
from stele.ids import PartitionId, TopicPartition, encode_uuid

TOPIC_ID = b"orders-topic-id!"
KEY = TopicPartition("orders", 0)
P0 = PartitionId(TOPIC_ID, 0)
OPEN_ID, CLOSED_ID, THIRD_ID = (bytes([200 + number] * 16) for number in range(3))


def opened(topic_id: bytes | None) -> Any:
    """A directory with a log of the name, of the topic with that id; None: without one."""
    return SimpleNamespace(
        properties=SimpleNamespace(directory_id=encode_uuid(OPEN_ID)),
        holds=lambda key: topic_id is not None and key == KEY,
        topic_id=lambda key: topic_id,
    )


def replicas(
    known: bytes,
    *,
    holds: bytes | None = None,
    closed: dict[str, bytes | None] | None = None,
) -> UnopenedReplicas:
    """``known``: where the metadata have the replica. ``closed``: the ids of the directories that
    are not open, by path."""
    closed = {"/closed": CLOSED_ID} if closed is None else closed
    directories = [Unopened(path, each, "a reason") for path, each in closed.items()]
    assignments = SimpleNamespace(of=lambda partition: known)
    return UnopenedReplicas(directories, cast(Any, [opened(holds)]), cast(Any, assignments))


@pytest.mark.parametrize(
    ("known", "holds", "is_taken"),
    [
        (CLOSED_ID, None, True),
        (THIRD_ID, None, True),  # of a directory that is no longer in the configuration
        (OPEN_ID, None, False),
        (UNASSIGNED, None, False),
        (MIGRATING, None, False),
        (LOST, None, True),
        (LOST, TOPIC_ID, False),  # here it is
        (LOST, bytes(16), True),  # the log is of an earlier topic of the name
    ],
)
def test_a_replica_is_taken_where_no_open_directory_has_it(
    known: bytes, holds: bytes | None, is_taken: bool
) -> None:
    """Otherwise it would begin anew, empty, as if it had never held a record."""
    unopened = replicas(known, holds=holds)
    assert unopened.takes(P0, "orders") is is_taken
    assert (P0 in unopened) is is_taken
    assert len(unopened) == is_taken
    unopened.forget(P0)
    assert P0 not in unopened


def test_nothing_is_taken_while_every_directory_is_open() -> None:
    assert not replicas(THIRD_ID, closed={}).takes(P0, "orders")


@pytest.mark.parametrize(
    ("closed", "path"),
    [
        ({"/a": CLOSED_ID}, "/a"),
        ({"/a": THIRD_ID, "/b": CLOSED_ID}, "/b"),
        ({"/a": None}, "/a"),  # the only one that it can be
        ({"/a": THIRD_ID, "/b": None}, "/b"),
        ({"/a": None, "/b": CLOSED_ID}, "/b"),
        ({"/a": None, "/b": None}, None),  # either
        ({"/a": THIRD_ID}, None),
    ],
)
def test_the_directory_of_a_replica_is_named_where_it_is_known(
    closed: dict[str, bytes | None], path: str | None
) -> None:
    unopened = replicas(CLOSED_ID, closed=closed)
    assert unopened.takes(P0, "orders")
    assert list(unopened) == [UnopenedReplica(KEY, path)]
