"""Who may change what: the requests of ``stele.v1.Admin`` that change something, item by item.

A broker asks this before it forwards a change, the controller before it decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from google.protobuf.message import Message

from metadata.image import MetadataImage
from runtime.authorization.authorizer import (
    ANY_TOPIC,
    CLUSTER,
    Authorizer,
    Operation,
    config_resource,
    refusal,
    topic_resource,
)
from runtime.authorization.caller import Caller
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import admin_pb2 as pb


class _Asked(NamedTuple):
    """Whom to ask, about whom, and by which metadata."""

    authorizer: Authorizer
    caller: Caller
    image: MetadataImage


class _Items(NamedTuple):
    """How a change of many things names them: each may be refused to the caller by itself."""

    lists: tuple[str, ...]  # fields of the request; the answer has a result for each item, in order
    results: str  # the answer's field
    refusal: Callable[[_Asked, Any], ApiError | None]
    named: Callable[[Any], dict[str, Any]]  # what tells an item, in its result


def _creation(asked: _Asked, topic: pb.NewTopic) -> ApiError | None:
    """Who may make topics in the cluster may make any; others those that they are given."""
    if asked.authorizer.allows(asked.caller, Operation.CREATE, CLUSTER):
        return None
    return refusal(asked.authorizer, asked.caller, Operation.CREATE, topic_resource(topic.name))


def _deletion(asked: _Asked, item: str | bytes) -> ApiError | None:
    """Of a name or an id. Who knows only an id is not told the name."""
    if isinstance(item, str):
        return refusal(asked.authorizer, asked.caller, Operation.DELETE, topic_resource(item))
    topic = asked.image.topic_by_id(item)
    if topic is None:
        # The controller may know it by now. What it is called matters to whom some are forbidden.
        if asked.authorizer.allows(asked.caller, Operation.DELETE, ANY_TOPIC):
            return None
        return ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic of this id is known here yet")
    if _deletion(asked, topic.name) is None:
        return None
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ApiError(error, f"{asked.caller.principal} may not DELETE the topic of this id")


def _growth(asked: _Asked, topic: pb.CreatePartitionsRequest.Topic) -> ApiError | None:
    return refusal(asked.authorizer, asked.caller, Operation.ALTER, topic_resource(topic.name))


def _alteration(asked: _Asked, altered: pb.AlterConfigsRequest.Resource) -> ApiError | None:
    return refusal(
        asked.authorizer,
        asked.caller,
        Operation.ALTER_CONFIGS,
        config_resource(altered.resource.type, altered.resource.name),
    )


_BY_ITEM: Mapping[type[Message], _Items] = {
    pb.CreateTopicsRequest: _Items(
        ("topics",), "topics", _creation, lambda topic: {"name": topic.name}
    ),
    pb.DeleteTopicsRequest: _Items(
        ("names", "topic_ids"),
        "topics",
        _deletion,
        lambda item: {"name": item} if isinstance(item, str) else {"topic_id": item},
    ),
    pb.CreatePartitionsRequest: _Items(
        ("topics",), "topics", _growth, lambda topic: {"name": topic.name}
    ),
    pb.AlterConfigsRequest: _Items(
        ("resources",), "resources", _alteration, lambda altered: {"resource": altered.resource}
    ),
}
"""All other changes are of the cluster."""


class Refused:
    """The items of a change that its caller may not make, and their places in the answer."""

    def __init__(self, field: str, results: Sequence[dict[str, Any] | None]) -> None:
        """``field``: of the answer. ``results``: of each item of the request as it was; None: it is
        not refused."""
        self._field = field
        self._results = results

    @property
    def is_everything(self) -> bool:
        """Whether nothing is left to be decided."""
        return bool(self._results) and all(self._results)

    def place(self, answer: Any) -> None:
        """Put the results of refused items between those that were given to the others."""
        if not any(self._results):
            return
        told = getattr(answer, self._field)
        decided = iter(list(told))
        del told[:]
        for result in self._results:
            if result is not None:
                told.add(**result)
            else:
                told.append(next(decided))


def take_refused(
    authorizer: Authorizer, image: MetadataImage, caller: Caller, request: Any
) -> Refused:
    """Take out of a change what the caller may not change. Raises ApiError for a change of the
    cluster that the caller may not make."""
    items = _BY_ITEM.get(type(request))
    if items is None:
        if (why := refusal(authorizer, caller, Operation.ALTER, CLUSTER)) is not None:
            raise why
        return Refused("", ())
    asked = _Asked(authorizer, caller, image)
    results: list[dict[str, Any] | None] = []
    for name in items.lists:
        listed = getattr(request, name)
        refusals = [items.refusal(asked, item) for item in listed]
        results += [
            None
            if why is None
            else {**items.named(item), "error": why.code, "message": why.message}
            for item, why in zip(listed, refusals, strict=True)
        ]
        for index in reversed([i for i, why in enumerate(refusals) if why is not None]):
            del listed[index]
    return Refused(items.results, results)
