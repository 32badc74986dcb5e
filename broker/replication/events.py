"""What befalls a replica and concerns more parts than the one that finds it out."""

from __future__ import annotations

from typing import Protocol

from broker.partition.effects import Followed, Led, Proposed
from broker.replication.replica import Replica, ReplicaState
from storage.errors import CorruptLogError
from storage.log import PartitionLog


class ReplicaEvents(Protocol):
    """``broker.replication.manager.ReplicaManager`` has the only implementation: each event calls
    every part that it concerns, in an order that one can read there. The parts get it when they are
    made. They call it only once all of them are there."""

    def led(self, replica: Replica, effect: Led) -> None:
        """This broker begins to lead the partition in a leader epoch."""
        ...

    def followed(self, replica: Replica, effect: Followed) -> None:
        """The replica follows another leader, or a leader in another epoch, or none."""
        ...

    def proposed(self, replica: Replica, effect: Proposed) -> None:
        """The machine wants another ISR."""
        ...

    def changed(self, replica: Replica) -> None:
        """Its ISR or its configuration may be another."""
        ...

    def settled(self, replica: Replica) -> None:
        """After a move, what is on disk of its log counts again."""
        ...

    def corrupt(self, replica: Replica, log: PartitionLog, error: CorruptLogError) -> None:
        """``log`` holds something else than was written to it. The replica used it when the log was
        asked for, and need not any more."""
        ...

    def take_down(self, replica: Replica, state: ReplicaState) -> None:
        """Stop all work on a replica, whose log is still there."""
        ...

    def corrupt_named(self) -> None:
        """Only now is it known whose a corrupt log is, so that it can be reported."""
        ...
