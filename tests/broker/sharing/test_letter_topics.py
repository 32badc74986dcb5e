"""Dead letter topics that many share partitions miss at one moment."""

from __future__ import annotations

import asyncio

import pytest

from broker.sharing.letter_topics import RETRY_S, LetterTopics
from metadata.delta import MetadataDelta
from metadata.image import EMPTY, MetadataImage
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import metadata_pb2 as pb
from tests.support.timing import LoopClock
from tests.support.worlds import virtual

NAME = "dlq.orders"
REFUSAL = ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, "too few brokers")


class Controller:
    """Makes topics, a second after it was asked."""

    def __init__(self) -> None:
        self.image: MetadataImage = EMPTY
        self.refusal: ApiError | None = None
        self.asked: list[str] = []
        self.topics = LetterTopics(lambda: self.image, self._make, LoopClock())

    async def _make(self, name: str) -> None:
        self.asked.append(name)
        await asyncio.sleep(1)
        if self.refusal is not None:
            raise self.refusal
        delta = MetadataDelta(self.image)
        topic = pb.TopicRecord(name=name, topic_id=name.encode().ljust(16)[:16])
        delta.replay(self.image.offset + 1, pb.MetadataRecord(topic=topic))
        self.image = delta.apply()


async def errors(controller: Controller, *names: str) -> list[BaseException | None]:
    made = [controller.topics.made(each) for each in names]
    return list(await asyncio.gather(*made, return_exceptions=True))


@virtual
async def test_a_topic_that_many_miss_is_asked_for_once() -> None:
    controller = Controller()
    assert await errors(controller, NAME, NAME, "dlq.mails", NAME) == [None] * 4
    assert controller.asked == [NAME, "dlq.mails"]
    assert await errors(controller, NAME) == [None]
    assert controller.asked == [NAME, "dlq.mails"]


@virtual
async def test_a_refusal_counts_for_all_until_its_time_is_over() -> None:
    controller = Controller()
    controller.refusal = REFUSAL
    told = await errors(controller, NAME, NAME)
    assert [str(each) for each in told] == [str(REFUSAL)] * 2
    await asyncio.sleep(RETRY_S - 0.1)
    assert [str(each) for each in await errors(controller, NAME)] == [str(REFUSAL)]
    assert controller.asked == [NAME]
    controller.refusal = None
    assert await errors(controller, "dlq.mails") == [None], "the refusal is of one topic"
    assert await errors(controller, NAME) == [None]
    assert controller.asked == [NAME, "dlq.mails", NAME]


@virtual
async def test_one_that_gives_up_leaves_its_turn_to_the_next() -> None:
    controller = Controller()
    first = asyncio.create_task(controller.topics.made(NAME))
    second = asyncio.create_task(controller.topics.made(NAME))
    await asyncio.sleep(0.5)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await second
    assert controller.asked == [NAME, NAME]
