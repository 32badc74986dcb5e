"""Image and delta against a deliberately dumb twin."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metadata.brokers import UNREGISTERED_MAX, Plane
from metadata.configs import CLUSTER, ConfigResource
from metadata.delta import MetadataDelta, replay_values
from metadata.image import EMPTY, MetadataImage
from metadata.partitions import NO_LEADER, PartitionState
from metadata.records import METADATA_VERSION_LEVEL, MetadataError, decode, encode
from stele.wire.v1 import metadata_pb2 as pb
from tests.support.metadata import metric_names


def record(**kind: Any) -> pb.MetadataRecord:
    return pb.MetadataRecord(**kind)


def topic_id(number: int) -> bytes:
    return b"topic-%010d" % number


def topic(name: str, number: int) -> pb.MetadataRecord:
    return record(topic=pb.TopicRecord(name=name, topic_id=topic_id(number)))


def partition(number: int, index: int, replicas: tuple[int, ...] = (1, 2)) -> pb.MetadataRecord:
    return record(
        partition=pb.PartitionRecord(
            topic_id=topic_id(number),
            partition=index,
            replicas=replicas,
            isr=replicas,
            leader=replicas[0],
        )
    )


def change(number: int, index: int, **fields: Any) -> pb.MetadataRecord:
    return record(
        partition_change=pb.PartitionChangeRecord(
            topic_id=topic_id(number), partition=index, **fields
        )
    )


def nodes(*ids: int) -> pb.PartitionChangeRecord.Nodes:
    return pb.PartitionChangeRecord.Nodes(ids=ids)


def broker(broker_id: int, epoch: int) -> pb.MetadataRecord:
    endpoint = pb.Endpoint(listener="EXTERNAL", host="h", port=1, protocol="PLAINTEXT")
    return record(
        register_broker=pb.RegisterBrokerRecord(
            broker_id=broker_id,
            broker_epoch=epoch,
            incarnation_id=b"i",
            endpoints=[endpoint],
            rack="r",
        )
    )


def image_of(*records: pb.MetadataRecord, on: MetadataImage = EMPTY) -> MetadataImage:
    delta = MetadataDelta(on)
    for offset, each in enumerate(records, on.offset + 1):
        delta.replay(offset, each)
    return delta.apply()


class TestRecords:
    def test_round_trip(self) -> None:
        for each in (topic("t", 1), partition(1, 0), broker(3, 9), record(no_op=pb.NoOpRecord())):
            assert decode(encode(each)) == each

    @pytest.mark.parametrize("value", [b"", b"\xff\xff", b"\xfa\x3f\x00"])
    def test_garbage_and_unknown_kinds_are_errors(self, value: bytes) -> None:
        with pytest.raises(MetadataError):
            decode(value)


class TestBrokers:
    def test_a_registration_is_fenced_until_told_otherwise(self) -> None:
        image = image_of(broker(1, 0))
        registration = image.brokers[1]
        assert registration.fenced
        assert not image.is_active(1)
        endpoint = registration.endpoint("EXTERNAL")
        assert endpoint is not None
        assert (endpoint.host, endpoint.port) == ("h", 1)
        assert registration.endpoint("EXTERNAL", Plane.GRPC) is None
        assert registration.endpoint("INTERNAL") is None
        unfenced = record(broker_state=pb.BrokerStateRecord(broker_id=1, broker_epoch=0))
        assert image_of(unfenced, on=image).is_active(1)
        assert not image_of(unfenced, broker(1, 2), on=image).is_active(1)

    def test_unregistered(self) -> None:
        image = image_of(
            broker(1, 0), record(unregister_broker=pb.UnregisterBrokerRecord(broker_id=1))
        )
        assert image.sorted_brokers() == []
        assert image.brokers.earlier_incarnations(1) == (b"i",)
        assert not image_of(broker(1, 2), on=image).brokers.unregistered

    def test_the_processes_of_the_last_unregistered_brokers_are_remembered(self) -> None:
        image = EMPTY
        for broker_id in (5, *range(UNREGISTERED_MAX)):
            epoch = image.offset + 1
            gone = pb.UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch)
            image = image_of(broker(broker_id, epoch), record(unregister_broker=gone), on=image)
        assert sorted(image.brokers.unregistered) == list(range(UNREGISTERED_MAX))
        gone = pb.UnregisterBrokerRecord(broker_id=99, broker_epoch=image.offset + 1)
        image = image_of(broker(99, image.offset + 1), record(unregister_broker=gone), on=image)
        assert sorted(image.brokers.unregistered) == [*range(1, UNREGISTERED_MAX), 99]


class TestPartitions:
    def test_a_set_leader_raises_its_epoch_even_if_it_is_the_same(self) -> None:
        image = image_of(topic("t", 1), partition(1, 0), change(1, 0, leader=1))
        assert image.partition(topic_id(1), 0) == PartitionState(
            replicas=(1, 2), isr=(1, 2), leader=1, leader_epoch=1, partition_epoch=1
        )

    def test_only_what_is_set_changes(self) -> None:
        image = image_of(
            topic("t", 1),
            partition(1, 0, (3, 1, 2)),
            change(1, 0, isr=nodes(2, 1), elr=nodes(3), leader=NO_LEADER),
            change(1, 0, elr=nodes(), unclean=True),
        )
        assert image.partition(topic_id(1), 0) == PartitionState(
            replicas=(3, 1, 2),
            isr=(1, 2),
            leader=NO_LEADER,
            leader_epoch=1,
            partition_epoch=2,
            unclean_elections=1,
        )

    def test_order_of_preference_is_kept_and_sets_are_sorted(self) -> None:
        image = image_of(topic("t", 1), partition(1, 0, (3, 1, 2)))
        state = image.partition(topic_id(1), 0)
        assert state is not None
        assert (state.replicas, state.isr, state.preferred_leader) == ((3, 1, 2), (1, 2, 3), 3)

    def test_absent_ones(self) -> None:
        image = image_of(topic("t", 1), partition(1, 0))
        assert image.partition(topic_id(1), 1) is None
        assert image.partition(topic_id(1), -1) is None
        assert image.partition(topic_id(2), 0) is None


class TestConfigs:
    def test_set_and_removed_and_gone_with_the_topic(self) -> None:
        def config(resource: ConfigResource, value: str | None) -> pb.MetadataRecord:
            return record(
                config=pb.ConfigRecord(
                    resource_type=resource.type,  # type: ignore[arg-type]
                    resource_name=resource.name,
                    name="retention.ms",
                    value=value,
                )
            )

        mine = ConfigResource.topic("t")
        image = image_of(topic("t", 1), config(mine, "1"), config(CLUSTER, "2"))
        assert image.configs.sorted() == [
            (mine, [("retention.ms", "1")]),
            (CLUSTER, [("retention.ms", "2")]),
        ]
        assert mine not in image_of(config(mine, None), on=image).configs
        removed = record(remove_topic=pb.RemoveTopicRecord(topic_id=topic_id(1)))
        after = image_of(removed, on=image)
        assert mine not in after.configs
        assert dict(after.config(mine)) == {}


@pytest.mark.parametrize(
    "wrong",
    [
        [topic("t", 1), topic("t", 2)],
        [topic("t", 1), topic("u", 1)],
        [partition(1, 0)],
        [change(1, 0)],
        [topic("t", 1), change(1, 0)],
        [topic("t", 1), partition(1, 1)],
        [record(remove_topic=pb.RemoveTopicRecord(topic_id=topic_id(1)))],
        [record(broker_state=pb.BrokerStateRecord(broker_id=1))],
        [broker(1, 0), record(broker_state=pb.BrokerStateRecord(broker_id=1, broker_epoch=3))],
        [record(unregister_broker=pb.UnregisterBrokerRecord(broker_id=1))],
        [
            record(producer_ids=pb.ProducerIdsRecord(next_producer_id=5)),
            record(producer_ids=pb.ProducerIdsRecord(next_producer_id=4)),
        ],
        [pb.MetadataRecord()],
    ],
)
def test_what_does_not_fit_is_an_error(wrong: list[pb.MetadataRecord]) -> None:
    with pytest.raises(MetadataError):
        image_of(*wrong)


@pytest.mark.parametrize("level", [0, METADATA_VERSION_LEVEL + 1, -1])
def test_a_metadata_version_that_is_not_known_stops_the_node(level: int) -> None:
    feature = pb.FeatureLevelRecord(name="metadata.version", level=level)
    with pytest.raises(
        MetadataError, match=f"this node knows 1 to {METADATA_VERSION_LEVEL}: upgrade it"
    ):
        image_of(record(feature_level=feature))


def test_a_feature_that_is_not_known_stops_the_node() -> None:
    feature = pb.FeatureLevelRecord(name="later.version", level=1)
    with pytest.raises(MetadataError, match=r"later\.version is 1, and this node knows 0 to 0"):
        image_of(record(feature_level=feature))


def test_a_lower_metadata_version_forgets_what_it_cannot_hold() -> None:
    outcome = pb.RequestOutcomeRecord(request_id=bytes(16), method="CreateTopics")
    levels = [pb.FeatureLevelRecord(name="metadata.version", level=level) for level in (2, 1)]
    before = [record(feature_level=levels[0]), record(request_outcome=outcome)]
    assert len(image_of(*before).outcomes) == 1
    assert len(image_of(*before, record(feature_level=levels[1])).outcomes) == 0


def test_offsets_only_grow() -> None:
    delta = MetadataDelta(image_of(record(no_op=pb.NoOpRecord())))
    with pytest.raises(MetadataError):
        delta.replay(0, record(no_op=pb.NoOpRecord()))
    delta.replay(7, record(no_op=pb.NoOpRecord()))
    assert delta.apply().offset == 7


def test_what_changed() -> None:
    image = image_of(topic("b", 1), partition(1, 0), partition(1, 1), topic("c", 2))
    delta = MetadataDelta(image)
    records = [
        topic("a", 3),
        partition(3, 0),
        change(1, 1, leader=2),
        record(remove_topic=pb.RemoveTopicRecord(topic_id=topic_id(2))),
        topic("gone", 4),
        record(remove_topic=pb.RemoveTopicRecord(topic_id=topic_id(4))),
        topic("c", 5),
        broker(7, 99),
    ]
    delta.replay_values(10, [encode(each) for each in records])
    after = delta.apply()
    assert [t.name for t in delta.created_topics] == ["a", "c"]
    assert [t.topic_id for t in delta.deleted_topics] == [topic_id(2)]
    assert [(p.topic, p.partition, p.before is None) for p in delta.changed_partitions] == [
        ("a", 0, True),
        ("b", 1, False),
    ]
    assert delta.changed_partitions[1].after.leader == 2
    assert [(b.broker_id, b.before) for b in delta.changed_brokers] == [(7, None)]
    assert delta.changed_configs == []
    assert after.topics.ids["c"] == topic_id(5)
    assert [t.name for t in after.sorted_topics()] == ["a", "b", "c"]
    assert image.topic("a") is None, "an image never changes"


_NAMES = [f"name{number // 2}{'._'[number % 2]}" for number in range(120)]  # one for each record


class Twin:
    """The same content in plain dicts, which are changed in place."""

    def __init__(self) -> None:
        self.topics: dict[int, tuple[str, list[dict[str, Any]]]] = {}

    def random_record(self, rng: random.Random, fresh: int) -> pb.MetadataRecord:
        numbers = sorted(self.topics)
        if not numbers or rng.random() < 0.2:
            taken = {name for name, _ in self.topics.values()}
            free = [name for name in _NAMES if name not in taken]
            self.topics[fresh] = (rng.choice(free), [])
            return topic(self.topics[fresh][0], fresh)
        number = rng.choice(numbers)
        partitions = self.topics[number][1]
        if rng.random() < 0.1:
            del self.topics[number]
            return record(remove_topic=pb.RemoveTopicRecord(topic_id=topic_id(number)))
        if not partitions or rng.random() < 0.3:
            partitions.append({"isr": (1, 2), "leader": 1, "leader_epoch": 0, "epoch": 0})
            return partition(number, len(partitions) - 1)
        index = rng.randrange(len(partitions))
        state = partitions[index]
        state["epoch"] += 1
        if rng.random() < 0.5:
            state["isr"] = (rng.choice((1, 2)),)
            return change(number, index, isr=nodes(*state["isr"]))
        state["leader"] = rng.choice((-1, 1, 2))
        state["leader_epoch"] += 1
        return change(number, index, leader=state["leader"])

    def matches(self, image: MetadataImage) -> bool:
        seen = {
            found.topic_id: (
                found.name,
                [
                    {
                        "isr": state.isr,
                        "leader": state.leader,
                        "leader_epoch": state.leader_epoch,
                        "epoch": state.partition_epoch,
                    }
                    for state in found.partitions
                ],
            )
            for found in image.sorted_topics()
        }
        return seen == {topic_id(number): value for number, value in self.topics.items()}


@settings(max_examples=50)
@given(seed=st.integers(0, 2**32), batch=st.integers(1, 40))
def test_batches_of_any_size_lead_to_the_twin(seed: int, batch: int) -> None:
    rng, twin, image, offset = random.Random(seed), Twin(), EMPTY, 0
    for _ in range(0, 120, batch):
        values: list[bytes] = []
        for _ in range(batch):
            values.append(encode(twin.random_record(rng, offset + len(values))))
        image = replay_values(image, offset, values)
        offset += batch
        assert twin.matches(image)
        assert image.offset == offset - 1
        assert {image.topics.ids[t.name] for t in image.sorted_topics()} == set(image.topics)
        assert image.topics.metric_names == metric_names(image.topics.ids)
        for name in _NAMES:
            other = name[:-1] + ("." if name.endswith("_") else "_")
            assert image.topics.colliding(name) == (other if other in image.topics.ids else None)
