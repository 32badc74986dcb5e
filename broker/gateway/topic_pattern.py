"""The topics of a subscription by a regular expression, as topics and permissions come and go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.gateway.refusals import stream_error
from broker.service.context import BrokerContext
from broker.service.group_regexes import matching_names
from metadata.acls import Acls
from metadata.internal_topics import INTERNAL_TOPICS
from runtime.authorization.authorizer import Operation, topic_resource
from runtime.authorization.caller import Caller
from stele.errors import ApiError, ErrorCode

TOPICS_MAX: Final = 1_000
"""The most topics of one subscription."""
_LOOK_S: Final = 3_600.0
_TOLD_MAX: Final = 100
"""Characters of an expression that errors repeat."""


class TopicPattern:
    """The topics that the caller may READ and whose whole name matches. Internal topics never
    match."""

    def __init__(self, context: BrokerContext, caller: Caller, expression: str) -> None:
        self._context = context
        self._caller = caller
        self._expression = expression
        # All topics and permissions, when they were last looked at.
        self._seen: Mapping[str, bytes] | None = None
        self._seen_acls: Acls | None = None

    async def topics(self) -> list[str]:
        """The topics of now, in the order of their names. Raises RpcError: the expression cannot be
        read, it takes too long, or it stands for too many."""
        image = self._context.image()
        self._seen, self._seen_acls = image.topics.ids, image.acls
        names = sorted(name for name in self._seen if name not in INTERNAL_TOPICS)
        metadata = {"topic_pattern": self._expression[:_TOLD_MAX]}
        try:
            found = await matching_names(self._expression, names)
        except ApiError as error:
            raise stream_error(error.code, error.message, metadata) from error
        may = self._context.authorizer.allows
        topics = [name for name in found if may(self._caller, Operation.READ, topic_resource(name))]
        if len(topics) > TOPICS_MAX:
            raise stream_error(
                ErrorCode.POLICY_VIOLATION,
                f"the expression stands for {len(topics)} topics, and a stream reads {TOPICS_MAX} "
                "at most",
                metadata,
            )
        return topics

    async def changed(self) -> None:
        """Wait until topics were created or deleted, or ACLs changed, since the last look."""
        seen, acls = self._seen, self._seen_acls
        while not await self._context.wait_until(
            lambda image: image.topics.ids is not seen or image.acls is not acls, _LOOK_S
        ):
            pass
