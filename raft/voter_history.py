"""The sets of voters that a log holds, and which of them counts."""

from __future__ import annotations

from bisect import bisect_left

from raft.quorum import VoterSet

NO_RECORD = -1


class VoterHistory:
    """The voters by the offset of the record that made them so.

    A replica uses the latest set in its log, committed or not; a truncation takes it back
    (Ongaro's dissertation, §4.1). All but the latest are committed, in every log: a leader appends
    a set only when the one before it is. So at most two sets can be in force at a time, and they
    differ by one voter.
    """

    def __init__(self, base: VoterSet, base_offset: int = NO_RECORD) -> None:
        """``base``: the voters of the snapshot before the log, whose last offset is ``base_offset``
        (its end offset - 1). While neither a snapshot nor the log has voters: those of the
        configuration, with NO_RECORD."""
        # Offsets ascend strictly. The first set is never taken back.
        self._offsets = [base_offset]
        self._sets = [base]
        # Both are the last ones of these lists, always.
        self.latest = base
        self.latest_offset = base_offset
        """The offset of the batch that holds the record of ``latest``; NO_RECORD if none does."""

    @property
    def previous(self) -> VoterSet:
        """The set that a truncation of the latest record would bring back; else the latest."""
        return self._sets[-2] if len(self._sets) > 1 else self._sets[-1]

    @property
    def recorded(self) -> list[tuple[int, VoterSet]]:
        """Every set that a record or a snapshot has made, by its offset."""
        first = int(self._offsets[0] == NO_RECORD)
        return list(zip(self._offsets[first:], self._sets[first:], strict=True))

    def at(self, end_offset: int) -> VoterSet:
        """The voters as of the records below ``end_offset``, as a snapshot of these has them."""
        return self._sets[max(bisect_left(self._offsets, end_offset) - 1, 0)]

    def append(self, offset: int, voters: VoterSet) -> None:
        """The batch at ``offset`` holds a voters record."""
        if offset <= self.latest_offset:
            raise ValueError(f"voters at {offset} do not follow those at {self.latest_offset}")
        self._offsets.append(offset)
        self._sets.append(voters)
        self._changed()

    def truncate_to(self, offset: int) -> None:
        """The log has lost everything from ``offset`` on."""
        while len(self._offsets) > 1 and self._offsets[-1] >= offset:
            self._offsets.pop()
            self._sets.pop()
        self._changed()

    def cut_before(self, offset: int) -> None:
        """Forget the sets that count only below ``offset``."""
        known = max(bisect_left(self._offsets, offset) - 1, 0)
        del self._offsets[:known]
        del self._sets[:known]

    def reset(self, voters: VoterSet, offset: int) -> None:
        """A snapshot that ends behind ``offset`` has taken the place of the log."""
        self._offsets = [offset]
        self._sets = [voters]
        self._changed()

    def _changed(self) -> None:
        self.latest, self.latest_offset = self._sets[-1], self._offsets[-1]

    def __repr__(self) -> str:
        return f"VoterHistory({list(zip(self._offsets, self._sets, strict=True))})"
