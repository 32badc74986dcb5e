"""The ISR that a leader reckons with: the committed one, and the one that it has proposed."""

from __future__ import annotations

from collections.abc import Iterable

from broker.partition.effects import IsrAnswer, Member, Proposed
from metadata.partitions import PartitionState

PROPOSAL_BACKOFF_MS = 500.0
"""The pause after the controller refused an ISR, before the next proposal."""


class MaximalIsr:
    """At most one proposal is under way. Until its outcome is known for sure the maximal ISR
    contains its members: the controller may have committed it already."""

    __slots__ = ("_propose_not_before_ms", "members", "proposal")

    def __init__(self) -> None:
        self.members: frozenset[int] = frozenset()
        self.proposal: Proposed | None = None
        self._propose_not_before_ms = float("-inf")

    def begin(self) -> None:
        """A leader epoch begins. Proposals of earlier epochs will never be accepted."""
        self.proposal = None
        self._propose_not_before_ms = float("-inf")

    def end(self) -> None:
        """This broker does not lead any more."""
        self.proposal = None
        self.members = frozenset()

    def may_propose(self, now_ms: float) -> bool:
        return self.proposal is None and now_ms >= self._propose_not_before_ms

    def propose(self, state: PartitionState, members: Iterable[Member]) -> Proposed:
        self.proposal = Proposed(state.leader_epoch, state.partition_epoch, tuple(members))
        self._refresh(state)
        return self.proposal

    def _refresh(self, state: PartitionState) -> None:
        members = set(state.isr)
        if self.proposal is not None:
            members.update(member.broker_id for member in self.proposal.isr)
        self.members = frozenset(members)

    def committed(self, known: PartitionState, state: PartitionState, now_ms: float) -> None:
        """The metadata say ``state``, and said ``known`` before.

        It ends a proposal against an earlier partition epoch: it was taken, or never will be. If
        nothing but the epoch has changed it was refused, and the answer comes later.
        """
        proposal = self.proposal
        if proposal is not None and proposal.partition_epoch < state.partition_epoch:
            self.proposal = None
            if (state.leader_epoch, state.isr) == (known.leader_epoch, known.isr):
                self._propose_not_before_ms = now_ms + PROPOSAL_BACKOFF_MS
        self._refresh(state)

    def answered(
        self, proposal: Proposed, answer: IsrAnswer, state: PartitionState, now_ms: float
    ) -> bool:
        """The controller answered ``proposal``. Returns whether that ended it: not if it was given
        up before, and not if the answer leaves open what the controller has committed."""
        if proposal != self.proposal or not answer.changes_nothing(proposal):
            return False
        self.proposal = None
        self._propose_not_before_ms = now_ms + PROPOSAL_BACKOFF_MS
        self._refresh(state)
        return True
