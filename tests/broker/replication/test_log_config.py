"""The part of a topic's configuration that its logs use."""

from __future__ import annotations

from broker.replication.log_config import log_config
from metadata.effective import effective_topic_config
from metadata.image import EMPTY
from runtime.config.node import from_settings
from storage.config import LogConfig
from tests.support.broker_apis import SETTINGS


def test_a_log_has_the_defaults_of_the_keys() -> None:
    config = effective_topic_config(EMPTY, "t", static={})
    assert log_config(config, from_settings(SETTINGS)) == LogConfig()


def test_a_log_has_what_the_node_says_of_producers() -> None:
    config = effective_topic_config(EMPTY, "t", static={})
    own = {"producer.id.expiration.ms": "5000", "producer.ids.max": "7"}
    made = log_config(config, from_settings(SETTINGS | own))
    assert (made.producer_id_expiration_ms, made.producer_ids_max) == (5000, 7)
