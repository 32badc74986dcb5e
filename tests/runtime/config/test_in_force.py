"""Settings of a node that are changed while it runs."""

from __future__ import annotations

import pytest

from metadata.configs import CLUSTER, ConfigResource
from metadata.delta import MetadataDelta
from metadata.image import EMPTY, MetadataImage
from runtime.config.in_force import in_force
from runtime.config.node import from_settings
from stele.wire.v1 import metadata_pb2 as pb
from tests.support.broker_apis import SETTINGS

BACKOFF, EXPIRATION = "log.cleaner.backoff.ms", "producer.id.expiration.ms"
OWN = ConfigResource.broker(1)


def with_values(*values: tuple[ConfigResource, str, str]) -> MetadataImage:
    delta = MetadataDelta(EMPTY)
    for offset, (resource, name, value) in enumerate(values):
        config = pb.ConfigRecord(
            resource_type=pb.ConfigResourceType.BROKER,
            resource_name=resource.name,
            name=name,
            value=value,
        )
        delta.replay(offset, pb.MetadataRecord(config=config))
    return delta.apply()


def test_the_value_of_the_broker_comes_before_the_clusters_and_the_files() -> None:
    config = from_settings(SETTINGS | {BACKOFF: "5", EXPIRATION: "6"})
    assert in_force(config, EMPTY, 1) is config
    found = in_force(config, with_values((CLUSTER, BACKOFF, "7"), (CLUSTER, EXPIRATION, "8")), 1)
    assert (found.log_cleaner_backoff_ms, found.producer_id_expiration_ms) == (7, 8)
    found = in_force(config, with_values((CLUSTER, BACKOFF, "7"), (OWN, BACKOFF, "9")), 1)
    assert (found.log_cleaner_backoff_ms, found.producer_id_expiration_ms) == (9, 6)
    others = with_values((ConfigResource.broker(2), BACKOFF, "9"))
    assert in_force(config, others, 1).log_cleaner_backoff_ms == 5


@pytest.mark.parametrize("name", ["node.id", "log.cleaner.enable", "log.retention.ms"])
def test_what_is_read_at_the_start_or_is_of_topics_stays(name: str) -> None:
    config = from_settings(SETTINGS)
    assert in_force(config, with_values((CLUSTER, name, "7")), 1) is config
