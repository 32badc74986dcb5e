"""A stream's membership of a group, without a group: what it asks of its consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from broker.gateway.membership import COMMITS_MAX, Membership, Offsets
from broker.gateway.refusals import Refusal
from stele.aio import Consumer
from stele.errors import ApiError, ErrorCode
from stele.ids import TopicPartition
from stele.records import OffsetAndMetadata
from tests.support.worlds import virtual

DENIED = Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not this one")


class NotingConsumer:
    """Notes what it subscribes to and what it commits."""

    def __init__(self) -> None:
        self.subscribed: list[Sequence[str]] = []
        self.committed: list[int] = []
        self.error: ApiError | None = None
        self.may_commit = asyncio.Event()
        self.may_commit.set()

    def subscribe(self, topics: Sequence[str], *, listener: object) -> None:
        self.subscribed.append(topics)

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        await self.may_commit.wait()
        if self.error is not None:
            raise self.error
        self.committed += [each.offset for each in offsets.values()]


class Member:
    """A membership whose offsets for topic ``denied`` must not be committed."""

    def __init__(self) -> None:
        self.consumer = NotingConsumer()
        self.answers: list[Refusal | None] = []
        self.membership = Membership(
            cast(Consumer, self.consumer), cast(Any, self), self._check, lambda partitions: None
        )

    @staticmethod
    def _check(offsets: Offsets) -> Refusal | None:
        return DENIED if any(each.topic == "denied" for each in offsets.offsets) else None

    async def committed(self, refusal: Refusal | None) -> None:
        self.answers.append(refusal)

    async def took(self, partitions: Sequence[TopicPartition]) -> None: ...

    async def gave_up(self, partitions: Sequence[TopicPartition], *, is_lost: bool) -> None: ...

    async def commit(self, offset: int, topic: str = "t") -> None:
        name = TopicPartition(topic, 0)
        await self.membership.commit(Offsets({name: OffsetAndMetadata(offset)}))


@virtual
async def test_a_member_subscribes_only_to_other_topics_than_it_reads() -> None:
    """Whatever else changes in the metadata, the group is not joined again."""
    member = Member()
    for topics in ([], ["a"], ["a"], ["a", "b"], [], ["a", "b"], ["a"]):
        member.membership.subscribe(topics)
    assert member.consumer.subscribed == [["a"], ["a", "b"], ["a"]]


@virtual
async def test_each_commit_has_its_answer() -> None:
    member = Member()
    running = asyncio.ensure_future(member.membership.run_commits())
    await member.commit(1)
    await member.membership.all_committed()
    assert [each and each.code for each in member.answers] == [ErrorCode.UNKNOWN_MEMBER_ID]
    member.membership.subscribe(["t"])
    await member.commit(2, "denied")
    await member.commit(3)
    await member.membership.all_committed()
    assert member.answers[1:] == [DENIED, None]
    member.consumer.error = ApiError(ErrorCode.ILLEGAL_GENERATION, "it has left")
    await member.commit(4)
    await member.membership.all_committed()
    refused = member.answers[3]
    assert refused is not None
    assert refused.code is ErrorCode.ILLEGAL_GENERATION
    assert member.consumer.committed == [3]
    running.cancel()


@virtual
async def test_a_client_that_commits_faster_than_its_group_takes_it_waits() -> None:
    member = Member()
    member.membership.subscribe(["t"])
    member.consumer.may_commit.clear()
    running = asyncio.ensure_future(member.membership.run_commits())
    for offset in range(COMMITS_MAX + 1):  # one of them is under way
        await member.commit(offset)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await member.commit(100)
    member.consumer.may_commit.set()
    await member.membership.all_committed()
    assert member.consumer.committed == [*range(COMMITS_MAX + 1)]
    running.cancel()
