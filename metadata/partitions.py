"""One partition of an image, and the effects of its records."""

from __future__ import annotations

from dataclasses import dataclass

from metadata.directories import UNASSIGNED, aligned, compact
from stele.wire.v1 import metadata_pb2 as pb

NO_LEADER = -1

RECOVERED = pb.LeaderRecoveryState.RECOVERED
RECOVERING = pb.LeaderRecoveryState.RECOVERING


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition. Replicas are in order of preference; the other lists are ascending sets."""

    replicas: tuple[int, ...]
    # Every record below the high watermark is on every member. A subset of `replicas`. Empty only
    # after the last member was found to have lost records: then there is no leader either.
    isr: tuple[int, ...]
    leader: int = NO_LEADER  # in `isr`, or NO_LEADER
    leader_epoch: int = 0  # higher with every change of leader, also to none
    partition_epoch: int = 0  # higher with every change
    # Eligible leader replicas (KIP-966): they left the ISR after it had gone below
    # min.insync.replicas, since when nothing was committed. Disjoint from `isr`, subset of
    # `replicas`, empty while the ISR is large enough.
    elr: tuple[int, ...] = ()
    # Were eligible until they lost records: the best choice for an unclean election.
    last_known_elr: tuple[int, ...] = ()
    # While the partition is being reassigned (KIP-455) `replicas` holds the target, in its order,
    # and then those to be removed. The three are empty otherwise; `original_replicas` is never
    # empty meanwhile, and keeps the order that a cancellation restores.
    adding_replicas: tuple[int, ...] = ()  # in `replicas`, not in `original_replicas`
    removing_replicas: tuple[int, ...] = ()  # in both, not in the target
    original_replicas: tuple[int, ...] = ()
    leader_recovery_state: pb.LeaderRecoveryState = RECOVERED
    unclean_elections: int = 0
    # The directory ids of `replicas`, in their order; empty while none is known.
    directories: tuple[bytes, ...] = ()

    def directory_of(self, broker_id: int) -> bytes:
        """The log directory of a broker's replica; UNASSIGNED, too, if it has no replica."""
        if self.directories and broker_id in self.replicas:
            return self.directories[self.replicas.index(broker_id)]
        return UNASSIGNED

    def directories_with(self, broker_id: int, directory_id: bytes) -> tuple[bytes, ...]:
        """``directories`` after the broker's replica was put into another one."""
        known = self.directories or (UNASSIGNED,) * len(self.replicas)
        return compact(
            [
                directory_id if replica == broker_id else before
                for replica, before in zip(self.replicas, known, strict=True)
            ]
        )

    @property
    def preferred_leader(self) -> int:
        return self.replicas[0]

    @property
    def is_reassigning(self) -> bool:
        return bool(self.original_replicas)

    @property
    def target_replicas(self) -> tuple[int, ...]:
        """What the partition will have in the end; ``replicas`` while nothing moves."""
        return tuple(each for each in self.replicas if each not in self.removing_replicas)

    @property
    def replication_factor(self) -> int:
        """How many replicas count: until a reassignment is completed, those before it.

        A move must not make a partition look under-replicated, nor ask for more replicas in sync.
        """
        return len(self.original_replicas or self.replicas)


def changed_state(state: PartitionState, record: pb.PartitionChangeRecord) -> PartitionState:
    """The partition after a change record."""

    def ids(name: str, current: tuple[int, ...], *, ordered: bool = False) -> tuple[int, ...]:
        if not record.HasField(name):
            return current
        value = tuple(getattr(record, name).ids)
        return value if ordered else tuple(sorted(value))

    has_leader = record.HasField("leader")
    has_recovery = record.HasField("leader_recovery_state")
    replicas = ids("replicas", state.replicas, ordered=True)
    if record.HasField("directories"):
        directories = compact(record.directories.ids)
    else:
        directories = aligned(replicas, state.replicas, state.directories)
    return PartitionState(
        replicas=replicas,
        isr=ids("isr", state.isr),
        leader=record.leader if has_leader else state.leader,
        leader_epoch=state.leader_epoch + has_leader,
        partition_epoch=state.partition_epoch + 1,
        elr=ids("elr", state.elr),
        last_known_elr=ids("last_known_elr", state.last_known_elr),
        adding_replicas=ids("adding_replicas", state.adding_replicas),
        removing_replicas=ids("removing_replicas", state.removing_replicas),
        original_replicas=ids("original_replicas", state.original_replicas, ordered=True),
        leader_recovery_state=(
            record.leader_recovery_state if has_recovery else state.leader_recovery_state
        ),
        unclean_elections=state.unclean_elections + record.unclean,
        directories=directories,
    )


def without_directories(state: PartitionState) -> PartitionState:
    """The partition once the directories of its replicas are forgotten.

    This happens to all partitions at once. To name each field takes a quarter of the time of
    ``changed_state``.
    """
    return PartitionState(
        state.replicas,
        state.isr,
        state.leader,
        state.leader_epoch,
        state.partition_epoch + 1,
        state.elr,
        state.last_known_elr,
        state.adding_replicas,
        state.removing_replicas,
        state.original_replicas,
        state.leader_recovery_state,
        state.unclean_elections,
    )


def state_of(record: pb.PartitionRecord) -> PartitionState:
    """A partition as it was made, or as a snapshot holds it."""
    return PartitionState(
        replicas=tuple(record.replicas),
        isr=tuple(sorted(record.isr)),
        leader=record.leader,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        elr=tuple(sorted(record.elr)),
        last_known_elr=tuple(sorted(record.last_known_elr)),
        adding_replicas=tuple(sorted(record.adding_replicas)),
        removing_replicas=tuple(sorted(record.removing_replicas)),
        original_replicas=tuple(record.original_replicas),
        leader_recovery_state=record.leader_recovery_state,
        unclean_elections=record.unclean_elections,
        directories=compact(record.directories),
    )


def record_of(topic_id: bytes, number: int, state: PartitionState) -> pb.PartitionRecord:
    """The other direction of ``state_of``."""
    return pb.PartitionRecord(
        topic_id=topic_id,
        partition=number,
        replicas=state.replicas,
        isr=state.isr,
        elr=state.elr,
        last_known_elr=state.last_known_elr,
        adding_replicas=state.adding_replicas,
        removing_replicas=state.removing_replicas,
        original_replicas=state.original_replicas,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        leader_recovery_state=state.leader_recovery_state,
        unclean_elections=state.unclean_elections,
        directories=state.directories,
    )
