"""A producer without a right says which one it needs."""

from __future__ import annotations

import pytest

from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import init_producer_id
from tests.support.stele import Fault, Stage, on_stage


@on_stage
async def test_a_producer_without_write(stage: Stage) -> None:
    def deny(
        broker: int, request: init_producer_id.InitProducerIdRequest
    ) -> init_producer_id.InitProducerIdResponse:
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return init_producer_id.InitProducerIdResponse(error_code=code)

    stage.cluster.create("t")
    stage.cluster.answer(init_producer_id.API, deny)
    began_s = stage.world.clock.monotonic()
    with pytest.raises(ApiError) as caught:
        async with stage.producer() as producer:
            await (await producer.send("t", b"x"))
    assert stage.world.clock.monotonic() - began_s < 2
    assert caught.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    said = "no WRITE on any topic, nor IDEMPOTENT_WRITE on the cluster: an idempotent producer"
    assert said in caught.value.message
    assert "stele acls add PRINCIPAL WRITE topic:NAME" in caught.value.message


@on_stage
async def test_a_denied_batch_says_which_right_is_missing(stage: Stage) -> None:
    stage.cluster.create("t").partitions[0].faults.append(
        Fault(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    )
    with pytest.raises(ApiError, match=r"t-0: .* may not WRITE the topic t: .*WRITE topic:t\)"):
        async with stage.producer() as producer:
            await (await producer.send("t", b"x"))
