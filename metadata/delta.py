"""From one image to the next: what a run of metadata records changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from immutables import Map

from metadata.features import REQUEST_OUTCOMES, SUPPORTED
from metadata.image import (
    BrokerRegistration,
    ConfigResource,
    Endpoint,
    FeatureRange,
    MetadataImage,
    PartitionState,
    Topic,
    metric_name,
)
from metadata.outcomes import NO_OUTCOMES, Outcome
from metadata.records import METADATA_VERSION, MetadataError, decode
from stele.wire.v1 import metadata_pb2 as pb

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class PartitionDelta:
    """One partition that was made or changed."""

    topic: str
    topic_id: bytes
    partition: int
    before: PartitionState | None  # None: it is new
    after: PartitionState


@dataclass(frozen=True, slots=True)
class BrokerDelta:
    """One broker whose registration or state changed."""

    broker_id: int
    before: BrokerRegistration | None
    after: BrokerRegistration | None


class MetadataDelta:
    """Collects records on top of ``image``; ``apply`` gives the next image.

    Records of one batch belong into one delta: a batch is one decision, and half of it is not
    a state the cluster was ever in.
    """

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.offset = image.offset
        self._features = image.features
        self._brokers = image.brokers
        self._controllers = image.controllers
        self._configs = image.configs
        self._next_producer_id = image.next_producer_id
        self._outcomes = image.outcomes
        self._topic_ids = image.topic_ids
        self._metric_names = image.metric_names
        # Topics made (with their partitions in the next field) and deleted; never both.
        self._created: dict[bytes, str] = {}
        self._deleted: dict[bytes, Topic] = {}
        self._partitions: dict[bytes, dict[int, PartitionState]] = {}
        self._touched_brokers: set[int] = set()
        self._touched_configs: set[ConfigResource] = set()
        self._result: MetadataImage | None = None

    @classmethod
    def between(cls, before: MetadataImage, after: MetadataImage) -> MetadataDelta:
        """What leads from one image to a later one, whatever records led there (a snapshot)."""
        delta = cls(before)
        delta.offset = after.offset
        delta._features = after.features
        delta._brokers = after.brokers
        delta._controllers = after.controllers
        delta._configs = after.configs
        delta._next_producer_id = after.next_producer_id
        delta._outcomes = after.outcomes
        delta._topic_ids = after.topic_ids
        delta._metric_names = after.metric_names
        delta._touched_brokers = _differing(before.brokers, after.brokers)
        delta._touched_configs = _differing(before.configs, after.configs)
        delta._deleted = {
            topic.topic_id: topic
            for topic in before.sorted_topics()
            if topic.topic_id not in after.topics
        }
        for topic in after.sorted_topics():
            delta._compare_topic(before.topic_by_id(topic.topic_id), topic)
        return delta

    def _compare_topic(self, before: Topic | None, after: Topic) -> None:
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

    # ---------------------------------------------------------------- replaying

    def replay(self, offset: int, record: pb.MetadataRecord) -> None:
        """Take in one record. Raises MetadataError when it does not fit what is there."""
        self.replay_all((record,), offset=offset)

    def replay_all(self, records: Iterable[pb.MetadataRecord], *, offset: int) -> None:
        """Take in records of which the last brings the image to ``offset``: a snapshot's."""
        if offset <= self.offset:
            raise MetadataError(f"record at {offset} replayed after offset {self.offset}")
        for record in records:
            kind = record.WhichOneof("record")
            handler = _HANDLERS.get(kind or "")
            if handler is None:
                raise MetadataError(f"record at {offset} is of an unknown kind")
            self._result = None
            handler(self, getattr(record, kind or ""))
        self._result = None
        self.offset = offset

    def replay_values(self, base_offset: int, values: Sequence[bytes]) -> None:
        """Take in the encoded records of one committed batch."""
        for position, value in enumerate(values):
            self.replay(base_offset + position, decode(value))

    def advance_to(self, offset: int) -> None:
        """Take in that nothing but the quorum's own control records follows up to ``offset``.

        So the same metadata have the same offset whether they come from the log or a snapshot.
        Raises MetadataError where the records replayed go further.
        """
        if offset < self.offset:
            raise MetadataError(f"{offset} is below {self.offset}, which was replayed")
        if offset > self.offset:
            self._result = None
            self.offset = offset

    def _feature_level(self, record: pb.FeatureLevelRecord) -> None:
        known = SUPPORTED.get(record.name, FeatureRange(record.name, 0, 0))
        if record.level not in known:
            raise MetadataError(
                f"{record.name} is {record.level}, and this node knows {known.min_level} to"
                f" {known.max_level}: upgrade it"
            )
        self._features = self._features.set(record.name, record.level)
        if record.name == METADATA_VERSION and record.level < REQUEST_OUTCOMES:
            self._outcomes = NO_OUTCOMES

    def _register_controller(self, record: pb.RegisterControllerRecord) -> None:
        self._controllers = self._controllers.set(record.controller_id, record.incarnation_id)

    def _register_broker(self, record: pb.RegisterBrokerRecord) -> None:
        registration = BrokerRegistration(
            broker_id=record.broker_id,
            broker_epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints=tuple(
                Endpoint(e.listener, e.host, e.port, e.protocol) for e in record.endpoints
            ),
            rack=record.rack or None,
            log_directories=tuple(record.log_directories),
            features=tuple(
                FeatureRange(each.name, each.min_level, each.max_level) for each in record.features
            ),
            inter_broker_listener=record.inter_broker_listener,
        )
        self._brokers = self._brokers.set(record.broker_id, registration)
        self._touched_brokers.add(record.broker_id)

    def _broker_of(self, broker_id: int, broker_epoch: int) -> BrokerRegistration:
        registration = self._brokers.get(broker_id)
        if registration is None or registration.broker_epoch != broker_epoch:
            raise MetadataError(f"no broker {broker_id} of epoch {broker_epoch} is registered")
        return registration

    def _unregister_broker(self, record: pb.UnregisterBrokerRecord) -> None:
        self._broker_of(record.broker_id, record.broker_epoch)
        self._brokers = self._brokers.delete(record.broker_id)
        self._touched_brokers.add(record.broker_id)

    def _broker_state(self, record: pb.BrokerStateRecord) -> None:
        registration = self._broker_of(record.broker_id, record.broker_epoch)
        changed = replace(
            registration,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            out_of_room=record.out_of_room,
        )
        self._brokers = self._brokers.set(record.broker_id, changed)
        self._touched_brokers.add(record.broker_id)

    def _topic(self, record: pb.TopicRecord) -> None:
        if record.name in self._topic_ids or self._exists(record.topic_id):
            raise MetadataError(f"topic {record.name} exists already")
        self._topic_ids = self._topic_ids.set(record.name, record.topic_id)
        self._set_metric_name(record.name, exists=True)
        self._created[record.topic_id] = record.name
        self._partitions[record.topic_id] = {}

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
            topic_id in self.image.topics and topic_id not in self._deleted
        )

    def _remove_topic(self, record: pb.RemoveTopicRecord) -> None:
        if not self._exists(record.topic_id):
            raise MetadataError(f"topic {record.topic_id.hex()} to be removed does not exist")
        created = self._created.pop(record.topic_id, None)
        if created is None:
            topic = self.image.topics[record.topic_id]
            self._deleted[record.topic_id] = topic
            name = topic.name
        else:
            name = created
        self._partitions.pop(record.topic_id, None)
        self._topic_ids = self._topic_ids.delete(name)
        self._set_metric_name(name, exists=False)
        resource = ConfigResource.topic(name)
        if resource in self._configs:
            self._configs = self._configs.delete(resource)
            self._touched_configs.add(resource)

    def _partition(self, record: pb.PartitionRecord) -> None:
        if not self._exists(record.topic_id):
            raise MetadataError(f"partition of unknown topic {record.topic_id.hex()}")
        state = PartitionState(
            replicas=tuple(record.replicas),
            isr=tuple(sorted(record.isr)),
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            elr=tuple(sorted(record.elr)),
            last_known_elr=tuple(sorted(record.last_known_elr)),
            adding_replicas=tuple(sorted(record.adding_replicas)),
            removing_replicas=tuple(sorted(record.removing_replicas)),
            original_replicas=tuple(record.original_replicas),
            leader_recovery_state=record.leader_recovery_state,
            unclean_elections=record.unclean_elections,
        )
        self._partitions.setdefault(record.topic_id, {})[record.partition] = state

    def _partition_change(self, record: pb.PartitionChangeRecord) -> None:
        if not self._exists(record.topic_id):
            raise MetadataError(f"change of a partition of unknown topic {record.topic_id.hex()}")
        changed = self._partitions.setdefault(record.topic_id, {})
        state = changed.get(record.partition)
        if state is None and record.topic_id not in self._created:
            state = self.image.partition(record.topic_id, record.partition)
        if state is None:
            raise MetadataError(
                f"change of unknown partition {record.topic_id.hex()}-{record.partition}"
            )
        changed[record.partition] = changed_state(state, record)

    def _config(self, record: pb.ConfigRecord) -> None:
        resource = ConfigResource(record.resource_type, record.resource_name)
        values: Map[str, str] = self._configs.get(resource, Map())
        if record.HasField("value"):
            values = values.set(record.name, record.value)
        elif record.name in values:
            values = values.delete(record.name)
        if values:
            self._configs = self._configs.set(resource, values)
        elif resource in self._configs:
            self._configs = self._configs.delete(resource)
        self._touched_configs.add(resource)

    def _producer_ids(self, record: pb.ProducerIdsRecord) -> None:
        if record.next_producer_id < self._next_producer_id:
            raise MetadataError("producer ids would be handed out twice")
        self._next_producer_id = record.next_producer_id

    def _request_outcome(self, record: pb.RequestOutcomeRecord) -> None:
        outcome = Outcome(record.request_id, record.method, record.digest, record.reply)
        try:
            self._outcomes = self._outcomes.with_(outcome)
        except ValueError as error:
            raise MetadataError(str(error)) from None

    def _no_op(self, record: pb.NoOpRecord) -> None:
        """Moves the offset only."""

    # ---------------------------------------------------------------- results

    def apply(self) -> MetadataImage:
        """The image after everything replayed so far."""
        if self._result is None:
            self._result = MetadataImage(
                offset=self.offset,
                features=self._features,
                brokers=self._brokers,
                topics=self._apply_topics(),
                topic_ids=self._topic_ids,
                metric_names=self._metric_names,
                configs=self._configs,
                controllers=self._controllers,
                next_producer_id=self._next_producer_id,
                outcomes=self._outcomes,
            )
        return self._result

    def _apply_topics(self) -> Map[bytes, Topic]:
        if not self._partitions and not self._deleted:
            return self.image.topics
        topics = self.image.topics.mutate()
        for topic_id in self._deleted:
            del topics[topic_id]
        for topic_id, changed in self._partitions.items():
            topics[topic_id] = self._apply_topic(topic_id, changed)
        return topics.finish()

    def _apply_topic(self, topic_id: bytes, changed: dict[int, PartitionState]) -> Topic:
        created = self._created.get(topic_id)
        before = self.image.topics[topic_id] if created is None else Topic(created, topic_id)
        partitions: list[PartitionState | None] = list(before.partitions)
        partitions += [None] * (max(changed, default=-1) + 1 - len(partitions))
        for number, state in changed.items():
            partitions[number] = state
        whole = tuple(state for state in partitions if state is not None)
        if len(whole) != len(partitions):
            raise MetadataError(f"topic {before.name} has a gap in its partition numbers")
        return Topic(before.name, topic_id, whole)

    @property
    def created_topics(self) -> list[Topic]:
        """Topics that are new in the next image, by name."""
        topics = self.apply().topics
        return sorted((topics[topic_id] for topic_id in self._created), key=_by_name)

    @property
    def deleted_topics(self) -> list[Topic]:
        """Topics of ``image`` that are gone, as they were, by name."""
        return sorted(self._deleted.values(), key=_by_name)

    @property
    def changed_partitions(self) -> list[PartitionDelta]:
        """New and changed partitions, by topic name and number; none of deleted topics."""
        topics = self.apply().topics
        deltas = []
        for topic_id, changed in self._partitions.items():
            name = topics[topic_id].name
            for number in sorted(changed):
                before = self.image.partition(topic_id, number)
                deltas.append(PartitionDelta(name, topic_id, number, before, changed[number]))
        return sorted(deltas, key=lambda delta: (delta.topic, delta.partition))

    @property
    def changed_brokers(self) -> list[BrokerDelta]:
        """Brokers registered, unregistered, fenced, unfenced or shutting down, by id."""
        return [
            BrokerDelta(broker_id, self.image.brokers.get(broker_id), self._brokers.get(broker_id))
            for broker_id in sorted(self._touched_brokers)
        ]

    @property
    def changed_configs(self) -> list[ConfigResource]:
        """Resources on which a dynamic configuration was set or removed, sorted."""
        return sorted(self._touched_configs)


