"""The topics of one Fetch: their names ↔ the ids that sessions and logs go by."""

from __future__ import annotations

from typing import Final

from broker.service.context import BrokerContext
from broker.service.topics import NO_TOPIC_ID, Topics, error_by_name
from metadata.topics import Topic
from runtime.authorization.authorizer import CLUSTER, Operation
from runtime.authorization.caller import Caller
from stele.errors import ErrorCode
from stele.ids import PartitionId

_NO_ID: Final = bytes(17)
"""Begins the key of a topic that does not exist: this and its name, instead of an id."""


def readable_topics(context: BrokerContext, caller: Caller, *, replica_id: int = -1) -> Topics:
    """The topics that the caller may read. A request with a replica id needs a broker's
    permission."""
    if replica_id >= 0:
        return Topics(context, caller, Operation.CLUSTER_ACTION, CLUSTER)
    return Topics(context, caller, Operation.READ)


class FetchTopics:
    """The topics that a request names, each by its key: its id."""

    __slots__ = ("_by_id", "_found", "_names", "_topics")

    def __init__(self, topics: Topics, *, by_id: bool) -> None:
        """``by_id``: the request names topics by their ids, and so does its answer."""
        self._topics = topics
        self._by_id = by_id
        self._names: dict[bytes, str] = {}
        self._found: dict[bytes, Topic | ErrorCode] = {}

    def key(self, topic: str, topic_id: bytes) -> bytes:
        """The topic's id. A name that does not exist gets a key that no topic has."""
        if self._by_id:
            return topic_id
        known = self._topics.image.topic(topic)
        key = known.topic_id if known else _NO_ID + topic.encode()
        self._names[key] = topic
        return key

    def name(self, key: bytes) -> str:
        """The name to answer with (left out of the answer where ids are used)."""
        if key in self._names or self._by_id:
            return self._names.get(key, "")
        topic = self._topics.image.topic_by_id(key)  # of an earlier request of the session
        return topic.name if topic else ""

    def refusal(self, partition: PartitionId) -> ErrorCode | None:
        """The error of a partition that is not in the metadata, or not for the caller to read."""
        found = self._found.get(partition.topic_id)
        if found is None:
            found = self._found[partition.topic_id] = self._find(partition.topic_id)
        if not isinstance(found, Topic):
            return found
        if not 0 <= partition.partition < len(found.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return None

    def _find(self, key: bytes) -> Topic | ErrorCode:
        if len(key) > len(NO_TOPIC_ID):
            return self._topics.named(key.removeprefix(_NO_ID).decode())
        found = self._topics.identified(key)
        return self.error(found) if isinstance(found, ErrorCode) else found

    def error(self, found: ErrorCode) -> ErrorCode:
        """In the words of the request."""
        return found if self._by_id else error_by_name(found)
