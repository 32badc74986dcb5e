"""The coordinator of a transactional id, as a producer asks it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from stele.errors import ErrorCode
from stele.ids import TopicPartition
from stele.producer.idempotence import Identity
from stele.producer.transactions import Answer, Question
from stele.records import GroupMetadata, OffsetAndMetadata


class TransactionCoordinator(Protocol):
    """That of one transactional id, and those of the groups whose offsets are committed with it,
    over one plane.

    All methods raise UnreachableError if a coordinator cannot be found or does not answer, and
    ApiError if no broker may say which one it is, or it cannot be asked this.
    """

    @property
    def where(self) -> str:
        """Which broker it is, or why none is known, in words."""
        ...

    async def ask(self, question: Question, on_sending: Callable[[], None]) -> Answer:
        """``on_sending`` is called before the question leaves."""
        ...

    async def commit_offsets(
        self,
        identity: Identity,
        group: GroupMetadata,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> tuple[dict[TopicPartition, ErrorCode], str]:
        """The error of each partition, and why."""
        ...
