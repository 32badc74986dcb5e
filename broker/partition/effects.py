"""The inputs and the effects of a partition machine, as values."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, NamedTuple

from stele.errors import ErrorCode

UNKNOWN_BROKER_EPOCH = -1

_DEFINITE_REFUSALS = frozenset(
    {ErrorCode.INELIGIBLE_REPLICA, ErrorCode.INVALID_REQUEST, ErrorCode.OPERATION_NOT_ATTEMPTED}
)
"""The controller looked at a proposal of the present epochs and did not take it."""

Token = Hashable
"""A waiting produce request's name; the machine only gives it back."""


class BrokerStatus(NamedTuple):
    """The state of a broker that replicates a partition, by the metadata."""

    epoch: int = UNKNOWN_BROKER_EPOCH
    eligible: bool = False  # may join an ISR: neither fenced, nor shutting down, nor without room


NEVER: Final = (1 << 63) - 1
"""An offset above all others."""


class LogPosition(NamedTuple):
    """The position of a local log."""

    start_offset: int
    end_offset: int
    # the offset that may be acknowledged; the end itself where flushing is relaxed
    durable_offset: int
    generation: int  # truncations so far
    first_open_offset: int = NEVER  # where the oldest open transaction begins


EMPTY_LOG: Final = LogPosition(0, 0, 0, 0)
"""A new one; or none at all, where the log is corrupt or cannot be opened."""


class Member(NamedTuple):
    """One broker of a proposed ISR."""

    broker_id: int
    # Of the incarnation that the leader saw fetch (KIP-903); -1: none yet, or the leader itself.
    broker_epoch: int


class IsrAnswer(NamedTuple):
    """The controller's answer to a proposal. The outcome of an accepted proposal comes only with
    the metadata."""

    error: ErrorCode
    # Of the partition once the proposal was taken; -1 with an error.
    partition_epoch: int = -1

    def changes_nothing(self, proposal: Proposed) -> bool:
        """Whether no metadata will follow from the proposal: it was refused for its content, or it
        was the ISR already."""
        if self.error is ErrorCode.NONE:
            return self.partition_epoch == proposal.partition_epoch
        return self.error in _DEFINITE_REFUSALS


# -------------------------------------------------------------------------------- effects

# Effects are dataclasses because an effect must differ from one of another kind. Named tuples of
# two kinds are equal if their fields are: ``Advanced(7)`` would equal ``Appended(7)``.


@dataclass(frozen=True, slots=True)
class Led:
    """This broker leads now: note the epoch and its start in the log, stop fetching."""

    leader_epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class Followed:
    """This broker follows now (or, with no leader, waits): fetch from ``leader``."""

    leader: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Advanced:
    """The high watermark rose: consumers may read up to it."""

    high_watermark: int


@dataclass(frozen=True, slots=True)
class Appended:
    """The log end rose: followers may read up to it."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The wait of these produce requests succeeded."""

    tokens: tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """The wait of these produce requests failed."""

    tokens: tuple[Token, ...]
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class Proposed:
    """Ask the controller for this ISR: compare-and-set on both epochs."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[Member, ...]


Effect = Led | Followed | Advanced | Appended | Acknowledged | Refused | Proposed
