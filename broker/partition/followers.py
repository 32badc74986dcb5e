"""A leader's knowledge of all its followers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from broker.partition.effects import UNKNOWN_BROKER_EPOCH, Member
from broker.partition.progress import NEVER, FollowerProgress
from metadata.partitions import PartitionState


class Followers(dict[int, FollowerProgress]):
    """The progress of each follower, by broker id. Times are monotonic milliseconds."""

    __slots__ = ()

    def track(self, state: PartitionState, leader: int, now_ms: float) -> None:
        """The metadata say ``state``. From now on these are exactly its replicas but the leader.
        Members of the ISR begin with a grace of a whole lag; others have to catch up first."""
        known = dict(self)
        self.clear()
        for broker_id in state.replicas:
            if broker_id == leader:
                continue
            progress = known.get(broker_id)
            if progress is None:
                progress = FollowerProgress()
                if broker_id in state.isr:
                    progress.caught_up_ms = now_ms
            self[broker_id] = progress

    def roused(self) -> None:
        """The leader's log goes on."""
        for progress in self.values():
            progress.roused()

    def lags(self, start_offset: int, end_offset: int) -> Iterator[tuple[int, int]]:
        """(broker id, records of the leader's log that it lacks on disk) of each."""
        for broker_id, progress in sorted(self.items()):
            yield broker_id, max(0, end_offset - max(progress.end_offset, start_offset))

    def start_offsets(self, may_lead: Collection[int]) -> Iterable[int]:
        """Where the logs begin of those that may lead, and of the living that may join them."""
        return (
            progress.start_offset
            for broker_id, progress in self.items()
            if broker_id in may_lead or progress.eligible
        )

    def preferred(self, offset: int, nearby: Collection[int], isr: Collection[int]) -> int:
        """The replica among the brokers ``nearby`` that a consumer at ``offset`` should read from
        (KIP-392); -1: none.

        It is in the ISR and, by its own fetches, has everything below the offset on disk. So it
        lacks at most the newest high watermark. As in Kafka the replica with the greatest log end
        offset is preferred, then the one that was caught up last, then the highest id.
        """
        return max(
            (
                (progress.end_offset, progress.caught_up_ms, broker_id)
                for broker_id, progress in self.items()
                if broker_id in nearby
                and broker_id in isr
                and progress.eligible
                and progress.start_offset <= offset <= progress.end_offset
            ),
            default=(-1, NEVER, -1),
        )[2]

    def members(self, isr: Iterable[int]) -> list[Member]:
        """An ISR as the controller is asked for it. The leader has no broker epoch here."""
        epochs = ((broker_id, self.get(broker_id)) for broker_id in sorted(isr))
        return [
            Member(broker_id, UNKNOWN_BROKER_EPOCH if progress is None else progress.broker_epoch)
            for broker_id, progress in epochs
        ]

    def have_all(self, end_offset: int, isr: Collection[int]) -> bool:
        """Whether each is in the ISR and has everything below the log's end."""
        return all(
            progress.end_offset == end_offset and broker_id in isr
            for broker_id, progress in self.items()
        )
