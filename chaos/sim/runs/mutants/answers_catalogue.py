"""Planted bugs of what is let into a log."""

from __future__ import annotations

from chaos.sim.runs.mutants.mutant import bug

ANSWERS = [
    bug(
        "broker: take a batch into a transaction that nobody began",
        "stele/wire/batch.py",
        "_validate_fields",
        "header.is_transactional",
        "False",
    ),
]
