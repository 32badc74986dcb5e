"""What the configuration says of the share partitions of one group."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from broker.share.values import Limits
from metadata.effective import effective_group_config
from metadata.features import DEAD_LETTERS, SHARE_VERSION, finalized_level
from metadata.group_config import RESET_PATTERN
from metadata.image import MetadataImage

_UNIT_S: Final = (86_400, 3_600, 60, 1)
_LATEST, _EARLIEST = "latest", "earliest"


@dataclass(frozen=True, slots=True)
class SharePartitionSettings:
    """By the newest image."""

    limits: Limits
    reset: str
    """share.auto.offset.reset"""
    read_committed: bool
    dead_letter_topic: str = ""
    """errors.deadletterqueue.topic.name; empty: the group has no dead letters."""
    copies_dead_records: bool = True
    """errors.deadletterqueue.copy.record.enable"""

    @classmethod
    def of(
        cls, image: MetadataImage, group_id: str, static: Mapping[str, str]
    ) -> SharePartitionSettings:
        """``static``: the node's own configuration."""
        config = effective_group_config(image, group_id, static=static)
        # A coordinator of an older broker would not know the states of dead letters.
        has_letters = finalized_level(image, SHARE_VERSION) >= DEAD_LETTERS
        topic = config.errors_deadletterqueue_topic_name if has_letters else ""
        limits = Limits(
            config.share_record_lock_duration_ms,
            config.share_delivery_count_limit,
            config.share_partition_max_record_locks,
            config.share_renew_acknowledge_enable,
            config.share_redelivery_backoff_ms,
            config.share_redelivery_backoff_max_ms,
            has_dead_letters=bool(topic),
        )
        return cls(
            limits,
            config.share_auto_offset_reset,
            config.share_isolation_level == "read_committed",
            topic,
            config.errors_deadletterqueue_copy_record_enable,
        )

    @property
    def begins_latest(self) -> bool:
        return self.reset == _LATEST

    @property
    def begins_earliest(self) -> bool:
        return self.reset == _EARLIEST

    @property
    def begins_ago_ms(self) -> int:
        """How long ago the records are with which a share group begins (by_duration)."""
        found = re.fullmatch(RESET_PATTERN, self.reset)
        parts = found.groups() if found is not None else ()
        seconds = sum(
            float(each) * unit for each, unit in zip(parts, _UNIT_S, strict=False) if each
        )
        return math.ceil(seconds * 1000)
