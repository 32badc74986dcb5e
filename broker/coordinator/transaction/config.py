"""The configuration of transaction coordinators."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """Kafka's keys, with underscores in the place of dots, and Kafka's defaults. The last key is
    ours."""

    transaction_max_timeout_ms: int = 900_000
    """The longest time-out that a producer may ask for."""

    transactional_id_expiration_ms: int = 604_800_000
    """A transactional id that was not used for this time is forgotten."""

    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3_600_000

    transaction_two_phase_commit_enable: bool = False
    """Whether producers may take part in two-phase commits (KIP-939)."""

    transaction_two_phase_commit_max_ms: int = -1
    """How long a transaction of a two-phase commit may stay open before it is aborted; -1: for
    ever. Such an abort breaks the promise of a prepared transaction. It is for clusters whose
    readers must go on even if an outside coordinator never comes back."""
