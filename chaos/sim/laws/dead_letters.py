"""Whether the records that a share group has given up have their dead letters (KIP-1191)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from chaos.sim.laws.decided_records import WithSharedRecords
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.shared_records import RecordName


class DeadLettersAreWrittenOnce(WithSharedRecords, Law):
    """When every record of a share group is done, each one that no member has accepted has exactly
    one dead letter. No record has two. A record has a letter only if a member has rejected it, or
    if it may have been delivered in vain as often as the limit allows.
    """

    name = "each record that a share group gives up has exactly one dead letter"
    cadence = Cadence.TOLD
    proof = Proof.CAMPAIGN

    def read(self, done: Iterable[RecordName], letters: Iterable[RecordName]) -> None:
        """``letters``: the records that all dead letters name. All of ``done`` are done."""
        counts = Counter(letters)
        for name, count in sorted(counts.items()):
            self.looked += 1
            if count > 1:
                self._report(name, f"it has {count} dead letters")
            if not self._records.may_be_given_up(name):
                self._report(name, "it has a dead letter, and no member has given it up")
        for name in done:
            self.looked += 1
            if name not in counts and not self._records.of(name).is_accepted:
                self._report(name, "it is done, no member has accepted it, and it has no letter")

    def _report(self, name: RecordName, what: str) -> None:
        self._scene.report(f"share group {name.group_id}, {name.place} at {name.offset}: {what}")
