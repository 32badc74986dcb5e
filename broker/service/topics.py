"""The topics of one request: found in one image, and only if the caller may do the operation on
them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from broker.service.context import BrokerContext
from metadata.internal_topics import INTERNAL_TOPICS
from metadata.topics import Topic
from runtime.authorization.authorizer import Operation, Resource, refusal, topic_resource
from runtime.authorization.caller import Caller
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from stele.wire.kafka import ZERO_UUID
from storage.turns import SLICE_STEPS, Slices

NO_TOPIC_ID: Final = ZERO_UUID


def error_by_name(error: ErrorCode) -> ErrorCode:
    """The error for a client that asked by name. A topic may be deleted after its name was looked
    up, and clients that know no ids give up at UNKNOWN_TOPIC_ID."""
    if error is ErrorCode.UNKNOWN_TOPIC_ID:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return error


async def topic_refusal(
    context: BrokerContext, caller: Caller, operation: Operation, names: Iterable[str]
) -> ApiError | None:
    """Why the caller may not do this to one of the topics, the first such; None if it may do it to
    all of them. Each is looked at once, in slices: a member may name 65,000."""
    slices, seen = Slices(SLICE_STEPS), set[str]()
    for name in names:
        if name not in seen:
            seen.add(name)
            why = refusal(context.authorizer, caller, operation, topic_resource(name))
            if why is not None:
                return why
        await slices.step()
    return None


class Topics:
    """Looks topics up for one request, and asks the authorizer once for each.

    Only a permitted caller learns whether a name exists. Ids cannot be guessed, so any caller may
    learn that an id exists.
    """

    __slots__ = ("_authorizer", "_caller", "_found", "_operation", "_resource", "image")

    def __init__(
        self,
        context: BrokerContext,
        caller: Caller,
        operation: Operation,
        resource: Resource | None = None,
    ) -> None:
        """``resource``: what the operation is done to, where that is not each topic."""
        self.image = context.image()
        self._authorizer = context.authorizer
        self._caller = caller
        self._operation = operation
        self._resource = resource
        self._found: dict[str | bytes, Topic | ErrorCode] = {}

    def named(self, name: str) -> Topic | ErrorCode:
        """The topic, or the error to answer."""
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = self._find(name)
        return found

    def identified(self, topic_id: bytes) -> Topic | ErrorCode:
        """The topic, or the error to answer."""
        found = self._found.get(topic_id)
        if found is None:
            found = self.image.topic_by_id(topic_id) or ErrorCode.UNKNOWN_TOPIC_ID
            if isinstance(found, Topic):
                found = self._writable(found) if self.may(found.name) else self._denied(found.name)
            self._found[topic_id] = found
        return found

    def either(self, name: str, topic_id: bytes) -> Topic | ErrorCode:
        """The topic of an id, or of a name where only that is given; or the error to answer."""
        if topic_id == NO_TOPIC_ID and name:
            return self.named(name)
        return self.identified(topic_id)

    def partition(
        self, name: str | None, topic_id: bytes, partition: int
    ) -> PartitionId | ErrorCode:
        """The partition of an id's topic, or of a name's where no id is given; or the error."""
        if topic_id and topic_id != NO_TOPIC_ID:
            topic = self._found.get(topic_id) or self.identified(topic_id)
        else:
            topic = self._found.get(name or "") or self.named(name or "")
        if not isinstance(topic, Topic):
            return topic
        if not 0 <= partition < len(topic.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return PartitionId(topic.topic_id, partition)

    def _denied(self, name: str) -> ErrorCode:
        resource = self._resource or topic_resource(name)
        self._authorizer.note_denial(self._caller, self._operation, resource)
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def may(self, name: str) -> bool:
        """Whether the caller may do the operation to a topic of this name."""
        resource = self._resource or topic_resource(name)
        return self._authorizer.allows(self._caller, self._operation, resource)

    def _find(self, name: str) -> Topic | ErrorCode:
        if not self.may(name):
            return self._denied(name)
        topic = self.image.topic(name)
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else self._writable(topic)

    def _writable(self, topic: Topic) -> Topic | ErrorCode:
        if self._operation is Operation.WRITE and topic.name in INTERNAL_TOPICS:
            return ErrorCode.INVALID_TOPIC_EXCEPTION  # only coordinators write there
        return topic
