"""The last denial of each client, for those who ask why a client gets nowhere."""

from __future__ import annotations

from typing import Final, NamedTuple

from metadata.acl import Operation, Resource
from security.audit import NAME_MAX

REMEMBERED_MAX: Final = 1000
"""The most clients that are remembered. Then the client whose last denial is the oldest is
forgotten."""


class LastDenial(NamedTuple):
    """What the clients of one principal and client id were denied last, and how often something."""

    times: int
    operation: Operation
    resource: Resource
    address: str  # of the machine of the last client
    at_s: float  # as it came with the call


class LastDenials:
    """The denials of one node since its start. Times come with the calls."""

    def __init__(self) -> None:
        # By principal and client id, in the order of the last denials.
        self._last: dict[tuple[str, str], LastDenial] = {}

    def note(
        self,
        principal: str,
        client_id: str,
        operation: Operation,
        resource: Resource,
        address: str,
        now_s: float,
    ) -> None:
        """A client was denied something. Names that clients choose may be long: more than
        ``NAME_MAX`` characters are cut off."""
        client = principal[:NAME_MAX], client_id[:NAME_MAX]
        if len(resource.name) > NAME_MAX:
            resource = resource._replace(name=resource.name[:NAME_MAX])
        before = self._last.pop(client, None)
        if len(self._last) >= REMEMBERED_MAX:
            del self._last[next(iter(self._last))]
        times = 1 if before is None else before.times + 1
        self._last[client] = LastDenial(times, operation, resource, address, now_s)

    def of(self, principal: str, client_id: str) -> LastDenial | None:
        """None: nothing was denied, or it is forgotten."""
        return self._last.get((principal[:NAME_MAX], client_id[:NAME_MAX]))
