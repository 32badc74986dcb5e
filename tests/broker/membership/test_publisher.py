"""Committed metadata reach the replica manager once per delivery, and not too early."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import cast

import pytest

from broker.membership.publisher import MetadataPublisher
from metadata.delta import MetadataDelta, replay_values
from metadata.image import EMPTY, MetadataImage
from metadata.records import encode
from metadata.snapshot import image_of, records_of
from raft.api import CommittedBatch, LeaderAndEpoch
from stele.wire.v1 import metadata_pb2 as pb

ME, MINE = 4, b"m" * 16


class _Subscriber:
    def __init__(self) -> None:
        self.applied: list[tuple[MetadataDelta, MetadataImage]] = []

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.applied.append((delta, image))


class _Setup:
    def __init__(self, subscriber: _Subscriber | None = None) -> None:
        self.subscriber = subscriber or _Subscriber()
        self.published = 0
        self.failures: list[BaseException] = []
        self.leaders: list[LeaderAndEpoch] = []
        self.publisher = MetadataPublisher(
            broker_id=ME,
            incarnation_id=MINE,
            on_published=self._published,
            on_leader_change=self.leaders.append,
            on_fatal=self.failures.append,
        )
        self.publisher.subscribe(self.subscriber)

    def _published(self) -> None:
        self.published += 1

    def commit(self, batches: list[CommittedBatch]) -> None:
        self.publisher.on_commit(batches, batches[-1].last_offset + 1)


def _registration(offset: int, incarnation: bytes = MINE) -> CommittedBatch:
    record = pb.RegisterBrokerRecord(broker_id=ME, incarnation_id=incarnation, broker_epoch=offset)
    return _batch(offset, pb.MetadataRecord(register_broker=record))


def _topic(offset: int, name: str, leader: int = ME) -> CommittedBatch:
    topic_id = name.encode().ljust(16, b".")
    return _batch(
        offset,
        pb.MetadataRecord(topic=pb.TopicRecord(name=name, topic_id=topic_id)),
        pb.MetadataRecord(
            partition=pb.PartitionRecord(
                topic_id=topic_id, partition=0, replicas=[ME], isr=[ME], leader=leader
            )
        ),
    )


def _batch(offset: int, *records: pb.MetadataRecord) -> CommittedBatch:
    return CommittedBatch(offset, 1, 1000, tuple(encode(record) for record in records))


def test_nothing_is_published_before_this_incarnation_is_registered() -> None:
    setup = _Setup()
    setup.commit([_registration(0, b"o" * 16), _topic(1, "a")])
    setup.commit([_topic(3, "b")])
    assert setup.subscriber.applied == []
    assert setup.publisher.offset == -1
    assert not setup.publisher.registration

    setup.commit([_registration(5)])
    ((delta, image),) = setup.subscriber.applied
    assert [topic.name for topic in delta.created_topics] == ["a", "b"]
    assert image.offset == setup.publisher.offset == 5
    assert image.brokers[ME] is setup.publisher.registration


def test_one_application_per_delivery() -> None:
    setup = _Setup()
    setup.commit([_registration(0)])
    setup.commit([_topic(1, "a"), _topic(3, "b"), _topic(5, "c")])
    assert len(setup.subscriber.applied) == setup.published == 2
    delta, image = setup.subscriber.applied[1]
    assert delta.image is setup.subscriber.applied[0][1]
    assert [topic.name for topic in delta.created_topics] == ["a", "b", "c"]
    assert image is setup.publisher.image


class _Stepping(_Subscriber):
    """Needs some turns for each image."""

    def __init__(self, turns: int) -> None:
        super().__init__()
        self.turns = turns
        self.begun: list[MetadataImage] = []
        self.fails = False

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> Iterator[None]:  # type: ignore[override]
        self.begun.append(image)
        for _ in range(self.turns):
            yield
            if self.fails:
                raise ZeroDivisionError
        super().apply(delta, image)


async def test_an_image_counts_as_applied_after_the_last_turn() -> None:
    setup = _Setup(_Stepping(2))
    later = _Subscriber()
    setup.publisher.subscribe(later)
    stepping = cast(_Stepping, setup.subscriber)
    setup.commit([_registration(0)])
    waiting = asyncio.create_task(
        setup.publisher.wait_until(lambda image: image.offset >= 0, timeout_s=5)
    )
    assert setup.publisher.image.offset == 0, "the image is the new one at once"
    for _ in range(2):
        assert (setup.publisher.offset, setup.published, later.applied) == (-1, 0, [])
        assert not waiting.done()
        await asyncio.sleep(0)
    assert (setup.publisher.offset, setup.published) == (0, 1)
    assert len(later.applied) == 1
    assert len(stepping.begun) == 1
    assert await waiting


async def test_what_comes_meanwhile_is_the_next_delta() -> None:
    setup = _Setup(_Stepping(3))
    stepping = cast(_Stepping, setup.subscriber)
    setup.commit([_registration(0)])
    setup.commit([_topic(1, "a")])
    await asyncio.sleep(0)
    setup.commit([_topic(3, "b")])
    assert len(stepping.begun) == 1
    assert setup.publisher.snapshot_records() is not None
    records = list(setup.publisher.snapshot_records() or ())
    assert image_of(5, records).topic("b") is not None, "all that was delivered"
    while setup.publisher.offset < 4:  # noqa: ASYNC110 - no later than that
        await asyncio.sleep(0)
    assert [image.offset for image in stepping.begun] == [0, 4]
    assert setup.published == 2
    setup.commit([_topic(5, "c")])
    snapshot = _snapshot(_registration(0), _topic(1, "a"), _topic(3, "d"))
    setup.publisher.on_snapshot(9, snapshot)
    while setup.publisher.offset < 8:  # noqa: ASYNC110 - no later than that
        await asyncio.sleep(0)
    topics = [topic.name for topic in setup.publisher.image.sorted_topics()]
    assert topics == ["a", "d"], "the snapshot is newer than what was held back"
    assert not setup.failures


async def test_a_failure_in_a_later_turn_stops_the_publisher() -> None:
    setup = _Setup(_Stepping(2))
    stepping = cast(_Stepping, setup.subscriber)
    setup.commit([_registration(0)])
    stepping.fails = True
    for _ in range(3):
        await asyncio.sleep(0)
    assert [type(each) for each in setup.failures] == [ZeroDivisionError]
    setup.commit([_topic(1, "a")])
    assert (setup.publisher.offset, setup.published) == (-1, 0)


def test_the_offset_counts_control_records_as_it_does_after_a_snapshot() -> None:
    setup, other = _Setup(), _Setup()
    setup.publisher.on_commit([_registration(0), _topic(1, "a")], 4)
    assert setup.publisher.offset == 3
    setup.publisher.on_commit([], 6)
    other.publisher.on_snapshot(6, _snapshot(_registration(0), _topic(1, "a")))
    assert setup.publisher.image == other.publisher.image
    setup.commit([_topic(6, "b")])
    assert setup.publisher.offset == 7
    assert not setup.failures


def test_metadata_that_does_not_fit_stops_the_publisher() -> None:
    setup = _Setup()
    setup.commit([_registration(0)])
    setup.commit([_topic(1, "a"), _topic(3, "a")])
    assert len(setup.failures) == 1
    setup.commit([_topic(5, "c")])
    assert len(setup.failures) == 1
    assert setup.publisher.offset == 0
    assert len(setup.subscriber.applied) == 1


def test_a_snapshot_after_a_failure_changes_nothing() -> None:
    setup = _Setup()
    setup.commit([_registration(0)])
    setup.commit([_topic(1, "a"), _topic(3, "a")])
    setup.publisher.on_snapshot(9, _snapshot(_registration(0), _topic(1, "a")))
    assert setup.publisher.offset == 0
    assert len(setup.failures) == 1


def test_the_failure_is_logged_with_its_offsets(caplog: pytest.LogCaptureFixture) -> None:
    setup = _Setup()
    setup.commit([_registration(0)])
    setup.commit([_topic(1, "a"), _topic(3, "a")])
    assert "metadata of offsets 1 to 4 cannot be applied" in caplog.text
    caplog.clear()
    other = _Setup()
    other.publisher.on_snapshot(9, [b"no record"])
    assert "metadata of offsets 0 to 8 cannot be applied" in caplog.text


def test_metadata_may_stand_still_and_never_goes_back() -> None:
    setup = _Setup()
    setup.commit([_registration(0), _topic(1, "a")])
    setup.publisher.on_commit([], 3)
    assert not setup.failures
    setup.publisher.on_snapshot(2, _snapshot(_registration(0)))
    assert len(setup.failures) == 1
    assert setup.publisher.offset == 2


def test_the_registration_of_another_broker_or_process_is_not_its_own() -> None:
    setup = _Setup()
    other = pb.RegisterBrokerRecord(broker_id=ME + 1, incarnation_id=MINE, broker_epoch=0)
    setup.commit([_batch(0, pb.MetadataRecord(register_broker=other))])
    assert setup.subscriber.applied == []
    setup.commit([_registration(1)])
    assert setup.publisher.registration
    setup.commit([_registration(2, b"o" * 16)])
    assert setup.publisher.registration is None


def test_an_earlier_registration_that_was_taken_back_is_not_its_own() -> None:
    setup = _Setup()
    gone = pb.UnregisterBrokerRecord(broker_id=ME, broker_epoch=0)
    setup.commit(
        [_registration(0, b"o" * 16), _batch(1, pb.MetadataRecord(unregister_broker=gone))]
    )
    assert (setup.subscriber.applied, setup.failures) == ([], [])
    setup.commit([_registration(2)])
    assert setup.publisher.registration


def test_leader_changes_are_passed_on() -> None:
    setup = _Setup()
    setup.publisher.on_leader_change(LeaderAndEpoch(2, 3))
    assert setup.leaders == [LeaderAndEpoch(2, 3)]


def _snapshot(*batches: CommittedBatch) -> list[bytes]:
    image = EMPTY
    for batch in batches:
        image = replay_values(image, batch.base_offset, batch.records)
    return list(records_of(image))


def test_a_snapshot_arrives_as_a_delta() -> None:
    setup = _Setup()
    setup.commit([_registration(0), _topic(1, "kept"), _topic(3, "gone")])
    setup.publisher.on_snapshot(9, _snapshot(_registration(0), _topic(1, "kept"), _topic(5, "new")))
    assert not setup.failures
    delta, image = setup.subscriber.applied[-1]
    assert [topic.name for topic in delta.created_topics] == ["new"]
    assert [topic.name for topic in delta.deleted_topics] == ["gone"]
    assert [change.topic for change in delta.changed_partitions] == ["new"]
    assert setup.publisher.offset == image.offset == 8
    setup.commit([_topic(9, "next")])
    assert setup.publisher.image.topic("next") is not None
    records = setup.publisher.snapshot_records()
    assert records is not None
    assert image_of(11, list(records)) == setup.publisher.image


def test_a_snapshot_with_an_earlier_incarnation_is_held_back() -> None:
    setup = _Setup()
    setup.publisher.on_snapshot(9, _snapshot(_registration(0, b"e" * 16), _topic(1, "a")))
    assert setup.subscriber.applied == []
    records = setup.publisher.snapshot_records()
    assert records is not None
    assert image_of(9, list(records)).topic("a") is not None  # what is held back is in it
    setup.commit([_registration(9)])
    [(delta, image)] = setup.subscriber.applied
    assert [topic.name for topic in delta.created_topics] == ["a"]
    assert image.offset == 9


def test_a_snapshot_that_cannot_be_read_stops_the_broker() -> None:
    setup = _Setup()
    setup.publisher.on_snapshot(9, [b"\xff"])
    assert len(setup.failures) == 1
    assert setup.publisher.snapshot_records() is None
