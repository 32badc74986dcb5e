"""A dead letter topic of the test, which takes each sequence of a producer once."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import cast

from broker.sharing.dead_letters import LetterOffice
from broker.sharing.letter_topics import LetterTopics
from broker.sharing.measures import ShareMeasures
from metadata.delta import MetadataDelta
from metadata.effective import effective_topic_config
from metadata.image import EMPTY, MetadataImage
from metadata.topic_config import TopicConfig
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from stele.wire.batch import decode, read_header
from stele.wire.record import Record
from stele.wire.v1 import metadata_pb2 as pb
from stele.world import Clock

DEAD_LETTER_TOPIC = "dlq.orders"
DEAD_ID = b"d" * 16
SOURCE_ID = b"t" * 16


def _topic(name: str, topic_id: bytes, partitions: int) -> list[pb.MetadataRecord]:
    return [
        pb.MetadataRecord(topic=pb.TopicRecord(name=name, topic_id=topic_id)),
        *(
            pb.MetadataRecord(
                partition=pb.PartitionRecord(
                    topic_id=topic_id, partition=each, replicas=[1], isr=[1], leader=1
                )
            )
            for each in range(partitions)
        ),
    ]


def _config(name: str, key: str, value: str) -> pb.MetadataRecord:
    return pb.MetadataRecord(
        config=pb.ConfigRecord(
            resource_type=pb.ConfigResourceType.TOPIC, resource_name=name, name=key, value=value
        )
    )


class LetterBench:
    """A dead letter topic with two partitions, which may refuse or lose answers. ``makes_topics``:
    a topic that is not there is made when it is needed."""

    def __init__(self, clock: Clock, *, makes_topics: bool = False) -> None:
        self.image: MetadataImage = EMPTY
        self.commit(
            *_topic("orders", SOURCE_ID, 4),
            *_topic(DEAD_LETTER_TOPIC, DEAD_ID, 2),
            _config(DEAD_LETTER_TOPIC, "errors.deadletterqueue.group.enable", "true"),
        )
        self.letters: dict[PartitionId, list[Record]] = {}
        self.refusal: ErrorCode | None = None
        self.loses_answers = False
        self.gate: asyncio.Event | None = None  # answers wait for it
        self.batches: list[bytearray] = []  # as they came
        self._last: dict[tuple[PartitionId, int], tuple[int, int]] = {}
        self._ids = count(1_000)
        self.creations: list[str] = []  # topics that the controller was asked for
        self.creation_refusal: ApiError | None = None
        topics = LetterTopics(lambda: self.image, self._create, clock) if makes_topics else None
        self.office = LetterOffice(
            self, self._new_id, lambda: self.image, self._config_of, clock, ShareMeasures(), topics
        )

    def commit(self, *records: pb.MetadataRecord) -> None:
        delta = MetadataDelta(self.image)
        for number, record in enumerate(records):
            delta.replay(self.image.offset + 1 + number, record)
        self.image = delta.apply()

    def configure(self, key: str, value: str) -> None:
        self.commit(_config(DEAD_LETTER_TOPIC, key, value))

    def delete_topic(self) -> None:
        self.commit(pb.MetadataRecord(remove_topic=pb.RemoveTopicRecord(topic_id=DEAD_ID)))

    def make_topic(self, topic_id: bytes) -> None:
        enabled = _config(DEAD_LETTER_TOPIC, "errors.deadletterqueue.group.enable", "true")
        self.commit(*_topic(DEAD_LETTER_TOPIC, topic_id, 1), enabled)

    def _config_of(self, topic: str) -> TopicConfig:
        return effective_topic_config(self.image, topic, static={})

    async def _create(self, name: str) -> None:
        self.creations.append(name)
        if self.creation_refusal is not None:
            raise self.creation_refusal
        self.make_topic(b"e" * 16)

    async def _new_id(self) -> int:
        return next(self._ids)

    async def write(self, partition: PartitionId, batch: bytearray) -> None:
        self.batches.append(batch)
        if self.refusal is not None:
            raise ApiError(self.refusal)
        header = read_header(batch)
        key = partition, header.producer_id
        given = header.base_sequence, header.record_count
        last = self._last.get(key)
        if given != last:
            if last is not None and header.base_sequence != sum(last):
                raise ApiError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
            self._last[key] = given
            self.letters.setdefault(partition, []).extend(decode(batch))
        if self.gate is not None:
            await self.gate.wait()
        if self.loses_answers:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT)

    @property
    def all(self) -> list[Record]:
        return [each for some in self.letters.values() for each in some]

    def named(self, name: str) -> list[str]:
        """What the letters say under ``__dlq.errors.`` and this name."""
        wanted = f"__dlq.errors.{name}"
        return [
            cast(bytes, dict(each.headers)[wanted]).decode()
            for each in self.all
            if wanted in dict(each.headers)
        ]
