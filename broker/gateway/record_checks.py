"""Records of thin clients, checked before they share a batch with records of other clients.

A leader refuses a batch as a whole. So whatever it would refuse because of one record is refused
here, for this record alone.
"""

from __future__ import annotations

from broker.gateway.lanes import BATCH_BYTES
from broker.gateway.refusals import Refusal
from broker.service.context import BrokerContext
from broker.service.topics import Topics
from metadata.effective import effective_topic_config
from metadata.topic_config import TopicConfig
from metadata.topics import Topic
from runtime.authorization.authorizer import Operation, refusal, transactional_id_resource
from runtime.authorization.caller import Caller
from stele.error_meanings import explain
from stele.errors import ErrorCode
from stele.ids import PartitionId
from stele.wire.batch import HEADER_SIZE

_TOPIC_WAIT_S = 1.0
"""How long a stream waits, once for each name, for a topic that may just have been created."""
_NAMES_MAX = 1_000


class Writable:
    """A topic to which a stream may write. What is asked for each record is computed once."""

    __slots__ = (
        "available",
        "batch_bytes",
        "config",
        "is_compacted",
        "partition_count",
        "partitions",
        "topic",
    )

    def __init__(self, topic: Topic, config: TopicConfig) -> None:
        self.topic = topic
        self.config = config
        self.partition_count = len(topic.partitions)
        self.partitions = [PartitionId(topic.topic_id, n) for n in range(self.partition_count)]
        self.available = [n for n, each in enumerate(topic.partitions) if each.leader >= 0] or [
            *range(self.partition_count)
        ]
        self.is_compacted = "compact" in config.cleanup_policy
        # The leader refuses a batch that is larger than max.message.bytes.
        self.batch_bytes = min(BATCH_BYTES, max(1, config.max_message_bytes - HEADER_SIZE))


class RecordChecks:
    """The checks of one stream."""

    def __init__(self, context: BrokerContext, caller: Caller) -> None:
        self._context = context
        self._caller = caller
        self._topics = Topics(context, caller, Operation.WRITE)
        self._found: dict[str, Writable | Refusal] = {}
        self._writable: dict[str, Writable] = {}  # by the metadata of `_topics`
        self._awaited: set[str] = set()

    def begin(self) -> None:
        """A message has come: look at the metadata and ask the authorizer anew."""
        self._look_again()
        self._found.clear()

    def transactional_id(self, transactional_id: str) -> Refusal | None:
        """Why the caller may not use it."""
        resource = transactional_id_resource(transactional_id)
        why = refusal(self._context.authorizer, self._caller, Operation.WRITE, resource)
        return None if why is None else Refusal(why.code, explain(why.code, why.message))

    def known(self, name: str) -> Writable | Refusal | None:
        """The result of ``topic`` for this message."""
        return self._found.get(name)

    async def topic(self, name: str) -> Writable | Refusal:
        """The topic, if the caller may write to it."""
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = await self._find(name)
        return found

    async def _find(self, name: str) -> Writable | Refusal:
        found = self._topics.named(name)
        if found is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and self._may_wait_for(name):
            await self._context.wait_until(lambda image: bool(image.topic(name)), _TOPIC_WAIT_S)
            self._look_again()
            found = self._topics.named(name)
        if isinstance(found, ErrorCode):
            return Refusal(found, f"topic {name!r}: {explain(found)}")
        writable = self._writable.get(name)
        if writable is None:
            config = effective_topic_config(
                self._topics.image,
                name,
                static=self._context.config.raw,
                broker_id=self._context.broker_id,
            )
            writable = self._writable[name] = Writable(found, config)
        return writable

    def _look_again(self) -> None:
        before = self._topics.image
        self._topics = Topics(self._context, self._caller, Operation.WRITE)
        if self._topics.image is not before:
            self._writable.clear()

    def _may_wait_for(self, name: str) -> bool:
        if name in self._awaited or len(self._awaited) >= _NAMES_MAX:
            return False
        self._awaited.add(name)
        return True


def fault_of(
    writable: Writable,
    *,
    key: bytes | None,
    timestamp_ms: int | None,
    partition: int | None,
    size: int,
    now_ms: int,
) -> Refusal | None:
    """Why a record cannot be written to the topic; None if it can. ``size``: its size bound in a
    batch."""
    topic, config = writable.topic, writable.config
    if partition is not None and not 0 <= partition < len(topic.partitions):
        return Refusal(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {topic.name!r} has partitions 0 to {len(topic.partitions) - 1}, "
            f"not {partition}",
        )
    if key is None and writable.is_compacted:
        message = f"topic {topic.name!r} is compacted: a record of it needs a key"
        return Refusal(ErrorCode.INVALID_RECORD, message)
    if timestamp_ms is not None and (why := _time_fault(config, timestamp_ms, now_ms)):
        return Refusal(ErrorCode.INVALID_TIMESTAMP, why)
    if size > config.max_message_bytes:
        return Refusal(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a record of about {size} bytes: topic {topic.name!r} takes "
            f"max.message.bytes={config.max_message_bytes}",
        )
    return None


def _time_fault(config: TopicConfig, timestamp_ms: int, now_ms: int) -> str | None:
    if timestamp_ms < 0:
        return f"the timestamp {timestamp_ms} ms is before 1970"
    if config.message_timestamp_type == "LogAppendTime":
        return None
    if timestamp_ms > now_ms + config.message_timestamp_after_max_ms:
        return f"the timestamp {timestamp_ms} ms is in the future"
    if timestamp_ms < now_ms - config.message_timestamp_before_max_ms:
        return f"the timestamp {timestamp_ms} ms is too long ago"
    return None