def changed_state(state: PartitionState, record: pb.PartitionChangeRecord) -> PartitionState:
    """What a change record makes of a partition."""

    def ids(name: str, current: tuple[int, ...], *, ordered: bool = False) -> tuple[int, ...]:
        if not record.HasField(name):
            return current
        value = tuple(getattr(record, name).ids)
        return value if ordered else tuple(sorted(value))

    has_leader = record.HasField("leader")
    has_recovery = record.HasField("leader_recovery_state")
    return PartitionState(
        replicas=ids("replicas", state.replicas, ordered=True),
        isr=ids("isr", state.isr),
        leader=record.leader if has_leader else state.leader,
        leader_epoch=state.leader_epoch + has_leader,
        partition_epoch=state.partition_epoch + 1,
        elr=ids("elr", state.elr),
        last_known_elr=ids("last_known_elr", state.last_known_elr),
        adding_replicas=ids("adding_replicas", state.adding_replicas),
        removing_replicas=ids("removing_replicas", state.removing_replicas),
        original_replicas=ids("original_replicas", state.original_replicas, ordered=True),
        leader_recovery_state=(
            record.leader_recovery_state if has_recovery else state.leader_recovery_state
        ),
        unclean_elections=state.unclean_elections + record.unclean,
    )


def replay_values(image: MetadataImage, base_offset: int, values: Sequence[bytes]) -> MetadataImage:
    """The image after one committed batch, for those who need no delta."""
    delta = MetadataDelta(image)
    delta.replay_values(base_offset, values)
    return delta.apply()


def _differing(before: Map[K, Any], after: Map[K, Any]) -> set[K]:
    """The keys that only one of the two has, or under which they hold different values."""
    gone = {key for key in before if key not in after}
    return gone | {key for key, value in after.items() if before.get(key) != value}


def _by_name(topic: Topic) -> str:
    return topic.name


_HANDLERS: dict[str, Callable[[MetadataDelta, Any], None]] = {
    "feature_level": MetadataDelta._feature_level,
    "register_controller": MetadataDelta._register_controller,
    "register_broker": MetadataDelta._register_broker,
    "unregister_broker": MetadataDelta._unregister_broker,
    "broker_state": MetadataDelta._broker_state,
    "topic": MetadataDelta._topic,
    "remove_topic": MetadataDelta._remove_topic,
    "partition": MetadataDelta._partition,
    "partition_change": MetadataDelta._partition_change,
    "config": MetadataDelta._config,
    "producer_ids": MetadataDelta._producer_ids,
    "no_op": MetadataDelta._no_op,
    "request_outcome": MetadataDelta._request_outcome,
}
