"""All share partitions whose partitions this broker leads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Protocol

from broker.coordinator.share.types import StateKey
from broker.replication.deadlines import DeadlineWheel
from broker.sharing.dead_letters import LetterOffice
from broker.sharing.partition import LedSharePartition, SharedLog, States
from broker.sharing.settings import SharePartitionSettings
from metadata.delta import MetadataDelta
from metadata.image import MetadataImage
from runtime.config.node import NodeConfig
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from stele.world import Clock


class SharedLogs(Protocol):
    """``broker.replication.hosted.Hosting``."""

    def share(self, partition: PartitionId) -> SharedLog | None:
        """The partition, if this broker leads it and can work with its log."""
        ...


class SharePartitions:
    """Subscribes to the metadata behind the replica manager. One timer serves the locks of all of
    them."""

    def __init__(
        self,
        config: NodeConfig,
        logs: SharedLogs,
        states: States,
        *,
        image: Callable[[], MetadataImage],
        clock: Clock,
        office: LetterOffice,
    ) -> None:
        self._config = config
        self._logs = logs
        self._states = states
        self._image = image
        self._clock = clock
        self._deadlines = DeadlineWheel(clock)
        self._office = office
        self.measures: Final = office.measures
        # By partition, then by group.
        self._led: dict[PartitionId, dict[str, LedSharePartition]] = {}
        self._configs = image().configs, image().features
        self._is_stopped = False

    def __iter__(self) -> Iterator[LedSharePartition]:
        for groups in list(self._led.values()):
            yield from list(groups.values())

    @property
    def windows(self) -> Iterator[tuple[int, bool]]:
        """For each share partition the records in its window, and whether it may have no more."""
        for led in self:
            if (machine := led.machine) is not None:
                count = machine.end_offset - machine.start_offset
                yield count, count >= machine.limits.partition_max_record_locks

    @property
    def waiting_letters(self) -> int:
        """Records whose dead letters are not written yet."""
        return sum(led.machine.archiving_count for led in self if led.machine is not None)

    @property
    def troubled_letters(self) -> int:
        """Share partitions whose dead letters cannot be written now."""
        return sum(led.letter_trouble is not None for led in self)

    def find(self, group_id: str, partition: PartitionId) -> LedSharePartition | None:
        """One that a member has fetched from, if this broker leads the partition still."""
        found = self._led.get(partition, {}).get(group_id)
        if found is not None and not found.log.is_led:
            found.drop(_moved())
            return None
        return found

    def take(self, group_id: str, partition: PartitionId) -> LedSharePartition:
        """One to fetch from. Raises ApiError NOT_LEADER_OR_FOLLOWER."""
        found = self.find(group_id, partition)
        if found is not None and found.is_retired and found.writes_letters:
            # Its state may have been set anew since its last member left.
            found.drop(_moved())
            found = None
        if found is not None:
            found.is_retired = False
            return found
        log = None if self._is_stopped else self._logs.share(partition)
        if log is None or log.refusal is not ErrorCode.NONE:
            raise _moved()
        made = LedSharePartition(
            StateKey(group_id, *partition),
            log,
            self._settings(group_id),
            states=self._states,
            clock=self._clock,
            deadlines=self._deadlines,
            office=self._office,
            on_dropped=self._dropped,
        )
        self._led.setdefault(partition, {})[group_id] = made
        return made

    def of_group(self, group_id: str) -> list[LedSharePartition]:
        """The share partitions of a group that this broker leads still."""
        found = (
            self.find(group_id, each) for each, of in list(self._led.items()) if group_id in of
        )
        return [led for led in found if led is not None]

    def retire(self, group_id: str) -> None:
        """No member of the group reads from this broker any more."""
        for led in self.of_group(group_id):
            led.retire()

    def _settings(self, group_id: str) -> SharePartitionSettings:
        return SharePartitionSettings.of(self._image(), group_id, self._config.raw)

    def lock_duration_ms(self, group_id: str) -> int:
        return self._settings(group_id).limits.record_lock_duration_ms

    def _dropped(self, dropped: LedSharePartition) -> None:
        partition = PartitionId(*dropped.key[1:])
        groups = self._led.get(partition, {})
        if groups.get(dropped.key.group_id) is dropped:
            del groups[dropped.key.group_id]
            if not groups:
                del self._led[partition]

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Drop what this broker leads no more, and take over new configurations."""
        for change in delta.changed_partitions:
            self._look(PartitionId(change.topic_id, change.partition))
        if delta.deleted_topics:
            gone = {each.topic_id for each in delta.deleted_topics}
            for partition in [each for each in self._led if each.topic_id in gone]:
                self._drop_all(partition, ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "it was deleted"))
        settings = image.configs, image.features
        if any(new is not old for new, old in zip(settings, self._configs, strict=True)):
            self._configs = settings
            for led in self:
                led.configure(self._settings(led.key.group_id))

    def _look(self, partition: PartitionId) -> None:
        for led in list(self._led.get(partition, {}).values()):
            if not led.log.is_led:
                led.drop(_moved())

    def _drop_all(self, partition: PartitionId, why: ApiError) -> None:
        for led in list(self._led.get(partition, {}).values()):
            led.drop(why)

    async def stop(self) -> None:
        self._is_stopped = True
        for led in self:
            led.drop(_moved())
        self._deadlines.close()


def _moved() -> ApiError:
    return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker does not lead the partition")
