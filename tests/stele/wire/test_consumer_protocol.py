"""The bytes that members exchange, compared with aiokafka's and kafka-python's."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from hypothesis import given
from hypothesis import strategies as st

from stele.ids import TopicPartition
from stele.wire.consumer_protocol import (
    Assignment,
    ConsumerProtocolError,
    Subscription,
)

NAMES = st.text(max_size=6)
PARTITIONS = st.lists(st.builds(TopicPartition, NAMES, st.integers(0, 2**31 - 1)), unique=True).map(
    lambda found: tuple(sorted(found))
)
SUBSCRIPTIONS = st.builds(
    Subscription,
    st.lists(NAMES).map(tuple),
    st.none() | st.binary(max_size=8),
    PARTITIONS,
    st.integers(-1, 2**31 - 1),
    st.none() | NAMES,
)
ASSIGNMENTS = st.builds(Assignment, PARTITIONS, st.none() | st.binary(max_size=8))


@given(SUBSCRIPTIONS)
def test_a_subscription_is_read_as_it_was_written(subscription: Subscription) -> None:
    assert Subscription.decode(subscription.encode()) == subscription


@given(ASSIGNMENTS)
def test_an_assignment_is_read_as_it_was_written(assignment: Assignment) -> None:
    assert Assignment.decode(assignment.encode()) == assignment


@given(SUBSCRIPTIONS)
def test_another_client_reads_the_fields_that_it_knows(subscription: Subscription) -> None:
    theirs: Any = ConsumerProtocolMemberMetadata.decode(subscription.encode())
    assert tuple(theirs.subscription) == subscription.topics
    assert theirs.user_data == subscription.user_data


@given(ASSIGNMENTS)
def test_another_client_reads_an_assignment(assignment: Assignment) -> None:
    theirs: Any = ConsumerProtocolMemberAssignment.decode(assignment.encode())
    assert tuple(sorted(theirs.partitions())) == assignment.partitions
    assert theirs.user_data == assignment.user_data


def test_an_older_member_says_less() -> None:
    theirs = ConsumerProtocolMemberMetadata(0, ["t", "u"], b"data").encode()
    assert Subscription.decode(theirs) == Subscription(("t", "u"), b"data")


def test_a_newer_member_says_more() -> None:
    ours = Subscription(("t",), None, (TopicPartition("t", 1),), 7, "rack").encode()
    assert Subscription.decode(b"\0\x09" + ours[2:] + b"more") == Subscription.decode(ours)


@pytest.mark.parametrize(
    "data",
    [b"\0\3\0\0\0\2\0\1t", b"\xff\xff", b"\0\0\xff\xff\xff\xfe", b"\0\0\0\0\0\1\xff\xff", b"\0"],
)
def test_damaged_bytes_are_reported(data: bytes) -> None:
    with pytest.raises(ConsumerProtocolError):
        Subscription.decode(data)
    with pytest.raises(ConsumerProtocolError):
        Assignment.decode(data)


def test_no_bytes_are_an_empty_share() -> None:
    assert Assignment.decode(b"") == Assignment()


@given(st.binary(max_size=64))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for kind in (Subscription, Assignment):
        with contextlib.suppress(ConsumerProtocolError):
            kind.decode(data)
