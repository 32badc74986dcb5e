"""What brokers told the clients of a run, and what these found wrong with it."""

from __future__ import annotations

from dataclasses import dataclass, field

Record = tuple[str, int, int]  # topic, partition, offset


@dataclass(slots=True)
class History:
    """What brokers told clients."""

    promised: dict[Record, bytes] = field(default_factory=dict)  # acknowledged with acks=all
    acknowledged_weakly: int = 0
    consumed: dict[Record, bytes] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    errors: int = 0  # attempts that failed or whose outcome is unknown

    def ends(self) -> dict[tuple[str, int], int]:
        """The offsets behind the last acknowledged records."""
        ends: dict[tuple[str, int], int] = {}
        for topic, partition, offset in self.promised:
            ends[topic, partition] = max(offset + 1, ends.get((topic, partition), 0))
        return ends
