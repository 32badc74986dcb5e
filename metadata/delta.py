"""From one image to the next: the changes of a run of metadata records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from metadata.acls import AclsDelta
from metadata.brokers import BrokerDelta, BrokersDelta
from metadata.client_quotas import ClientQuotasDelta
from metadata.configs import ConfigResource, ConfigsDelta
from metadata.controllers import ControllersDelta
from metadata.delegation_tokens import DelegationTokensDelta
from metadata.directories import REPLICA_DIRECTORIES
from metadata.feature_levels import FeatureLevelsDelta, FeatureRange
from metadata.features import OUTCOME_TIMES, REQUEST_OUTCOMES, SUPPORTED
from metadata.image import PARTS, MetadataImage
from metadata.image_part import PartDelta
from metadata.outcomes import FIRST_LIMITS, LIMITS, Limits, OutcomesDelta
from metadata.producer_ids import ProducerIdsDelta
from metadata.records import METADATA_VERSION, MetadataError, decode
from metadata.scram_credentials import SCRAM_RECORDS, ScramCredentialsDelta
from metadata.topics import PartitionDelta, Topic, TopicsDelta
from stele.wire.v1 import metadata_pb2 as pb


class _Parts(NamedTuple):
    """The delta of each part of an image, named as there."""

    features: FeatureLevelsDelta
    controllers: ControllersDelta
    brokers: BrokersDelta
    topics: TopicsDelta
    configs: ConfigsDelta
    producer_ids: ProducerIdsDelta
    outcomes: OutcomesDelta
    acls: AclsDelta
    scram_credentials: ScramCredentialsDelta
    client_quotas: ClientQuotasDelta
    delegation_tokens: DelegationTokensDelta


class MetadataDelta:
    """Collects records on top of ``image``; ``apply`` gives the next image.

    Records of one batch belong into one delta: a batch is one decision, and half of it is not
    a state the cluster was ever in.
    """

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.offset = image.offset
        self._parts = _Parts(**{name: getattr(image, name).begin() for name in PARTS})
        self._result: MetadataImage | None = None

    @classmethod
    def between(cls, before: MetadataImage, after: MetadataImage) -> MetadataDelta:
        """What leads from one image to a later one, whatever records led there (a snapshot)."""
        delta = cls(before)
        delta.skip_to(after)
        return delta

    def skip_to(self, after: MetadataImage) -> None:
        """To be called before anything else was taken in. Raises MetadataError."""
        for name in PARTS:
            part: PartDelta = getattr(self._parts, name)
            part.skip_to(getattr(after, name))
        self.offset, self._result = after.offset, None

    # ---------------------------------------------------------------- replaying

    def replay(self, offset: int, record: pb.MetadataRecord) -> None:
        """Replay one record. Raises MetadataError if it does not fit the image."""
        self.replay_all((record,), offset=offset)

    def replay_all(self, records: Iterable[pb.MetadataRecord], *, offset: int) -> None:
        """Replay the records of a snapshot. The last one brings the image to ``offset``."""
        if offset <= self.offset:
            raise MetadataError(f"record at {offset} replayed after offset {self.offset}")
        for record in records:
            kind = record.WhichOneof("record")
            handler = _HANDLERS.get(kind or "")
            if handler is None:
                raise MetadataError(f"record at {offset} is of an unknown kind")
            self._result = None
            handler(self._parts, getattr(record, kind or ""))
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

    # ---------------------------------------------------------------- results

    def apply(self) -> MetadataImage:
        """The image after everything replayed so far."""
        if self._result is None:
            parts: dict[str, Any] = {name: getattr(self._parts, name).apply() for name in PARTS}
            self._result = MetadataImage(offset=self.offset, **parts)
        return self._result

    @property
    def created_topics(self) -> list[Topic]:
        """Topics that are new in the next image, by name."""
        return self._parts.topics.created

    @property
    def deleted_topics(self) -> list[Topic]:
        """Topics of ``image`` that are gone, as they were, by name."""
        return self._parts.topics.deleted

    @property
    def changed_partitions(self) -> list[PartitionDelta]:
        """New and changed partitions, by topic name and number; none of deleted topics."""
        return self._parts.topics.changed_partitions

    @property
    def changed_brokers(self) -> list[BrokerDelta]:
        """Brokers registered, unregistered, fenced, unfenced or shutting down, by id."""
        return self._parts.brokers.changed

    @property
    def changed_configs(self) -> list[ConfigResource]:
        """Resources on which a dynamic configuration was set or removed, sorted."""
        return sorted(self._parts.configs.touched)


def _feature_level(parts: _Parts, record: pb.FeatureLevelRecord) -> None:
    known = SUPPORTED.get(record.name, FeatureRange(record.name, 0, 0))
    if record.level not in known:
        raise MetadataError(
            f"{record.name} is {record.level}, and this node knows {known.min_level} to"
            f" {known.max_level}: upgrade it"
        )
    parts.features.replay(record)
    if record.name == METADATA_VERSION:
        if record.level < REQUEST_OUTCOMES:
            parts.outcomes.clear()
        if record.level < REPLICA_DIRECTORIES:
            parts.topics.forget_directories()
        if record.level < SCRAM_RECORDS:
            parts.scram_credentials.clear()
        parts.outcomes.keep_within(_outcome_limits(parts))


def _outcome_limits(parts: _Parts) -> Limits:
    level = parts.features.map.get(METADATA_VERSION, 1)
    return LIMITS if level >= OUTCOME_TIMES else FIRST_LIMITS


def _remove_topic(parts: _Parts, record: pb.RemoveTopicRecord) -> None:
    name = parts.topics.remove(record.topic_id)
    parts.configs.forget(ConfigResource.topic(name))


_HANDLERS: dict[str, Callable[[_Parts, Any], None]] = {
    "feature_level": _feature_level,
    "register_controller": lambda parts, record: parts.controllers.replay(record),
    "register_broker": lambda parts, record: parts.brokers.register(record),
    "unregister_broker": lambda parts, record: parts.brokers.unregister(record),
    "broker_state": lambda parts, record: parts.brokers.change_state(record),
    "topic": lambda parts, record: parts.topics.add(record.name, record.topic_id),
    "remove_topic": _remove_topic,
    "partition": lambda parts, record: parts.topics.replay_partition(record),
    "partition_change": lambda parts, record: parts.topics.replay_change(record),
    "config": lambda parts, record: parts.configs.replay(record),
    "producer_ids": lambda parts, record: parts.producer_ids.replay(record),
    "no_op": lambda parts, record: None,  # moves the offset only
    "request_outcome": lambda parts, record: parts.outcomes.replay(record, _outcome_limits(parts)),
    "acl": lambda parts, record: parts.acls.replay(record),
    "remove_acl": lambda parts, record: parts.acls.remove(record),
    "user_scram_credential": lambda parts, record: parts.scram_credentials.replay(record),
    "remove_user_scram_credential": lambda parts, record: parts.scram_credentials.remove(record),
    "scram_secret": lambda parts, record: parts.scram_credentials.set_secret(record),
    "client_quota": lambda parts, record: parts.client_quotas.replay(record),
    "delegation_token": lambda parts, record: parts.delegation_tokens.replay(record),
    "remove_delegation_token": lambda parts, record: parts.delegation_tokens.remove(record),
}


def replay_values(image: MetadataImage, base_offset: int, values: Sequence[bytes]) -> MetadataImage:
    """The image after one committed batch, for callers that need no delta."""
    delta = MetadataDelta(image)
    delta.replay_values(base_offset, values)
    return delta.apply()
