"""What transaction coordinators count."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class TransactionCounters:
    """Totals of all machines of a broker since the start of the process, without those of loads.

    Records are counted when they are replayed, which is once each.
    """

    commits: int = 0
    """Transactions that were committed, with all markers written."""

    aborts: int = 0

    timeouts: int = 0
    """Aborted transactions whose time was over."""

    expirations: int = 0
    """Transactional ids that expired unused."""
