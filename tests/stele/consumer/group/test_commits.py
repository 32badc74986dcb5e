"""Commits of a member whose standing has changed, with a coordinator of prepared answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import cast

import pytest

from stele.cluster.leader_requests import PartitionRetry
from stele.cluster.view import ClusterView
from stele.config import ConsumerConfig
from stele.consumer.group.coordinator import Coordinator
from stele.consumer.group.offsets import GroupOffsets
from stele.consumer.group.requests import CommittedOffset, Standing
from stele.consumer.positions import PartitionPosition
from stele.errors import CommitFailedError, ErrorCode
from stele.ids import TopicPartition
from stele.records import OffsetAndMetadata
from tests.support.stele import Stage, on_stage

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
BEFORE, NOW = Standing("me", 3), Standing("me", 4)


class Stale:
    """A coordinator that takes commits of the newest epoch alone."""

    def __init__(self) -> None:
        self.taken: dict[TopicPartition, OffsetAndMetadata] = {}

    async def commit(
        self, standing: Standing, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> list[CommittedOffset]:
        if standing != NOW:
            return [CommittedOffset(name, ErrorCode.STALE_MEMBER_EPOCH) for name in offsets]
        self.taken |= offsets
        return [CommittedOffset(name, ErrorCode.NONE) for name in offsets]


@asynccontextmanager
async def committing(
    stage: Stage, coordinator: Stale, *owned: TopicPartition
) -> AsyncIterator[GroupOffsets]:
    config = ConsumerConfig(bootstrap_servers=stage.cluster.bootstrap_servers, group_id="g")
    view = ClusterView(config, stage.world)
    positions = {name: PartitionPosition(name, PartitionRetry(name, view)) for name in owned}
    yield GroupOffsets(
        config,
        view,
        cast(Coordinator, coordinator),
        positions,
        told=lambda standing, code: None,
        standing=lambda: NOW,
        announce=lambda: None,
    )
    await view.close()


@on_stage
async def test_a_member_commits_with_its_new_epoch_what_it_still_owns(stage: Stage) -> None:
    coordinator = Stale()
    offsets = {ZERO: OffsetAndMetadata(5)}
    async with committing(stage, coordinator, ZERO, ONE) as group:
        await group.commit(BEFORE, offsets)
    assert coordinator.taken == offsets


@on_stage
async def test_a_member_commits_nothing_for_partitions_that_others_own_by_now(
    stage: Stage,
) -> None:
    """They may have read on, and committed more."""
    coordinator = Stale()
    async with committing(stage, coordinator, ZERO) as group:
        with pytest.raises(CommitFailedError, match="has gone on without this member"):
            await group.commit(BEFORE, {ZERO: OffsetAndMetadata(5), ONE: OffsetAndMetadata(7)})
    assert not coordinator.taken
