"""A node's health: checks, each with its reason.

Alive: restarting the process would not help. Ready: the node does the work of all its roles.
Safe to restart: nobody would notice if it went down now.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

SAFE_TO_RESTART = "safe-to-restart"
"""What gRPC's health service calls the third."""


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check. ``reason`` describes the state, whether it is well or not."""

    name: str
    ok: bool
    reason: str


def is_well(checks: Iterable[Check]) -> bool:
    return all(check.ok for check in checks)


def render(checks: Sequence[Check]) -> bytes:
    """JSON: ``status`` is ``ok`` or ``not ok``; the checks in order."""
    body = {
        "status": "ok" if is_well(checks) else "not ok",
        "checks": [
            {"name": check.name, "ok": check.ok, "reason": check.reason} for check in checks
        ],
    }
    return json.dumps(body, indent=1).encode() + b"\n"


class ServingStatus(Mapping[str, bool]):
    """What gRPC's standard health service says of each service of a port.

    Some services are answered as long as there is anybody to answer, the others while the node
    serves. Whether it is safe to restart is no part of whether the node serves.
    """

    def __init__(
        self,
        while_serving: Sequence[str],
        always: Sequence[str],
        serving: Callable[[], bool],
        safe_to_restart: Callable[[], bool],
    ) -> None:
        self._while_serving = ("", *while_serving)
        self._always = tuple(always)
        self._serving = serving
        self._safe_to_restart = safe_to_restart

    def __getitem__(self, name: str) -> bool:
        if name == SAFE_TO_RESTART:
            return self._safe_to_restart()
        if name in self._always:
            return True
        if name in self._while_serving:
            return self._serving()
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter((*self._while_serving, *self._always, SAFE_TO_RESTART))

    def __len__(self) -> int:
        return len(self._while_serving) + len(self._always) + 1
