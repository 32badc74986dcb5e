"""All drills, by name."""

from __future__ import annotations

from typing import Final

from chaos.drills import (
    on_all,
    on_brokers,
    on_computers,
    on_controllers,
    on_groups,
    on_moves,
    on_network,
    on_queues,
    on_security,
    on_transactions,
    on_versions,
)
from chaos.drills.drill import Drill

DRILLS: Final[tuple[Drill, ...]] = (
    *on_brokers.DRILLS,
    *on_controllers.DRILLS,
    *on_all.DRILLS,
    *on_groups.DRILLS,
    *on_queues.DRILLS,
    *on_network.DRILLS,
    *on_computers.DRILLS,
    *on_transactions.DRILLS,
    *on_security.DRILLS,
    *on_moves.DRILLS,
    *on_versions.DRILLS,
)


def by_name() -> dict[str, Drill]:
    """The drills in their order."""
    return {drill.name: drill for drill in DRILLS}
