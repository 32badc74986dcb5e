"""The dead letter topic that a broker has the controller make."""

from __future__ import annotations

import pytest

from broker.service.letter_topics import make_letter_topic
from stele.errors import ApiError, ErrorCode
from tests.support.broker_apis import Edges
from tests.support.worlds import virtual

NAME = "dlq.orders"


@virtual
async def test_a_broker_has_a_topic_made_that_takes_dead_letters() -> None:
    edges = Edges()
    await make_letter_topic(edges.context, NAME)
    topic = edges.publisher.image.topic(NAME)
    assert topic is not None, "the broker waits until it knows the topic"
    ((wanted,),) = [each.topics for each in edges.controller.created]
    assert (wanted.partitions, wanted.replication_factor) == (-1, -1)
    assert dict(wanted.configs) == {"errors.deadletterqueue.group.enable": "true"}
    await make_letter_topic(edges.context, NAME)  # another broker came first
    assert edges.publisher.image.topic(NAME) is topic


@virtual
async def test_a_topic_that_cannot_be_made_is_named_with_the_reason() -> None:
    edges = Edges()
    edges.controller.refuse_with = ErrorCode.INVALID_REPLICATION_FACTOR
    with pytest.raises(ApiError) as refusal:
        await make_letter_topic(edges.context, NAME)
    assert refusal.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert refusal.value.message == (
        "the dead letter topic 'dlq.orders' cannot be made: no dlq.orders"
    )


@virtual
async def test_a_broker_without_a_controller_says_so() -> None:
    edges = Edges()
    edges.network.services.clear()
    with pytest.raises(ApiError) as refusal:
        await make_letter_topic(edges.context, NAME)
    assert refusal.value.message.startswith("the dead letter topic 'dlq.orders' cannot be made: ")
