"""Questions that every broker answers for itself, while one of them cannot."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stele.aio import Admin
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import admin_pb2 as pb
from stele.world import RpcCode, RpcError
from tests.support.stele import Stage, on_stage

Ask = Callable[[Admin], Awaitable[Any]]

QUESTIONS: dict[str, tuple[Ask, Callable[[], Any]]] = {
    "DescribeConnections": (
        lambda admin: admin.describe_connections(),
        pb.DescribeConnectionsResponse,
    ),
    "DescribeCertificates": (
        lambda admin: admin.describe_certificates(),
        pb.DescribeCertificatesResponse,
    ),
    "ExplainClientQuotas": (
        lambda admin: admin.explain_client_quotas("ann"),
        pb.ExplainClientQuotasResponse,
    ),
    "DescribeLogDirs": (
        lambda admin: admin.describe_log_dirs(),
        pb.DescribeLogDirsResponse,
    ),
}


class Silent:
    """Broker 2 cannot be reached until a test says so."""

    def __init__(self, stage: Stage, method: str) -> None:
        self.answers_again = False
        self.asked: list[int] = []
        self._answer = QUESTIONS[method][1]
        stage.cluster.others[method] = self._ask

    def _ask(self, broker: int, request: bytes) -> Any:
        self.asked.append(broker)
        if broker == 2 and not self.answers_again:
            raise RpcError(RpcCode.UNAVAILABLE, "the connection was refused")
        return self._answer()


@pytest.mark.parametrize("method", QUESTIONS)
@on_stage
async def test_a_broker_that_cannot_be_reached_is_asked_again(stage: Stage, method: str) -> None:
    silent = Silent(stage, method)
    async with stage.admin() as admin:
        asking = asyncio.ensure_future(QUESTIONS[method][0](admin))
        await asyncio.sleep(5)
        assert not asking.done()
        silent.answers_again = True
        await asking
    assert set(silent.asked) == {1, 2, 3}


@pytest.mark.parametrize("method", QUESTIONS)
@on_stage
async def test_a_broker_that_leaves_meanwhile_is_named(stage: Stage, method: str) -> None:
    Silent(stage, method)
    async with stage.admin() as admin:
        asking = asyncio.ensure_future(QUESTIONS[method][0](admin))
        await asyncio.sleep(5)
        stage.cluster.kill(2)
        with pytest.raises(ApiError, match="broker 2") as refused:
            await asking
    assert refused.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("method", QUESTIONS)
@on_stage
async def test_a_broker_that_is_older_is_not_asked_again(stage: Stage, method: str) -> None:
    """A second question would have the same answer for as long as the client waits."""
    asked: list[int] = []

    def ask(broker: int, request: bytes) -> Any:
        asked.append(broker)
        raise RpcError(RpcCode.UNIMPLEMENTED)

    stage.cluster.others[method] = ask
    async with stage.admin() as admin:
        with pytest.raises(ApiError, match=f"broker 1 is older and does not know {method}") as told:
            await QUESTIONS[method][0](admin)
    assert told.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert asked == [1]
