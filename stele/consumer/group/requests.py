"""The requests of a member of the classic protocol to its coordinator, and the answers, as
values.

Fields have the same meaning as in Kafka's protocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from stele.errors import ErrorCode
from stele.ids import PartitionId, TopicPartition
from stele.records import OffsetAndMetadata

NO_MEMBER_ID: Final = ""


class Standing(NamedTuple):
    """The identity of a member in its requests to the coordinator."""

    member_id: str = NO_MEMBER_ID
    generation: int = -1
    instance_id: str | None = None

    @property
    def is_member(self) -> bool:
        return self.generation >= 0


@dataclass(frozen=True, slots=True)
class JoinRequest:
    standing: Standing
    protocols: tuple[tuple[str, bytes], ...]  # assignor and subscription, the preferred one first
    reason: str


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    error: ErrorCode
    message: str = ""
    member_id: str = NO_MEMBER_ID
    generation: int = -1
    protocol: str = ""
    leader: str = ""
    # Member id, instance id and subscription of every member; for the leader only.
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class SyncRequest:
    standing: Standing
    protocol: str
    assignments: Mapping[str, bytes]  # by member id; of the leader only


@dataclass(frozen=True, slots=True)
class SyncAnswer:
    error: ErrorCode
    message: str = ""
    assignment: bytes = b""


class CommittedOffset(NamedTuple):
    """What the coordinator says of one partition. ``committed``: None if nothing is."""

    partition: TopicPartition
    error: ErrorCode
    committed: OffsetAndMetadata | None = None
    message: str = ""  # why, where there is an error


def partitions_by_topic(partitions: Iterable[PartitionId]) -> dict[bytes, list[int]]:
    """The partitions of each topic id, in order."""
    found: dict[bytes, list[int]] = {}
    for topic_id, number in sorted(partitions):
        found.setdefault(topic_id, []).append(number)
    return found
