"""The admin client against a fake cluster on virtual time."""

from __future__ import annotations

import asyncio

import pytest

from stele.admin.descriptions import NewTopic
from stele.errors import (
    ApiError,
    BulkError,
    ConfigError,
    ErrorCode,
    OutcomeUnknownError,
    SteleError,
    UnreachableError,
)
from tests.support.stele import Stage, on_stage


@on_stage
async def test_create_and_describe(stage: Stage) -> None:
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


@on_stage
async def test_some_refused(stage: Stage) -> None:
    stage.cluster.create("old")
    async with stage.admin() as admin:
        with pytest.raises(BulkError, match="topic 'old': it exists") as failure:
            await admin.create_topics([NewTopic("old", 1), NewTopic("new", 1)])
        assert failure.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        assert list(failure.value.failed) == ["old"]
        assert len(failure.value.succeeded) == 1
        with pytest.raises(ApiError, match="topic 'nope': it does not exist"):
            await admin.describe_topics(["nope"])


@on_stage
async def test_waits_for_a_controller_and_says_so(stage: Stage) -> None:
    stage.cluster.admin_faults.extend([ErrorCode.NOT_CONTROLLER] * 5)
    async with stage.admin() as admin:
        await admin.create_topics([NewTopic("t", 1)])
        assert any("no active controller" in wait for wait in stage.waits)
        stage.cluster.admin_faults.extend([ErrorCode.NOT_CONTROLLER] * 1000)
        with pytest.raises(ApiError, match="no active controller"):
            await admin.create_topics([NewTopic("u", 1)])


@on_stage
async def test_attempts_of_one_change_carry_one_id_and_other_changes_another(stage: Stage) -> None:
    unsure, refused = ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER
    stage.cluster.admin_faults.extend([unsure, refused, unsure])
    async with stage.admin() as admin:
        await admin.create_topics([NewTopic("t", 1)])
        await admin.create_topics([NewTopic("u", 1)])
    *first, second = stage.cluster.request_ids
    assert len(first) == 4
    assert len({*first}) == 1
    assert len(second) == len(first[0]) == 16
    assert second != first[0]


@on_stage
async def test_an_outcome_that_stays_unknown_names_the_id_that_finds_out(stage: Stage) -> None:
    # One attempt with an unknown outcome is enough, whatever is answered later.
    faults = [ErrorCode.REQUEST_TIMED_OUT, *[ErrorCode.NOT_CONTROLLER] * 1000]
    stage.cluster.admin_faults.extend(faults)
    async with stage.admin(default_api_timeout_ms=2000) as admin:
        with pytest.raises(
            OutcomeUnknownError,
            match="or may not have taken effect: repeat the request with the id",
        ) as caught:
            await admin.create_topics([NewTopic("t", 1)])
        assert {*stage.cluster.request_ids} == {caught.value.request_id}
        stage.cluster.admin_faults.clear()
        await admin.create_topics([NewTopic("t", 1)], request_id=caught.value.request_id)
        assert {*stage.cluster.request_ids} == {caught.value.request_id}


@on_stage
async def test_attempts_after_one_of_unknown_outcome_are_marked_as_copies(stage: Stage) -> None:
    unsure, refused = ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER
    stage.cluster.admin_faults.extend([refused, unsure, refused])
    async with stage.admin() as admin:
        await admin.create_topics([NewTopic("t", 1)])
        assert stage.cluster.copies == [False, False, True, True]
        await admin.create_topics([NewTopic("u", 1)], request_id=b"e" * 16)
        assert stage.cluster.copies[4:] == [True], "an earlier call had this id"


@on_stage
async def test_a_broker_that_does_not_answer_makes_the_next_attempt_a_copy(stage: Stage) -> None:
    async with stage.admin() as admin:
        await admin.list_topics()
        stage.cluster.kill(1)
        stage.cluster.kill(2)
        await admin.create_topics([NewTopic("t", 1)])
        assert stage.cluster.copies == [True]


