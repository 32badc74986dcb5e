"""How long a node waits before it asks another node again."""

from __future__ import annotations

from typing import Final

from stele.backoff import Backoff

FIRST_MS: Final = 50.0
MOST_MS: Final = 250.0
"""Elections take about as long. A client that waits longer is late for the new leader."""


def node_backoff() -> Backoff:
    """Not spread: nodes are few."""
    return Backoff(FIRST_MS, MOST_MS)
