"""What a replica manager knows of a broker that wants to replicate: by the newest image."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from broker.partition.effects import BrokerStatus
from broker.replication.replicas import Replicas
from metadata.image import MetadataImage
from tests.support.controller import Machine
from tests.support.timing import HandClock


@dataclass
class Published:
    """The metadata as published last."""

    image: MetadataImage


def test_the_status_of_a_broker_is_that_of_the_newest_image() -> None:
    machine = Machine()
    machine.brokers(1, 2)
    metadata = Published(machine.image)
    events: Any = SimpleNamespace()
    replicas = Replicas(
        1, HandClock(), metadata, events, lambda: False, tells_high_watermarks_at_once=False
    )
    own, unknown = machine.epoch_of(2), BrokerStatus()
    for _ in range(2):
        assert replicas.status(2) == BrokerStatus(own, eligible=True)
        assert replicas.status(7) == unknown

    machine.brokers(7)
    machine.fence(2)
    assert replicas.status(7) == unknown  # not published yet
    metadata.image = machine.image
    assert replicas.status(7) == BrokerStatus(machine.epoch_of(7), eligible=True)
    assert replicas.status(2) == BrokerStatus(own, eligible=False)
