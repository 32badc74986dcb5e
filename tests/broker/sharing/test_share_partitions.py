"""The share partitions of a broker: when they are made, dropped and configured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.share.values import AcknowledgementBatch, AcknowledgeType
from broker.sharing.partition import LedSharePartition
from broker.sharing.partitions import SharePartitions
from broker.sharing.settings import SharePartitionSettings
from metadata.configs import ConfigResource
from metadata.delta import MetadataDelta
from metadata.features import DEAD_LETTERS, SHARE_VERSION
from metadata.image import EMPTY, MetadataImage
from runtime.config.node import from_settings
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from stele.wire.v1 import metadata_pb2 as pb
from tests.support.letters import LetterBench
from tests.support.shared_logs import FakeSharedLog
from tests.support.sharing import FakeStates
from tests.support.timing import LoopClock, until
from tests.support.worlds import virtual

TOPIC_ID = b"t" * 16
P0, P1 = PartitionId(TOPIC_ID, 0), PartitionId(TOPIC_ID, 1)
CONFIG = from_settings(
    {
        "node.id": "1",
        "process.roles": "broker",
        "controller.quorum.bootstrap.servers": "controller:9093",
        "listeners": "INTERNAL://broker:9092",
        "grpc.listeners": "INTERNAL://broker:9192",
    }
)


class Bench:
    """A broker that leads both partitions of a topic."""

    def __init__(self) -> None:
        self.image: MetadataImage = EMPTY
        self.logs = {each: FakeSharedLog(each) for each in (P0, P1)}
        self.partitions = SharePartitions(
            CONFIG,
            self,
            FakeStates(),
            image=lambda: self.image,
            clock=LoopClock(),
            office=LetterBench(LoopClock()).office,
        )
        topic = pb.TopicRecord(name="orders", topic_id=TOPIC_ID)
        self.commit(pb.MetadataRecord(topic=topic), *map(_made, (P0, P1)))

    def share(self, partition: PartitionId) -> FakeSharedLog | None:
        log = self.logs[partition]
        return log if log.is_led else None

    def commit(self, *records: pb.MetadataRecord) -> None:
        delta = MetadataDelta(self.image)
        for number, record in enumerate(records):
            delta.replay(self.image.offset + 1 + number, record)
        self.image = delta.apply()
        self.partitions.apply(delta, self.image)

    def refusal(self, partition: PartitionId = P0) -> ErrorCode:
        with pytest.raises(ApiError) as refused:
            self.partitions.take("g", partition)
        return refused.value.code

    def all(self) -> set[tuple[str, PartitionId]]:
        return {(each.key.group_id, each.log.id) for each in self.partitions}


def _made(partition: PartitionId) -> pb.MetadataRecord:
    record = pb.PartitionRecord(
        topic_id=partition.topic_id, partition=partition.partition, leader=1, replicas=[1], isr=[1]
    )
    return pb.MetadataRecord(partition=record)


def _led(partition: PartitionId, leader: int) -> pb.MetadataRecord:
    record = pb.PartitionChangeRecord(
        topic_id=partition.topic_id, partition=partition.partition, leader=leader
    )
    return pb.MetadataRecord(partition_change=record)


@virtual
async def test_a_group_has_one_share_partition_for_each_partition() -> None:
    bench = Bench()
    made = bench.partitions.take("g", P0)
    assert bench.partitions.find("h", P0) is None
    for group_id, partition in (("h", P0), ("g", P1)):
        assert bench.partitions.take(group_id, partition) is not made
    assert bench.partitions.take("g", P0) is bench.partitions.find("g", P0) is made
    assert bench.all() == {("g", P0), ("h", P0), ("g", P1)}


@virtual
async def test_a_broker_that_does_not_lead_or_has_no_lease_shares_nothing() -> None:
    bench = Bench()
    bench.logs[P0].refusal = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert bench.refusal() is ErrorCode.NOT_LEADER_OR_FOLLOWER
    bench.logs[P0].refusal = ErrorCode.NONE
    bench.logs[P0].is_led = False
    assert bench.refusal() is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert bench.all() == set()
    bench.logs[P0].is_led = True
    await bench.partitions.stop()
    assert bench.refusal() is ErrorCode.NOT_LEADER_OR_FOLLOWER


@virtual
async def test_the_metadata_drop_what_this_broker_leads_no_more_and_nothing_else() -> None:
    bench = Bench()
    gone = bench.partitions.take("g", P0)
    other = bench.partitions.take("h", P0)
    left = bench.partitions.take("g", P1)
    bench.commit(_led(P0, 1))
    assert gone.failure is None, "it is led still"
    bench.logs[P0].is_led = False
    bench.commit(_led(P0, 2))
    for each in (gone, other):
        assert each.failure is not None
        assert each.failure.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert left.failure is None
    assert bench.all() == {("g", P1)}


@virtual
async def test_a_request_drops_what_is_led_no_more_before_the_metadata_say_so() -> None:
    bench = Bench()
    former = bench.partitions.take("g", P0)
    bench.logs[P0].is_led = False
    assert bench.partitions.find("g", P0) is None
    assert former.failure is not None
    bench.logs[P0] = FakeSharedLog(P0, leader_epoch=7)
    later = bench.partitions.take("g", P0)
    assert later.log.leader_epoch == 7
    former.drop(ApiError(ErrorCode.UNKNOWN_TOPIC_ID))
    assert bench.partitions.find("g", P0) is later


@virtual
async def test_a_load_that_fails_makes_room_for_another_one() -> None:
    bench = Bench()
    failing = bench.partitions.take("g", P0)
    failing.drop(ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "it moves"))
    assert bench.all() == set()
    again = bench.partitions.take("g", P0)
    await until(lambda: again.machine is not None)
    assert bench.all() == {("g", P0)}


@virtual
async def test_the_share_partitions_of_a_deleted_topic_are_dropped() -> None:
    bench = Bench()
    dropped = [bench.partitions.take("g", each) for each in (P0, P1)]
    removed = pb.RemoveTopicRecord(topic_id=TOPIC_ID)
    bench.commit(pb.MetadataRecord(remove_topic=removed))
    for each in dropped:
        assert each.failure is not None
        assert each.failure.code is ErrorCode.UNKNOWN_TOPIC_ID
    assert bench.all() == set()


@virtual
async def test_the_configuration_of_a_group_reaches_its_share_partitions() -> None:
    bench = Bench()
    mine, other = bench.partitions.take("g", P0), bench.partitions.take("h", P0)
    await until(lambda: mine.machine is not None and other.machine is not None)
    before = other.settings
    resource = ConfigResource.group("g")
    for name, value in (
        ("share.record.lock.duration.ms", "17000"),
        ("share.redelivery.backoff.ms", "250"),
        ("share.redelivery.backoff.max.ms", "900"),
    ):
        record = pb.ConfigRecord(
            resource_type=resource.type,  # type: ignore[arg-type]
            resource_name=resource.name,
            name=name,
            value=value,
        )
        bench.commit(pb.MetadataRecord(config=record))
    assert mine.machine is not None
    assert mine.settings.limits.record_lock_duration_ms == 17_000
    assert [mine.settings.limits.backoff_after(count) for count in (1, 2, 3)] == [250, 500, 900]
    assert mine.machine.limits is mine.settings.limits
    assert other.settings == before
    assert bench.partitions.lock_duration_ms("g") == 17_000
    assert bench.partitions.lock_duration_ms("h") == before.limits.record_lock_duration_ms


@virtual
async def test_a_stop_drops_all() -> None:
    bench = Bench()
    dropped = [bench.partitions.take("g", each) for each in (P0, P1)]
    await bench.partitions.stop()
    assert bench.all() == set()
    assert all(each.failure is not None for each in dropped)


@virtual
async def test_a_group_that_nobody_reads_for_is_loaded_anew_and_others_stay() -> None:
    """An administrator may have set its states anew meanwhile."""
    bench = Bench()
    mine = [bench.partitions.take("g", each) for each in (P0, P1)]
    other = bench.partitions.take("h", P0)
    await until(lambda: all(each.machine is not None for each in (*mine, other)))
    bench.partitions.retire("g")
    assert bench.all() == {("h", P0)}
    assert all(each.failure is not None for each in mine)
    assert bench.partitions.take("g", P0) not in mine


def settings_of(led: LedSharePartition) -> SharePartitionSettings:
    return led.settings


@virtual
async def test_a_group_has_dead_letters_from_a_level_of_share_version_on() -> None:
    bench = Bench()
    led = bench.partitions.take("g", P0)
    config = pb.ConfigRecord(
        resource_type=pb.ConfigResourceType.GROUP,
        resource_name="g",
        name="errors.deadletterqueue.topic.name",
        value="dlq.orders",
    )
    bench.commit(pb.MetadataRecord(config=config))
    assert settings_of(led).dead_letter_topic == ""
    level = pb.FeatureLevelRecord(name=SHARE_VERSION, level=DEAD_LETTERS)
    bench.commit(pb.MetadataRecord(feature_level=level))
    settings = settings_of(led)
    assert settings.limits.has_dead_letters
    assert settings.dead_letter_topic == "dlq.orders"
    assert settings.copies_dead_records


@virtual
async def test_a_share_partition_that_writes_letters_is_not_read_again() -> None:
    """Its state may have been set anew since its last member left."""
    bench = Bench()
    led = bench.partitions.take("g", P0)
    await until(lambda: led.machine is not None)
    led.configure(replace(led.settings, limits=led.settings.limits._replace(has_dead_letters=True)))
    bench.logs[P0].append(1)
    read = await bench.logs[P0].read(0, 1, read_committed=False)
    led.acquire("m", 0, read, 1, is_strict=False)
    reject = AcknowledgementBatch(0, 0, [AcknowledgeType.REJECT])
    await led.acknowledge("m", [reject])
    bench.partitions.retire("g")
    assert bench.partitions.find("g", P0) is led
    assert bench.partitions.take("g", P0) is not led
    assert led.failure is not None
    await bench.partitions.stop()


@virtual
async def test_a_share_partition_that_is_read_again_while_it_loads_stays() -> None:
    bench = Bench()
    kept, left = (bench.partitions.take("g", each) for each in (P0, P1))
    bench.partitions.retire("g")
    assert bench.all() == {("g", P0), ("g", P1)}, "they are being loaded"
    assert bench.partitions.take("g", P0) is kept
    await until(lambda: kept.machine is not None and left.failure is not None)
    assert bench.all() == {("g", P0)}
