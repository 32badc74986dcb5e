"""Internal topics as a broker wants them made."""

from __future__ import annotations

import pytest

from broker.service.internal_topics import group_topic, made, share_topic, transaction_topic
from runtime.config.node import from_settings
from tests.support.broker_apis import SETTINGS, Edges
from tests.support.controller import Machine
from tests.support.worlds import virtual

GROUPS = "offsets.topic.replication.factor"
TRANSACTIONS = "transaction.state.log.replication.factor"
SHARES = "share.coordinator.state.topic.replication.factor"


@pytest.mark.parametrize(
    ("brokers", "settings", "factors"),
    [
        (1, {}, (1, 1, 1)),
        (2, {}, (2, 2, 2)),
        (4, {}, (3, 3, 3)),
        (1, {GROUPS: "3"}, (3, 1, 1)),
        (1, {TRANSACTIONS: "2"}, (1, 2, 1)),
        (1, {SHARES: "2"}, (1, 1, 2)),
        (4, {GROUPS: "2", TRANSACTIONS: "1"}, (2, 1, 3)),
    ],
)
def test_a_default_replication_factor_follows_the_brokers_and_one_that_is_set_stays(
    brokers: int, settings: dict[str, str], factors: tuple[int, int, int]
) -> None:
    machine = Machine()
    machine.brokers(*range(1, brokers + 1))
    config = from_settings({**SETTINGS, **settings})
    made = [topic(config, machine.image) for topic in (group_topic, transaction_topic, share_topic)]
    assert tuple(each.replication_factor for each in made) == factors


@pytest.mark.parametrize(
    ("settings", "others", "is_told"),
    [
        ({}, (), True),
        ({GROUPS: "1"}, (), False),
        ({}, (2, 3), False),
    ],
)
@virtual
async def test_a_warning_names_a_reduced_replication_factor(
    settings: dict[str, str],
    others: tuple[int, ...],
    caplog: pytest.LogCaptureFixture,
    *,
    is_told: bool,
) -> None:
    """A cluster that begins with one broker keeps one replica, unless somebody knows of it."""
    edges = Edges(**{key.replace(".", "_"): value for key, value in settings.items()})
    for broker_id in {2, 3} - {*others}:
        edges.unregister(broker_id)
    wanted = group_topic(edges.config, edges.publisher.image)
    topic = await made(edges.context, wanted)
    assert topic.name == wanted.name
    assert ("stele reassign gives it more" in caplog.text) == is_told
    caplog.clear()
    assert await made(edges.context, wanted) is topic
    assert caplog.text == ""


def test_fenced_brokers_count() -> None:
    """They come back, and a topic keeps the replication factor with which it was made."""
    machine = Machine()
    machine.brokers(1, 2, 3)
    machine.fence(2)
    assert group_topic(from_settings(SETTINGS), machine.image).replication_factor == 3