@on_stage
async def test_an_earlier_call_stays_of_unknown_outcome_while_nobody_decides(stage: Stage) -> None:
    stage.cluster.admin_faults.extend([ErrorCode.NOT_CONTROLLER] * 1000)
    async with stage.admin(default_api_timeout_ms=2000) as admin:
        with pytest.raises(OutcomeUnknownError) as caught:
            await admin.create_topics([NewTopic("t", 1)], request_id=b"e" * 16)
        assert caught.value.request_id == b"e" * 16


@on_stage
async def test_what_was_refused_every_time_was_not_done(stage: Stage) -> None:
    stage.cluster.admin_faults.extend([ErrorCode.NOT_CONTROLLER] * 1000)
    async with stage.admin(default_api_timeout_ms=2000) as admin:
        with pytest.raises(ApiError, match="no active controller") as caught:
            await admin.create_topics([NewTopic("t", 1)])
        assert not isinstance(caught.value, OutcomeUnknownError)
        assert caught.value.code is ErrorCode.NOT_CONTROLLER


@on_stage
async def test_a_refusal_of_the_request_is_an_answer_for_its_lost_attempts_too(
    stage: Stage,
) -> None:
    faults = [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.INVALID_REQUEST]
    stage.cluster.admin_faults.extend(faults)
    async with stage.admin() as admin:
        with pytest.raises(ApiError) as caught:
            await admin.create_topics([NewTopic("t", 1)])
        assert caught.value.code is ErrorCode.INVALID_REQUEST


@on_stage
async def test_a_change_that_no_broker_answers_is_of_unknown_outcome(stage: Stage) -> None:
    async with stage.admin(default_api_timeout_ms=2000) as admin:
        await admin.list_topics()
        for broker in (1, 2, 3):
            stage.cluster.kill(broker)
        with pytest.raises(OutcomeUnknownError, match="cannot reach the cluster"):
            await admin.create_topics([NewTopic("t", 1)])


@on_stage
async def test_an_id_has_16_bytes(stage: Stage) -> None:
    async with stage.admin() as admin:
        with pytest.raises(ConfigError, match="has 16 bytes, not 3"):
            await admin.create_topics([NewTopic("t", 1)], request_id=b"abc")


@on_stage
async def test_asks_another_broker_when_one_is_gone(stage: Stage) -> None:
    stage.cluster.create("t")
    async with stage.admin(default_api_timeout_ms=3000) as admin:
        assert len(await admin.list_topics()) == 1
        stage.cluster.kill(1)
        stage.cluster.kill(2)
        assert len(await admin.list_topics()) == 1
        stage.cluster.kill(3)
        with pytest.raises(UnreachableError, match="cannot reach the cluster"):
            await admin.list_topics()


@on_stage
async def test_silent_brokers_do_not_lengthen_a_call(stage: Stage) -> None:
    loop = asyncio.get_running_loop()
    stage.cluster.create("t")
    async with stage.admin(default_api_timeout_ms=8000) as admin:
        await admin.list_topics()
        stage.cluster.frozen = {1, 2, 3}
        for call in (admin.list_topics(), admin.create_topics([NewTopic("u", 1)])):
            began = loop.time()
            with pytest.raises(SteleError) as caught:
                await call
            assert loop.time() - began == pytest.approx(8.0, abs=0.01)
        assert isinstance(caught.value, OutcomeUnknownError), "it may have been carried out"
        assert str(caught.value).count("broker 1:") <= 1


@on_stage
async def test_all_calls_together_end_in_the_total_time(stage: Stage) -> None:
    loop = asyncio.get_running_loop()
    async with stage.admin(default_api_timeout_ms=8000, total_timeout_ms=8000) as admin:
        await admin.list_topics()
        await asyncio.sleep(5)
        stage.cluster.frozen = {1, 2, 3}
        began = loop.time()
        with pytest.raises(UnreachableError):
            await admin.list_topics()
        assert loop.time() - began == pytest.approx(3.0, abs=0.01)
        with pytest.raises(UnreachableError):
            await admin.list_topics()
        assert loop.time() - began == pytest.approx(3.0, abs=0.01), "its time is up"
