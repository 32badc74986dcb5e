"""The topics that a member of a consumer group subscribes to by a regular expression (KIP-848)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from broker.coordinator.group.consumer.records import ResolvedRegex
from broker.service.context import BrokerContext
from metadata.internal_topics import INTERNAL_TOPICS
from metadata.name_pattern import NamePattern, PatternError
from runtime.authorization.authorizer import Operation, topic_resource
from runtime.authorization.caller import Caller
from stele.errors import ApiError, ErrorCode

_WORK_A_TURN = 10_000


async def _matches(pattern: NamePattern, name: str) -> bool:
    """Other tasks run after some milliseconds of work."""
    before = pattern.work // _WORK_A_TURN
    is_match = pattern.matches(name)
    if pattern.work // _WORK_A_TURN > before:
        await asyncio.sleep(0)
    return is_match


async def matching_names(regex: str, names: Sequence[str], *, of_topics: bool = True) -> list[str]:
    """The names that all of the expression stands for, in their order. Raises ApiError
    INVALID_REGULAR_EXPRESSION, also for one that takes too long."""
    try:
        pattern = NamePattern(regex, of_topics=of_topics)
        return [name for name in names if await _matches(pattern, name)]
    except PatternError as error:
        raise ApiError(
            ErrorCode.INVALID_REGULAR_EXPRESSION, f"the regular expression {regex[:100]}: {error}"
        ) from None


async def resolve(context: BrokerContext, caller: Caller, regex: str) -> ResolvedRegex:
    """The topics of the newest image that match and that the caller may DESCRIBE. Internal topics
    never match.

    Raises ApiError INVALID_REGULAR_EXPRESSION, also for one that takes too long.
    """
    image = context.image()
    names = sorted(name for name in image.topics.ids if name not in INTERNAL_TOPICS)
    found = await matching_names(regex, names)
    may = context.authorizer.allows
    return ResolvedRegex(
        tuple(each for each in found if may(caller, Operation.DESCRIBE, topic_resource(each))),
        image.offset,
        int(context.clock.time_ms()),
    )
