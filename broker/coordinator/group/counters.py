"""What group coordinators count."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class GroupCounters:
    """Totals of all machines of a broker since the start of the process, without those of loads.

    Records are counted when they are replayed, which is once each.
    """

    rebalances: int = 0
    """Groups that became stable with a new assignment (group-completed-rebalance-count)."""

    offset_commits: int = 0
    """Offsets of single partitions that were committed (offset-commit-count)."""

    offset_removals: int = 0
    """Offsets that expired or were deleted (offset-expiration-count, offset-deletion-count)."""
