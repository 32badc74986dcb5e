"""Internal topics as a broker wants them made."""

from __future__ import annotations

import pytest

from broker.service.internal_topics import group_topic, transaction_topic
from runtime.config.node import from_settings
from tests.support.broker_apis import SETTINGS
from tests.support.controller import Machine

GROUPS = "offsets.topic.replication.factor"
TRANSACTIONS = "transaction.state.log.replication.factor"


@pytest.mark.parametrize(
    ("brokers", "settings", "factors"),
    [
        (1, {}, (1, 1)),
        (2, {}, (2, 2)),
        (4, {}, (3, 3)),
        (1, {GROUPS: "3"}, (3, 1)),
        (1, {TRANSACTIONS: "2"}, (1, 2)),
        (4, {GROUPS: "2", TRANSACTIONS: "1"}, (2, 1)),
    ],
)
def test_a_default_replication_factor_follows_the_brokers_and_one_that_is_set_stays(
    brokers: int, settings: dict[str, str], factors: tuple[int, int]
) -> None:
    machine = Machine()
    machine.brokers(*range(1, brokers + 1))
    config = from_settings({**SETTINGS, **settings})
    made = [topic(config, machine.image) for topic in (group_topic, transaction_topic)]
    assert tuple(each.replication_factor for each in made) == factors


def test_fenced_brokers_count() -> None:
    """They come back, and a topic keeps the replication factor with which it was made."""
    machine = Machine()
    machine.brokers(1, 2, 3)
    machine.fence(2)
    assert group_topic(from_settings(SETTINGS), machine.image).replication_factor == 3
