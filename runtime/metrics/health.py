"""A node's health: checks, each with its reason.

Alive: restarting the process would not help. Ready: the node does the work of all its roles.
Safe to restart: nobody would notice if it went down now.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
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
