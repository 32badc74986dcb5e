"""What a producer asks of topics and of its buffer before a record is in a batch."""

from __future__ import annotations

from stele.cluster.view import ClusterView
from stele.config import ProducerConfig
from stele.producer.accumulator import Accumulator
from stele.producer.destinations import Destinations
from tests.support.stele import Stage, on_stage


@on_stage
async def test_the_partition_of_a_key_is_not_known_before_its_topic_is(stage: Stage) -> None:
    config = ProducerConfig(bootstrap_servers=stage.cluster.bootstrap_servers)
    view = ClusterView(config, stage.world)
    assert Destinations(config, view).of_hash("t", 5) is None
    await view.close()


def test_what_other_threads_hand_over_fits_into_the_buffer() -> None:
    config = ProducerConfig()
    accumulator = Accumulator(config)
    assert not accumulator.hand_over(config.buffer_memory + 1, has_waited=False)
    assert accumulator.hand_over(config.buffer_memory, has_waited=False)
    assert accumulator.used_bytes == config.buffer_memory
    assert not accumulator.hand_over(1, has_waited=True)
    accumulator.take_over(config.buffer_memory)
    assert accumulator.used_bytes == 0
