"""The topics of an image, with their partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from immutables import Map

from metadata.partitions import (
    PartitionState,
    changed_state,
    record_of,
    state_of,
    without_directories,
)
from metadata.records import MetadataError
from stele.ids import encode_uuid
from stele.wire.v1 import metadata_pb2 as pb


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic."""

    name: str
    topic_id: bytes  # 16 bytes; a topic deleted and created again has another
    partitions: tuple[PartitionState, ...] = ()  # by number: from 0, without gaps


def metric_name(topic: str) -> str:
    """A topic's name as it stands in the names of metrics, where a dot becomes an underscore
    (Kafka's Topic.unifyCollisionChars)."""
    return topic.replace(".", "_")


@dataclass(frozen=True, slots=True)
class Topics(Mapping[bytes, Topic]):
    """By topic id. The maps' own order differs from process to process: ``sorted``."""

    by_id: Map[bytes, Topic] = field(default_factory=Map)
    ids: Map[str, bytes] = field(default_factory=Map)  # name → id of exactly `by_id`
    # metric name → the topics' names that become it, ascending; only names with a dot or an
    # underscore. There is one name each, unless topics were made before collisions were refused.
    metric_names: Map[str, tuple[str, ...]] = field(default_factory=Map)

    @classmethod
    def of(cls, topics: Iterable[Topic]) -> Topics:
        """All of these."""
        made = TopicsDelta(cls())
        for topic in topics:
            made.add(topic.name, topic.topic_id)
            for number, state in enumerate(topic.partitions):
                made.set_partition(topic.topic_id, number, state)
        return made.apply()

    def __getitem__(self, topic_id: bytes) -> Topic:
        return self.by_id[topic_id]

    def __contains__(self, topic_id: object) -> bool:
        return topic_id in self.by_id

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.by_id)

    def __len__(self) -> int:
        return len(self.by_id)

    def named(self, name: str) -> Topic | None:
        topic_id = self.ids.get(name)
        return None if topic_id is None else self.by_id[topic_id]

    def colliding(self, name: str) -> str | None:
        """A topic of another name that metrics could not tell from ``name``."""
        others = self.metric_names.get(metric_name(name), ())
        return next((other for other in others if other != name), None)

    def sorted(self) -> list[Topic]:
        """By name."""
        return [self.by_id[self.ids[name]] for name in sorted(self.ids)]

    def partition(self, topic_id: bytes, partition: int) -> PartitionState | None:
        topic = self.by_id.get(topic_id)
        if topic is None or not 0 <= partition < len(topic.partitions):
            return None
        return topic.partitions[partition]

    def replaced(self, topic: Topic) -> Topics:
        """With another state of a topic that is there."""
        return replace(self, by_id=self.by_id.set(topic.topic_id, topic))

    def begin(self) -> TopicsDelta:
        return TopicsDelta(self)

    def records(self) -> Iterator[pb.MetadataRecord]:
        for topic in self.sorted():
            yield pb.MetadataRecord(topic=pb.TopicRecord(name=topic.name, topic_id=topic.topic_id))
            for number, state in enumerate(topic.partitions):
                yield pb.MetadataRecord(partition=record_of(topic.topic_id, number, state))


@dataclass(frozen=True, slots=True)
class PartitionDelta:
    """One partition that was made or changed."""

    topic: str
    topic_id: bytes
    partition: int
    before: PartitionState | None  # None: it is new
    after: PartitionState


