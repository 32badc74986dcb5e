"""The audit of denials and other refusals: one line of JSON each, and few lines whatever a client
asks for.

A consumer that is denied asks again for ever, several times a second. Its first denial is written
at once. The next line for the same principal, operation and resource comes after ``INTERVAL_S``,
and says how many there were in between.

The names of resources are the client's to invent, so there is also a budget of lines for each
principal, and one for the node. What is beyond a budget is counted: one line in ``INTERVAL_S`` says
how many denials of the principal, or of the node, were left out.
"""

from __future__ import annotations

import enum
import json
import math
from datetime import UTC, datetime
from typing import Final, NamedTuple

from metadata.acl import Operation, Resource

INTERVAL_S: Final = 60.0

PRINCIPAL_LINES: Final = 100
PRINCIPAL_LINES_PER_S: Final = 1.0
NODE_LINES: Final = 1_000
NODE_LINES_PER_S: Final = 10.0
"""The most lines at once, and then per second."""

REMEMBERED_MAX: Final = 10_000
"""The most principals with their operations and resources that are remembered. Then the oldest is
forgotten. The node's budget allows fewer lines within ``INTERVAL_S``, so that none is forgotten
before its next line may come."""


NAME_MAX: Final = 300
"""Longer names of resources and clients are cut off. A client may ask for a group with a name of
32 KiB."""


class Denial(NamedTuple):
    """What somebody was not allowed to do."""

    principal: str
    operation: Operation
    resource: Resource
    host: str
    client_id: str | None
    listener: str
    rule: str
    """As ``security.authorizer.decision.Verdict.rule``."""


class _Written(NamedTuple):
    at_s: float
    left_out: int


class _Budget:
    """How many lines may be written now."""

    __slots__ = ("_at_most", "_at_s", "_left", "_per_s")

    def __init__(self, at_most: int, per_s: float) -> None:
        self._at_most, self._per_s = at_most, per_s
        self._left, self._at_s = 0.0, -math.inf

    def is_spent(self, now_s: float) -> bool:
        self._left = min(self._at_most, self._left + (now_s - self._at_s) * self._per_s)
        self._at_s = now_s
        return self._left < 1

    def spend(self) -> None:
        self._left -= 1


_Key = tuple[str | None, Operation | None, Resource | None]


class Due(NamedTuple):
    """A line that is to be written."""

    is_count: bool
    """It only counts what is beyond a budget: that of ``principal``, or the node's if that is
    None."""
    principal: str | None
    left_out: int
    """Denials that were not written since the last such line."""


class AuditLimiter:
    """Decides which denials are written. It is asked before anything is made of a denial."""

    def __init__(self) -> None:
        # In the order in which they were written last.
        self._written: dict[_Key, _Written] = {}
        self._node = _Budget(NODE_LINES, NODE_LINES_PER_S)
        # In the order in which they first were denied something.
        self._principals: dict[str, _Budget] = {}

    def take(
        self, principal: str, operation: Operation, resource: Resource, now_s: float
    ) -> Due | None:
        """The line to write of a denial. None: it is left out, and counted."""
        if len(resource.name) > NAME_MAX:
            resource = resource._replace(name=resource.name[:NAME_MAX])
        key = principal, operation, resource
        if self._count_repeated(key, now_s):
            return None
        if self._node.is_spent(now_s):
            return self._beyond(None, now_s)
        own = self._budget_of(principal)
        if own.is_spent(now_s):
            return self._beyond(principal, now_s)
        self._node.spend()
        own.spend()
        return Due(False, principal, self._write(key, now_s))

    def _beyond(self, principal: str | None, now_s: float) -> Due | None:
        key = principal, None, None
        if self._count_repeated(key, now_s):
            return None
        if principal is not None:
            self._node.spend()
        return Due(True, principal, self._write(key, now_s) + 1)

    def _count_repeated(self, key: _Key, now_s: float) -> bool:
        """Whether there was a line for this within the interval."""
        last = self._written.get(key)
        if last is None or now_s >= last.at_s + INTERVAL_S:
            return False
        self._written[key] = _Written(last.at_s, last.left_out + 1)
        return True

    def _write(self, key: _Key, now_s: float) -> int:
        """How many were left out since the last line for this."""
        last = self._written.pop(key, None)
        if len(self._written) >= REMEMBERED_MAX:
            del self._written[next(iter(self._written))]
        self._written[key] = _Written(now_s, 0)
        return 0 if last is None else last.left_out

    def _budget_of(self, principal: str) -> _Budget:
        budget = self._principals.get(principal)
        if budget is None:
            if len(self._principals) >= REMEMBERED_MAX:
                del self._principals[next(iter(self._principals))]
            budget = _Budget(PRINCIPAL_LINES, PRINCIPAL_LINES_PER_S)
            self._principals[principal] = budget
        return budget


def line(denial: Denial, *, time_ms: int, left_out: int) -> str:
    """One object of JSON, without a line break whatever the names contain."""
    client_id = denial.client_id
    return json.dumps(
        {
            "time": _time(time_ms),
            "event": "denied",
            "principal": denial.principal,
            "operation": denial.operation.name,
            "resource_type": denial.resource.type.name,
            "resource_name": denial.resource.name[:NAME_MAX],
            "host": denial.host,
            "client_id": None if client_id is None else client_id[:NAME_MAX],
            "listener": denial.listener,
            "rule": denial.rule,
            "left_out": left_out,
        }
    )


def count_line(principal: str | None, *, time_ms: int, left_out: int) -> str:
    """The line that counts denials beyond the budget of a principal; None: beyond the node's."""
    return json.dumps(
        {
            "time": _time(time_ms),
            "event": "denials_left_out",
            "principal": principal,
            "left_out": left_out,
        }
    )


class Event(enum.Enum):
    """What else is audited beside denials. A reason may contain names that a client has chosen."""

    TLS_FAILED = "tls_failed"
    LOGIN_FAILED = "login_failed"
    CERTIFICATE_REFUSED = "certificate_refused"
    """A listener goes on with its old certificate."""
    CERTIFICATE_EXCHANGED = "certificate_exchanged"


def event_line(
    event: Event, listener: str, reason: str, *, time_ms: int, host: str = "", left_out: int = 0
) -> str:
    """``host``: the peer's, of an event that is about one."""
    return json.dumps(
        {
            "time": _time(time_ms),
            "event": event.value,
            "listener": listener,
            "host": host,
            "reason": reason[:NAME_MAX],
            "left_out": left_out,
        }
    )


def _time(time_ms: int) -> str:
    seconds, milliseconds = divmod(time_ms, 1000)
    moment = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{moment}.{milliseconds:03d}Z"
