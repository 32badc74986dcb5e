"""The audit of denials: one line of JSON each, and few lines for one that is repeated.

A consumer that is denied asks again for ever, several times a second. Its first denial is written
at once. The next line for the same principal, operation and resource comes after ``INTERVAL_S``,
and says how many there were in between.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Final, NamedTuple

from metadata.acl import Operation, Resource

INTERVAL_S: Final = 60.0

REMEMBERED_MAX: Final = 10_000
"""So many principals with their operations and resources are told apart. Then the oldest is
forgotten, and its next denial is written at once."""


NAME_MAX: Final = 300
"""Longer names of resources are cut off. A client may ask for a group with a name of 32 KiB."""


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


class AuditLimiter:
    """Decides which denials are written."""

    def __init__(self) -> None:
        # In the order in which they were written last.
        self._written: dict[tuple[str, Operation, Resource], _Written] = {}

    def take(self, denial: Denial, now_s: float) -> int | None:
        """How many equal denials were left out since the last line. None: leave this one out,
        too."""
        name = denial.resource.name[:NAME_MAX]
        key = denial.principal, denial.operation, denial.resource._replace(name=name)
        last = self._written.get(key)
        if last is not None and now_s < last.at_s + INTERVAL_S:
            self._written[key] = _Written(last.at_s, last.left_out + 1)
            return None
        self._written.pop(key, None)
        if len(self._written) >= REMEMBERED_MAX:
            del self._written[next(iter(self._written))]
        self._written[key] = _Written(now_s, 0)
        return 0 if last is None else last.left_out


def line(denial: Denial, *, time_ms: int, left_out: int) -> str:
    """One object of JSON, without a line break whatever the names contain."""
    seconds, milliseconds = divmod(time_ms, 1000)
    moment = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return json.dumps(
        {
            "time": f"{moment}.{milliseconds:03d}Z",
            "event": "denied",
            "principal": denial.principal,
            "operation": denial.operation.name,
            "resource_type": denial.resource.type.name,
            "resource_name": denial.resource.name[:NAME_MAX],
            "host": denial.host,
            "client_id": denial.client_id,
            "listener": denial.listener,
            "rule": denial.rule,
            "left_out": left_out,
        }
    )
