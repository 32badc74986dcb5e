"""The parts of a coordinator's groups that the requests of both protocols work with."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from broker.coordinator.group.config import GroupConfig
from broker.coordinator.group.counters import GroupCounters
from broker.coordinator.group.deadlines import Deadlines
from broker.coordinator.group.registry import GroupRegistry


class GroupParts(NamedTuple):
    """The groups of one partition of ``__consumer_offsets``, and what belongs to all of them."""

    groups: GroupRegistry
    config: GroupConfig
    counters: GroupCounters
    deadlines: Deadlines
    new_uuid: Callable[[], str]
    """Makes the random part of a member id, or the id of a member that makes none itself."""
