"""A group of either protocol."""

from __future__ import annotations

from broker.coordinator.group.classic import ClassicGroup
from broker.coordinator.group.consumer.group import ConsumerGroup

AnyGroup = ClassicGroup | ConsumerGroup