class TopicsDelta:
    """Topics made and deleted, partitions made and changed. What replays a record raises
    MetadataError."""

    def __init__(self, before: Topics) -> None:
        self._before = before
        self._ids = before.ids
        self._metric_names = before.metric_names
        # Topics made (with their partitions in the next field) and deleted; never both.
        self._created: dict[bytes, str] = {}
        self._deleted: dict[bytes, Topic] = {}
        self._partitions: dict[bytes, dict[int, PartitionState]] = {}
        self._result: Topics | None = before
        self._changed: list[PartitionDelta] | None = None  # known while nothing is replayed

    # ---------------------------------------------------------------- replaying

    def add(self, name: str, topic_id: bytes) -> None:
        """A topic is made."""
        if name in self._ids or self._exists(topic_id):
            raise MetadataError(f"topic {name} exists already")
        self._result = self._changed = None
        self._ids = self._ids.set(name, topic_id)
        self._set_metric_name(name, exists=True)
        self._created[topic_id] = name
        self._partitions[topic_id] = {}

    def remove(self, topic_id: bytes) -> str:
        """A topic is deleted; its name."""
        if not self._exists(topic_id):
            raise MetadataError(f"topic {encode_uuid(topic_id)} to be removed does not exist")
        self._result = self._changed = None
        name = self._created.pop(topic_id, None)
        if name is None:
            self._deleted[topic_id] = self._before[topic_id]
            name = self._before[topic_id].name
        self._partitions.pop(topic_id, None)
        self._ids = self._ids.delete(name)
        self._set_metric_name(name, exists=False)
        return name

    def _set_metric_name(self, topic: str, *, exists: bool) -> None:
        key = metric_name(topic)
        if "_" not in key:
            return  # nothing can collide with it
        names = {*self._metric_names.get(key, ()), topic} - (set() if exists else {topic})
        if names:
            self._metric_names = self._metric_names.set(key, tuple(sorted(names)))
        else:
            self._metric_names = self._metric_names.delete(key)

    def _exists(self, topic_id: bytes) -> bool:
        return topic_id in self._created or (
            topic_id in self._before and topic_id not in self._deleted
        )

    def replay_partition(self, record: pb.PartitionRecord) -> None:
        """A partition is made."""
        self.set_partition(record.topic_id, record.partition, state_of(record))

    def replay_change(self, record: pb.PartitionChangeRecord) -> None:
        """A partition is changed."""
        topic_id, number = record.topic_id, record.partition
        if not self._exists(topic_id):
            raise MetadataError(f"change of a partition of unknown topic {encode_uuid(topic_id)}")
        state = self._partitions.get(topic_id, {}).get(number)
        if state is None and topic_id not in self._created:
            state = self._before.partition(topic_id, number)
        if state is None:
            raise MetadataError(f"change of unknown partition {encode_uuid(topic_id)}-{number}")
        self.set_partition(topic_id, number, changed_state(state, record))

    def forget_directories(self) -> None:
        """No directory of any replica is known any more."""
        for topic in self.apply().sorted():
            changed = {
                number: without_directories(state)
                for number, state in enumerate(topic.partitions)
                if state.directories
            }
            if changed:
                self._partitions.setdefault(topic.topic_id, {}).update(changed)
                self._result = self._changed = None

    def set_partition(self, topic_id: bytes, number: int, state: PartitionState) -> None:
        """A partition is made or changed."""
        if not self._exists(topic_id):
            raise MetadataError(f"partition of unknown topic {encode_uuid(topic_id)}")
        self._result = self._changed = None
        self._partitions.setdefault(topic_id, {})[number] = state

    def skip_to(self, after: Topics) -> None:
        """To be called before anything else was taken in."""
        self._ids, self._metric_names = after.ids, after.metric_names
        self._deleted = {
            topic.topic_id: topic for topic in self._before.sorted() if topic.topic_id not in after
        }
        for topic in after.sorted():
            self._compare(self._before.get(topic.topic_id), topic)
        self._result, self._changed = after, None

    def _compare(self, before: Topic | None, after: Topic) -> None:
        if before == after:
            return
        if before is None:
            self._created[after.topic_id] = after.name
        known = () if before is None else before.partitions
        if len(known) > len(after.partitions):
            raise MetadataError(f"topic {after.name} has lost partitions")
        self._partitions[after.topic_id] = {
            number: state
            for number, state in enumerate(after.partitions)
            if number >= len(known) or known[number] != state
        }

    # ---------------------------------------------------------------- results

    def apply(self) -> Topics:
        if self._result is None:
            self._result = Topics(self._apply(), self._ids, self._metric_names)
        return self._result

    def _apply(self) -> Map[bytes, Topic]:
        topics = self._before.by_id.mutate()
        for topic_id in self._deleted:
            del topics[topic_id]
        for topic_id, changed in self._partitions.items():
            topics[topic_id] = self._apply_topic(topic_id, changed)
        return topics.finish()

    def _apply_topic(self, topic_id: bytes, changed: dict[int, PartitionState]) -> Topic:
        created = self._created.get(topic_id)
        before = self._before[topic_id] if created is None else Topic(created, topic_id)
        partitions: list[PartitionState | None] = list(before.partitions)
        partitions += [None] * (max(changed, default=-1) + 1 - len(partitions))
        for number, state in changed.items():
            partitions[number] = state
        whole = tuple(state for state in partitions if state is not None)
        if len(whole) != len(partitions):
            raise MetadataError(f"topic {before.name} has a gap in its partition numbers")
        return Topic(before.name, topic_id, whole)

    @property
    def created(self) -> list[Topic]:
        """Topics that are new, by name."""
        topics = self.apply()
        return sorted((topics[topic_id] for topic_id in self._created), key=_by_name)

    @property
    def deleted(self) -> list[Topic]:
        """Topics that are gone, as they were, by name."""
        return sorted(self._deleted.values(), key=_by_name)

    @property
    def changed_partitions(self) -> list[PartitionDelta]:
        """New and changed partitions, by topic name and number; none of deleted topics."""
        topics = self.apply()
        if self._changed is None:
            self._changed = self._compare_partitions(topics)
        return self._changed

    def _compare_partitions(self, topics: Topics) -> list[PartitionDelta]:
        deltas = []
        for topic_id, changed in self._partitions.items():
            name = topics[topic_id].name
            for number in sorted(changed):
                before = self._before.partition(topic_id, number)
                deltas.append(PartitionDelta(name, topic_id, number, before, changed[number]))
        return sorted(deltas, key=lambda delta: (delta.topic, delta.partition))


def _by_name(topic: Topic) -> str:
    return topic.name
