"""All kinds of work. A new one is a file and a line here."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from chaos.sim.work.access import AccessWork
from chaos.sim.work.administration import Administrators
from chaos.sim.work.any_replica import AnyReplicaReaders
from chaos.sim.work.audits import AuditWork
from chaos.sim.work.backlog import BacklogWork
from chaos.sim.work.compacted import CompactedWork
from chaos.sim.work.consumers import Consumers
from chaos.sim.work.crowds import Crowds
from chaos.sim.work.directory_moves import DirectoryMoves
from chaos.sim.work.groups import GroupWork
from chaos.sim.work.habits import Impatients, Rudes, Streamers
from chaos.sim.work.load import Load, LoadKind, Part
from chaos.sim.work.newcomers import Newcomers
from chaos.sim.work.producers import Producers
from chaos.sim.work.rare import RareWork
from chaos.sim.work.readers import MetadataReaders
from chaos.sim.work.records import Records
from chaos.sim.work.remade import RemadeWork
from chaos.sim.work.rush import Rush
from chaos.sim.work.shares import ShareWork
from chaos.sim.work.telemetry import Telemetry
from chaos.sim.work.tenants import Tenants
from chaos.sim.work.tokens import TokenWork
from chaos.sim.work.transaction_work import TransactionWork
from chaos.sim.work.usurper import Usurpers
from chaos.sim.work.work import Work
from chaos.sim.world.rng import Rngs

# The order decides which of several clients that are due at the same time goes first. A new work at
# the end changes the fewest runs.
WORKS: Final[tuple[type[Work], ...]] = (
    Records,
    Producers,
    Consumers,
    Administrators,
    MetadataReaders,
    AnyReplicaReaders,
    Streamers,
    Impatients,
    Rudes,
    GroupWork,
    RemadeWork,
    CompactedWork,
    TransactionWork,
    RareWork,
    DirectoryMoves,
    AccessWork,
    Tenants,
    Crowds,
    TokenWork,
    Telemetry,
    Newcomers,
    Rush,
    Usurpers,
    ShareWork,
    AuditWork,
    BacklogWork,
)


def with_parts(load: Load, kind: LoadKind, rngs: Rngs) -> Load:
    """The load with what the seed draws for each work that has a part of its own."""
    is_rare = kind is LoadKind.RARE
    parts: list[Part] = []
    for work in WORKS:
        if work.load is not None and (is_rare or not work.load.is_rare):
            part = work.load.draw(rngs.of(work.load.label))
            parts.append(part.rarer(rngs) if is_rare else part)
    load = replace(load, parts=tuple(parts))
    for part in parts:
        load = part.change(load)
    return load
