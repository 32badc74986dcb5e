"""The coordinators of consumer groups of one broker: machines and configuration put together."""

from __future__ import annotations

import dataclasses
import uuid
from collections import Counter
from collections.abc import Iterator

from broker.coordinator.group.config import GroupConfig
from broker.coordinator.group.counters import GroupCounters
from broker.coordinator.group.machine import GroupMachine
from broker.coordinator.group.types import DeletedTopic, GroupState, GroupType, TopicsDeleted
from broker.coordinator.group_metadata import GroupMetadata
from broker.coordinator.runtime import CoordinatorRuntime, Host
from metadata.delta import MetadataDelta
from metadata.image import MetadataImage
from metadata.internal_topics import GROUP_TOPIC
from runtime.config.node import NodeConfig
from stele.ids import TopicPartition
from stele.world import Clock, Rng


class GroupCoordinators(CoordinatorRuntime[GroupMachine]):
    """The coordinators of the partitions of ``__consumer_offsets`` that ``host`` leads."""

    def __init__(self, config: NodeConfig, host: Host, *, clock: Clock, rng: Rng) -> None:
        """``rng`` draws the ids of new members."""
        keys = (each.name for each in dataclasses.fields(GroupConfig))
        group_config = GroupConfig(**{key: getattr(config, key) for key in keys})

        def new_uuid() -> str:
            return str(uuid.UUID(bytes=rng.randbytes(16), version=4))

        self._metadata = GroupMetadata(config.raw)
        self.group_counters = GroupCounters()
        super().__init__(
            GROUP_TOPIC,
            host=host,
            make_machine=lambda: GroupMachine(
                group_config,
                new_uuid,
                self.group_counters,
                self._metadata.topic_id_of,
                self._metadata,
            ),
            clock=clock,
            commit_timeout_ms=config.offsets_commit_timeout_ms,
        )

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Also have the offsets of deleted topics removed. A coordinator that is loaded later looks
        for them in the newest image by itself."""
        self._metadata.apply(image)
        super().apply(delta, image)
        deleted = tuple(DeletedTopic(each.name, each.topic_id) for each in delta.deleted_topics)
        if deleted:
            self.inform(TopicsDeleted(deleted))

    def groups_by_state(self) -> dict[str, float]:
        """How many groups this broker coordinates in each state, by the state's name."""
        counts: Counter[GroupState] = Counter()
        for machine in self.active:
            counts.update(machine.groups_by_state())
        states = (state for state in GroupState if state is not GroupState.DEAD)
        return {state.value: float(counts[state]) for state in states}

    def groups_by_protocol(self) -> dict[str, float]:
        """How many groups of each protocol this broker coordinates."""
        counts: Counter[GroupType] = Counter()
        for machine in self.active:
            counts.update(machine.groups_by_type())
        return {kind.value: float(counts[kind]) for kind in GroupType}

    def committed_offsets(self) -> Iterator[tuple[str, TopicPartition, int]]:
        """Group, partition and committed offset, of every group that is loaded here."""
        for machine in self.active:
            yield from machine.committed_offsets()

    @property
    def offset_count(self) -> int:
        """How many offsets the groups that are loaded here have committed."""
        return sum(machine.offset_count for machine in self.active)
