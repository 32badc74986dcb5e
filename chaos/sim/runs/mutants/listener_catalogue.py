"""Planted bugs of listeners that move."""

from __future__ import annotations

from chaos.sim.runs.mutants.mutant import Edit, Mutant
from chaos.sim.work.load import LoadKind

LISTENERS = [
    Mutant(
        "metadata: keep the addresses of a broker that comes back with others",
        (
            Edit(
                "metadata/brokers.py",
                "BrokersDelta.register",
                "self.set(record.broker_id, registration)",
                "before = self.map.get(record.broker_id, registration)\n"
                "self.set(record.broker_id, replace(registration, endpoints=before.endpoints))",
            ),
        ),
        kinds=("listeners",),
        load=LoadKind.LIGHT,
    ),
]
