"""Redrives of dead letters against one simulated node."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

from stele.admin.descriptions import ConfigResource
from stele.errors import ApiError, ConfigError, ErrorCode, ProducerFencedError
from stele.records import ConsumerRecord
from stele.redrive.letters import Fate, LetterFilter
from stele.redrive.redrive import LetterKind, Redrive, RedrivePlan, RedriveState
from tests.support.consumer_groups import Clients, with_clients

PARTITIONS = 2
GROUP = "mails"
REJECTED, EXCEEDED = "Offset rejected by client.", "Offset delivery count exceeded the threshold."


def plan(**options: Any) -> RedrivePlan:
    return RedrivePlan(GROUP, **{"letter_topic": "dlq", **options})


async def made(clients: Clients) -> None:
    await clients.create("t", 4)
    await clients.create("dlq", PARTITIONS)


async def write_letters(
    clients: Clients,
    *numbers: int,
    group: str = GROUP,
    topic: str = "t",
    reason: str = REJECTED,
    aborted: bool = False,
) -> None:
    """The letter of number n is of offset n of partition n % 4."""
    options = {"transactional_id": "letters"} if aborted else {}
    async with clients.producer(**options) as producer:
        if aborted:
            await producer.begin_transaction()
        for number in numbers:
            told = {
                "topic": topic,
                "partition": str(number % 4),
                "offset": str(number),
                "group": group,
                "message": reason,
            }
            await producer.send(
                "dlq",
                b"%d" % number,
                key=b"key",
                headers=[
                    ("number", b"%d" % number),
                    *((f"__dlq.errors.{name}", value.encode()) for name, value in told.items()),
                ],
                partition=number % PARTITIONS,
            )
        if aborted:
            await producer.flush()
            await producer.abort_transaction()


async def redriven(redrive: Redrive, *, is_dry: bool = False) -> RedriveState:
    async with redrive:
        return await redrive.run(is_dry=is_dry)


async def sent(clients: Clients, topic: str = "t") -> list[ConsumerRecord]:
    """All committed records of the topic."""
    async with clients.consumer(group_id=None, isolation_level="read_committed") as consumer:
        places = [(topic, each) for each in await consumer.partitions_for(topic)]
        consumer.assign(places)
        ends = await consumer.end_offsets(places)
        found: list[ConsumerRecord] = []
        while any((consumer.known_position(*each) or 0) < end for each, end in ends.items()):
            found += await consumer.poll(timeout_ms=100)
    return found


def numbers(records: list[ConsumerRecord]) -> list[int]:
    return sorted(int(each.value or b"") for each in records)


@with_clients
async def test_records_go_back_whole_and_once(clients: Clients) -> None:
    await made(clients)
    await write_letters(clients, *range(10))
    await write_letters(clients, 90, 91, 92, 93, aborted=True)
    await write_letters(clients, 80, 81, group="others")
    await clients.fill(3, "dlq", PARTITIONS, first=70)  # no letters
    state = await redriven(clients.redrive(plan()))
    assert state.counts == {LetterKind("t", REJECTED, Fate.DUE): 10}
    assert (state.sent, state.is_continued) == (10, False)
    assert state.looked_at == state.to_look_at == 21  # two markers are no records
    found = await sent(clients)
    assert numbers(found) == list(range(10))
    for each in found:
        number = int(each.value or b"")
        assert (each.key, each.headers) == (b"key", (("number", b"%d" % number),))
        assert each.partition == number % 4
    again = await redriven(clients.redrive(plan()))
    assert (again.sent, again.is_continued, again.to_look_at) == (0, True, 0)
    await write_letters(clients, 10, 11)
    assert (await redriven(clients.redrive(plan()))).sent == 2
    assert numbers(await sent(clients)) == list(range(12))


@with_clients
async def test_a_dry_run_counts_and_changes_nothing(clients: Clients) -> None:
    await made(clients)
    await write_letters(clients, 0, 1, 2)
    await write_letters(clients, 3, 4, reason=EXCEEDED)
    await write_letters(clients, 5, topic="gone")
    for _ in range(2):
        state = await redriven(clients.redrive(plan()), is_dry=True)
        assert state.counts == {
            LetterKind("t", REJECTED, Fate.DUE): 3,
            LetterKind("t", EXCEEDED, Fate.DUE): 2,
            LetterKind("gone", REJECTED, Fate.WITHOUT_TOPIC): 1,
        }
        assert not state.is_continued
    assert not await sent(clients)


@with_clients
async def test_letters_that_a_filter_leaves_are_found_later(clients: Clients) -> None:
    await made(clients)
    for number in range(20):
        await write_letters(clients, number, reason=EXCEEDED if number % 5 else REJECTED)
    rejected = LetterFilter(reason="rejected")
    state = await redriven(clients.redrive(plan(letter_filter=rejected)))
    assert state.counts[LetterKind("t", EXCEEDED, Fate.FILTERED)] == 16
    assert numbers(await sent(clients)) == [0, 5, 10, 15]
    assert (await redriven(clients.redrive(plan(letter_filter=rejected)))).sent == 0
    assert (await redriven(clients.redrive(plan()))).sent == 16
    assert numbers(await sent(clients)) == list(range(20))


@with_clients
async def test_a_limit_leaves_the_rest_to_the_next_redrive(clients: Clients) -> None:
    await made(clients)
    await write_letters(clients, *range(10))
    for expected in (4, 4, 2, 0):
        assert (await redriven(clients.redrive(plan(limit=4)))).sent == expected
    assert numbers(await sent(clients)) == list(range(10))


@with_clients
async def test_a_rate_spreads_the_records_over_time(clients: Clients) -> None:
    await made(clients)
    await write_letters(clients, *range(20))
    loop = asyncio.get_running_loop()
    seen: list[tuple[float, int]] = []

    def note(state: RedriveState) -> None:
        seen.append((loop.time(), state.sent))

    began_s = loop.time()
    await redriven(clients.redrive(plan(records_per_s=2), on_progress=note))
    for at_s, count in seen:
        assert count <= 2 * (at_s - began_s) + 2
    assert seen[-1][1] == 20


@with_clients
async def test_letters_that_come_meanwhile_are_left_to_the_next_redrive(clients: Clients) -> None:
    await made(clients)
    await write_letters(clients, 0, 1)
    waiting: list[asyncio.Task[None]] = []

    def answer(state: RedriveState) -> None:
        waiting.append(asyncio.create_task(write_letters(clients, 2, 3)))

    state = await redriven(clients.redrive(plan(records_per_s=1), on_progress=answer))
    await asyncio.gather(*waiting)
    assert state.sent == 2


@with_clients
async def test_a_redrive_ends_the_one_before(clients: Clients) -> None:
    await made(clients)
    await write_letters(clients, *range(10))
    begun = asyncio.Event()
    slow = clients.redrive(plan(records_per_s=1), on_progress=lambda state: begun.set())
    first = asyncio.create_task(redriven(slow))
    await begun.wait()
    second = await redriven(clients.redrive(plan()))
    with pytest.raises(ProducerFencedError):
        await first
    assert slow.state.sent + second.sent == 10
    assert numbers(await sent(clients)) == list(range(10))


@pytest.mark.parametrize("seed", range(6))
@with_clients
async def test_a_redrive_that_is_cancelled_anywhere_doubles_and_loses_nothing(
    clients: Clients, seed: int
) -> None:
    rng = random.Random(seed)
    await made(clients)
    await write_letters(clients, *range(40))
    filters = [LetterFilter(accepts=lambda each: rng.random() < 0.5) for _ in range(8)]
    interrupted = 0
    for each in filters:
        task = asyncio.create_task(
            redriven(clients.redrive(plan(letter_filter=each, records_per_s=10)))
        )
        _, pending = await asyncio.wait([task], timeout=rng.uniform(0, 1.5))
        interrupted += len(pending)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert interrupted
    await redriven(clients.redrive(plan()))
    assert Counter(numbers(await sent(clients))) == Counter(range(40))


@with_clients
async def test_the_topic_is_that_of_the_groups_configuration(clients: Clients) -> None:
    await clients.create("t", 4)
    with pytest.raises(ApiError, match=r"has no errors.deadletterqueue.topic.name"):
        await redriven(clients.redrive(RedrivePlan(GROUP)))
    await clients.create("dlq.t", 1, **{"errors.deadletterqueue.group.enable": "true"})
    async with clients.admin() as admin:
        config = {"errors.deadletterqueue.topic.name": "dlq.t"}
        await admin.alter_configs({ConfigResource.group(GROUP): config})
    state = await redriven(clients.redrive(RedrivePlan(GROUP)))
    assert (state.letter_topic, state.to_look_at) == ("dlq.t", 0)
    with pytest.raises(ApiError, match="'none' of share group 'mails' does not exist"):
        await redriven(clients.redrive(plan(letter_topic="none")))


@with_clients
async def test_progress_that_is_too_long_stops_the_redrive(
    clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stele.redrive.redrive.METADATA_BYTES_MOST", 10)
    await made(clients)
    await write_letters(clients, *range(10))
    filtered = plan(letter_filter=LetterFilter(accepts=lambda each: each.value in (b"4", b"5")))
    with pytest.raises(ApiError, match="in too many places") as raised:
        await redriven(clients.redrive(filtered))
    assert raised.value.code is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert not await sent(clients)
    assert (await redriven(clients.redrive(plan()))).sent == 10


@pytest.mark.parametrize("wrong", [{"records_per_s": 0}, {"limit": 0}])
def test_a_plan_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="of a redrive must be"):
        plan(**wrong)
