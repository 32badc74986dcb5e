"""The changes that administrators ask for: rights, quotas, repeated requests, answers.

``controller.administration`` has what is decided about each of them.
"""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from typing import Any, Final

from controller.active import DecisionMaker
from controller.administration import DECISIONS
from controller.heartbeats import Heartbeats
from controller.machine import Context, ControllerResult, check_size
from controller.mutation_quotas import MutationLimit
from controller.request_ids import once
from runtime.administration.changes import Change
from runtime.administration.parts import in_parts, parts_in_turns
from runtime.administration.refused import take_refused
from runtime.authorization.authorizer import Operation, topic_resource
from runtime.authorization.caller import Caller
from runtime.authorization.forwarding import ControllerPort, is_copy, may_exceed_quota
from stele.errors import ApiError, ErrorCode, OutcomeUnknownError
from stele.world import Clock
from world.network import Peer

logger = logging.getLogger(__name__)

APPLIED_EVERYWHERE_S: Final = 2.0
"""How long the answer to a change of ACLs or credentials waits for brokers. A broker gives up on an
attempt after 5 s."""

_OF_EVERY_COPY: Final = (
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.REQUEST_TIMED_OUT,
)
"""Errors that stay as they are for a copy of a request: this controller decides nothing, every copy
is as invalid as this one, or the outcome is unknown already."""


class Changes:
    """Makes them. A request with an id takes effect once."""

    def __init__(
        self, port: ControllerPort, decisions: DecisionMaker, heartbeats: Heartbeats, clock: Clock
    ) -> None:
        self._port = port
        self._decisions = decisions
        self._heartbeats = heartbeats
        self.mutations: Final = MutationLimit(clock)

    async def make(self, change: Change, request: Any, peer: Peer) -> Any:
        """The answer to a request. Brokers divide a change of many items. Other callers may send
        all of it. Raises ApiError."""
        if (items := change.items) is not None:
            check_size(sum(len(getattr(request, name)) for name in items.lists), items.what)
        parts = await parts_in_turns(request)
        if len(parts) == 1:
            answer = await self._decided(change, request, peer)
        else:
            answer = await in_parts(
                request, parts, lambda part: self._decided(change, part, peer), lambda: math.inf
            )
        if change.waits_for_brokers and answer.error == ErrorCode.NONE:
            await self._wait_for_brokers(change, answer)
        return answer

    async def _decided(self, change: Change, request: Any, peer: Peer) -> Any:
        """The answer to one decision."""
        repeats, may_exceed = is_copy(request), may_exceed_quota(request)
        caller = self._port.caller(request, peer)

        def decided(context: Context) -> ControllerResult[Any]:
            return once(
                context,
                change.name,
                request,
                change.response,
                lambda context, request: self._result(
                    change, context, caller, request, may_exceed=may_exceed
                ),
                self._decisions.refusals,
                repeats=repeats,
            )

        try:
            return await self._decisions.decide(decided, request_id=request.request_id)
        except ApiError as error:
            if not repeats or error.code in _OF_EVERY_COPY:
                raise
            # Refused without an outcome in the log: an earlier copy may still be accepted.
            raise OutcomeUnknownError.because(error.message, request.request_id) from error

    def _result(
        self, change: Change, context: Context, caller: Caller, request: Any, *, may_exceed: bool
    ) -> ControllerResult[Any]:
        """Decides about the items that the caller may change, and refuses the others. Its rights
        are those of the image that the decision changes."""
        authorizer = self._port.authorizer.over(context.image.acls)
        refused = take_refused(authorizer, context.image, caller, request)
        mutation = self.mutations.begin(
            change, caller, context.image, request, may_exceed=may_exceed
        )
        if refused.is_everything or mutation.is_everything_held:
            result = ControllerResult((), context.image, change.response())
        else:
            of_caller = replace(
                context,
                principal=caller.principal,
                sees=lambda name: authorizer.allows(
                    caller, Operation.DESCRIBE, topic_resource(name)
                ),
            )
            with mutation:
                result = DECISIONS[change](of_caller, request)
        mutation.finish(result.reply)
        refused.place(result.reply)
        return result

    async def _wait_for_brokers(self, change: Change, answer: Any) -> None:
        """Hold the answer back until every live broker has applied the decision, and name those
        that have not in time."""
        offset = self._decisions.committed.offset
        lagging = await self._heartbeats.applied_everywhere(offset, APPLIED_EVERYWHERE_S)
        answer.lagging_brokers.extend(lagging)
        if lagging:
            logger.warning(
                "%s is in force, but brokers %s have not applied the metadata up to %d within %g s",
                change.name,
                lagging,
                offset,
                APPLIED_EVERYWHERE_S,
            )
