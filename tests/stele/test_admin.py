"""The admin client against a fake cluster on virtual time."""

from __future__ import annotations

import pytest

from stele.admin import NewTopic
from stele.errors import ApiError, BulkError, ErrorCode, UnreachableError
from tests.support.stele import Stage, play


def test_create_and_describe() -> None:
    async def scenario(stage: Stage) -> None:
        async with stage.admin() as admin:
            (created,) = await admin.create_topics(
                [NewTopic("t", 3, 2, configs={"min.insync.replicas": "2"})]
            )
            assert (created.name, created.partitions) == ("t", 3)
            (asked,) = stage.cluster.created
            assert (asked.replication_factor, dict(asked.configs)) == (
                2,
                {"min.insync.replicas": "2"},
            )
            (topic,) = await admin.describe_topics(["t"])
            assert [each.leader for each in topic.partitions] == [1, 2, 3]
            assert all(each.is_under_replicated for each in topic.partitions)
            assert [each.name for each in await admin.list_topics()] == ["t"]
            assert await admin.describe_topics([]) == []

    play(scenario)


def test_some_refused() -> None:
    async def scenario(stage: Stage) -> None:
        stage.cluster.create("old")
        async with stage.admin() as admin:
            with pytest.raises(BulkError, match="topic 'old': it exists") as failure:
                await admin.create_topics([NewTopic("old", 1), NewTopic("new", 1)])
            assert failure.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
            assert list(failure.value.failed) == ["old"]
            assert len(failure.value.succeeded) == 1
            with pytest.raises(ApiError, match="topic 'nope': it does not exist"):
                await admin.describe_topics(["nope"])

    play(scenario)


def test_waits_for_a_controller_and_says_so() -> None:
    async def scenario(stage: Stage) -> None:
        stage.cluster.admin_faults.extend([ErrorCode.NOT_CONTROLLER] * 5)
        async with stage.admin() as admin:
            await admin.create_topics([NewTopic("t", 1)])
            assert any("no active controller" in wait for wait in stage.waits)
            stage.cluster.admin_faults.extend([ErrorCode.NOT_CONTROLLER] * 1000)
            with pytest.raises(ApiError, match="no active controller"):
                await admin.create_topics([NewTopic("u", 1)])

    play(scenario)


def test_asks_another_broker_when_one_is_gone() -> None:
    async def scenario(stage: Stage) -> None:
        stage.cluster.create("t")
        async with stage.admin(default_api_timeout_ms=3000) as admin:
            assert len(await admin.list_topics()) == 1
            stage.cluster.kill(1)
            stage.cluster.kill(2)
            assert len(await admin.list_topics()) == 1
            stage.cluster.kill(3)
            with pytest.raises(UnreachableError, match="cannot reach the cluster"):
                await admin.list_topics()

    play(scenario)
