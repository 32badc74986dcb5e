"""A metadata quorum of one in memory, for tests of its users."""

from __future__ import annotations

from collections.abc import Sequence

from raft.api import CommittedBatch, LeaderAndEpoch, NotLeaderError, QuorumListener
from raft.quorum import FeatureLevels


class FakeQuorum:
    """Implements ``raft.api.MetadataQuorum``. The test decides when batches commit.

    ``claim`` makes it leader, ``commit`` delivers what was proposed, ``resign`` drops the rest. As
    in the real one, nothing commits inside ``propose``, so listeners are not re-entered.
    """

    def __init__(self, node_id: int = 1, *, time_ms: int = 1_000) -> None:
        self.node_id = node_id
        self.time_ms = time_ms
        self.proposals: list[CommittedBatch] = []
        self.committed: list[CommittedBatch] = []
        self._listeners: list[QuorumListener] = []
        self._leader = LeaderAndEpoch(None, 0)
        self._end_offset = 0
        self._high_watermark = -1

    @property
    def leader(self) -> LeaderAndEpoch:
        return self._leader

    @property
    def high_watermark(self) -> int:
        return self._high_watermark

    @property
    def log_end_offset(self) -> int:
        return self._end_offset

    @property
    def controller_features(self) -> dict[int, tuple[FeatureLevels, ...]]:
        return {}

    def add_listener(self, listener: QuorumListener) -> None:
        self._listeners.append(listener)

    async def confirm_leadership(self, *, epoch: int) -> int:
        if self._leader != LeaderAndEpoch(self.node_id, epoch):
            raise NotLeaderError(self._leader)
        return self._high_watermark

    def propose(self, records: Sequence[bytes], *, epoch: int) -> int:
        if self._leader != LeaderAndEpoch(self.node_id, epoch):
            raise NotLeaderError(self._leader)
        base_offset = self._end_offset
        self.proposals.append(CommittedBatch(base_offset, epoch, self.time_ms, tuple(records)))
        self._end_offset += len(records)
        return base_offset

    def next_offset(self, *, epoch: int) -> int:
        if self._leader != LeaderAndEpoch(self.node_id, epoch):
            raise NotLeaderError(self._leader)
        return self._end_offset

    def claim(self, epoch: int | None = None) -> int:
        """Become leader of ``epoch`` (by default the next one). Its control batch takes an
        offset."""
        epoch = self._leader.epoch + 1 if epoch is None else epoch
        self._leader = LeaderAndEpoch(self.node_id, epoch)
        self._end_offset += 1
        self._high_watermark = self._end_offset
        for listener in self._listeners:
            listener.on_leader_change(self._leader)
            listener.on_commit([], self._high_watermark)
            listener.on_claimed(epoch)
        return epoch

    def follow(self, leader_id: int | None, epoch: int) -> None:
        """Another node leads now. Resign if this one led, and drop what is uncommitted."""
        was, self._leader = self._leader, LeaderAndEpoch(leader_id, epoch)
        if self.proposals:
            self._end_offset = self.proposals[0].base_offset
            self.proposals.clear()
        for listener in self._listeners:
            if was.leader_id == self.node_id:
                listener.on_resigned(was.epoch)
            listener.on_leader_change(self._leader)

    def resign(self) -> None:
        self.follow(None, self._leader.epoch)

    def commit(self, count: int | None = None) -> int:
        """Commit and deliver the oldest ``count`` proposals (by default all). Returns how many."""
        ready = self.proposals[:count]
        del self.proposals[: len(ready)]
        if ready:
            self.replicate(ready)
        return len(ready)

    def commit_all(self) -> int:
        """Commit until no proposals are left: listeners may propose when something commits."""
        total = 0
        while count := self.commit():
            total += count
        return total

    def replicate(self, batches: Sequence[CommittedBatch]) -> None:
        """Deliver committed batches, as to an observer."""
        self._high_watermark = batches[-1].last_offset + 1
        self._end_offset = max(self._end_offset, self._high_watermark)
        self.committed.extend(batches)
        for listener in self._listeners:
            listener.on_commit(batches, self._high_watermark)
