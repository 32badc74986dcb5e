"""A broker applies a change of permissions late: the client waits for it."""

from __future__ import annotations

import asyncio

import pytest

from stele.admin.acls import Acl
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import admin_pb2 as pb
from stele.world import RpcCode, RpcError
from tests.support.stele import Stage, on_stage

RULE = Acl("User:ann", "READ", "TOPIC", "orders")


class Lagging:
    """Broker 2 is named in the answer to a change, and applies it when a test says so."""

    def __init__(self, stage: Stage) -> None:
        self.has_applied = False
        self.changes = 0
        self.asked: list[tuple[int, int]] = []  # broker, and the offset that it must have
        stage.cluster.others["CreateAcls"] = self._create
        stage.cluster.others["DescribeFeatures"] = self._describe

    def _create(self, broker: int, request: bytes) -> pb.CreateAclsResponse:
        self.changes += 1
        answer = pb.CreateAclsResponse(metadata_offset=7, lagging_brokers=[2])
        answer.results.add()
        return answer

    def _describe(self, broker: int, request: bytes) -> pb.DescribeFeaturesResponse:
        offset = pb.DescribeFeaturesRequest.FromString(request).min_metadata_offset
        self.asked.append((broker, offset))
        if not self.has_applied:
            raise RpcError(RpcCode.UNAVAILABLE, "has not applied metadata up to 7")
        return pb.DescribeFeaturesResponse()


@on_stage
async def test_a_change_waits_for_the_brokers_that_its_answer_names(stage: Stage) -> None:
    lagging = Lagging(stage)
    async with stage.admin() as admin:
        change = asyncio.create_task(admin.create_acls([RULE]))
        await asyncio.sleep(5)
        assert not change.done()
        assert any("CreateAcls: broker 2" in wait for wait in stage.waits)
        lagging.has_applied = True
        await change
    assert set(lagging.asked) == {(2, 7)}
    assert lagging.changes == 1


@on_stage
async def test_a_change_does_not_wait_for_a_broker_that_has_left(stage: Stage) -> None:
    lagging = Lagging(stage)
    async with stage.admin() as admin:
        change = asyncio.create_task(admin.create_acls([RULE]))
        await asyncio.sleep(5)
        assert not change.done()
        stage.cluster.kill(2)
        await change
    assert lagging.changes == 1


@on_stage
async def test_a_change_that_a_broker_does_not_apply_says_so(stage: Stage) -> None:
    lagging = Lagging(stage)
    async with stage.admin(default_api_timeout_ms=5_000) as admin:
        with pytest.raises(ApiError, match="the change is made, but brokers 2 have") as caught:
            await admin.create_acls([RULE])
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert lagging.changes == 1
