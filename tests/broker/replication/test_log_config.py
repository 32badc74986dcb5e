"""The part of a topic's configuration that its logs use."""

from __future__ import annotations

from broker.replication.log_config import log_config
from metadata.config_keys import NODE_KEYS
from metadata.effective import effective_topic_config
from metadata.image import EMPTY
from storage.config import LogConfig


def test_a_log_has_the_defaults_of_the_keys() -> None:
    producers = NODE_KEYS["producer.id.expiration.ms"]
    assert producers.default is not None
    config = effective_topic_config(EMPTY, "t", static={})
    assert log_config(config, int(producers.default)) == LogConfig()
