"""Machines of coordinators that replay the logs of a simulated cluster."""

from __future__ import annotations

from typing import Protocol

from broker.coordinator.step import KeyValue, Now
from broker.replication.replica import Replica
from chaos.sim.cluster.node import SimNode
from chaos.sim.cluster.replica_logs import records_at, sound_batches_from

START = Now(0.0, 0)
"""When a machine replays: its times count for nothing."""


class Replaying(Protocol):
    """A coordinator's machine."""

    def replay(self, offset: int, record: KeyValue, now: Now) -> object: ...


def replays(machine: Replaying, node: SimNode, replica: Replica) -> bool:
    """Have a new machine replay the log of a replica. Returns whether all of the log can be read
    from outside."""
    end_offset = 0
    for at, header in sound_batches_from(node, repr(replica)):
        if header.next_offset > replica.log.end_offset:
            break
        end_offset = header.next_offset
        if header.is_control:
            continue
        for offset, _, key, value, _ in records_at(node, repr(replica), at):
            assert key is not None
            record = KeyValue(bytes(key), None if value is None else bytes(value))
            machine.replay(offset, record, START)
    return end_offset == replica.log.end_offset
