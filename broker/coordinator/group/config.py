"""The configuration of group coordinators."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Kafka's keys, with underscores in the place of dots, and Kafka's defaults."""

    group_initial_rebalance_delay_ms: int = 3_000
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 2_147_483_647
    group_consumer_max_size: int = 2_147_483_647
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_migration_policy: str = "bidirectional"
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000

    @property
    def may_upgrade(self) -> bool:
        """Whether a group with members of the classic protocol becomes one of the consumer
        protocol when the first member of that protocol joins."""
        return self.group_consumer_migration_policy in ("upgrade", "bidirectional")

    @property
    def may_downgrade(self) -> bool:
        """The reverse, when its last member of the consumer protocol leaves."""
        return self.group_consumer_migration_policy in ("downgrade", "bidirectional")
