"""Dead letters at the leader of a partition: what they say, and that each is written once."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest

from broker.coordinator.share.types import StateAnswer
from broker.share.values import LetterPlan, RecordState, StateBatch
from broker.sharing import dead_letters
from broker.sharing.partition import LedSharePartition
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from stele.wire.batch import decode, read_header
from tests.support.letters import DEAD_ID, DEAD_LETTER_TOPIC
from tests.support.sharing import ACCEPT, REJECT, RELEASE, SharingBench, batch
from tests.support.timing import until
from tests.support.worlds import virtual

DEAD = PartitionId(DEAD_ID, 1)  # of partition 3, since the topic has two
PLANS = dead_letters.LETTERS_MAX


async def bench_with_letters(count: int = 3) -> tuple[SharingBench, LedSharePartition]:
    bench = SharingBench(has_dead_letters=True, delivery_count_limit=2)
    bench.states.keeps = True
    bench.log.append_records(*(b"value %d" % each for each in range(count)))
    return bench, await bench.led()


def is_done(led: LedSharePartition, offset: int) -> bool:
    return led.machine is not None and led.machine.start_offset >= offset


@virtual
async def test_a_rejected_record_has_a_letter_that_is_whole() -> None:
    bench = SharingBench(has_dead_letters=True)
    headers = [("trace", b"1"), ("none", None)]
    bench.log.append_records(b"value", headers=headers)
    led = await bench.led()
    assert await bench.offsets(led) == [0]
    await led.acknowledge("m", [batch(0, 0, REJECT)])
    await until(lambda: is_done(led, 1))
    (letter,) = bench.letters.letters[DEAD]
    assert (letter.key, letter.value) == (b"0", b"value")
    assert letter.headers == (
        *headers,
        ("__dlq.errors.topic", b"orders"),
        ("__dlq.errors.partition", b"3"),
        ("__dlq.errors.offset", b"0"),
        ("__dlq.errors.group", b"g"),
        ("__dlq.errors.delivery.count", b"1"),
        ("__dlq.errors.message", b"Offset rejected by client."),
    )
    assert abs(letter.timestamp_ms - bench.clock.time_ms()) < 60_000
    assert (bench.measures.letters, bench.measures.lost_letters) == (1, 0)


@virtual
async def test_a_record_whose_deliveries_are_used_up_has_a_letter() -> None:
    bench, led = await bench_with_letters(1)
    assert await bench.offsets(led) == [0]
    await led.acknowledge("m", [batch(0, 0, RELEASE)])
    assert await bench.offsets(led) == [0]
    assert bench.letters.all == []
    await asyncio.sleep(1.1)  # the lock ends
    await until(lambda: is_done(led, 1))
    assert bench.letters.named("message") == ["Offset delivery count exceeded the threshold."]
    assert bench.letters.named("delivery.count") == ["2"]


@virtual
async def test_a_letter_without_a_copy_names_its_record() -> None:
    bench, led = await bench_with_letters(1)
    led.configure(replace(led.settings, copies_dead_records=False))
    await bench.offsets(led)
    await led.acknowledge("m", [batch(0, 0, REJECT)])
    await until(lambda: is_done(led, 1))
    (letter,) = bench.letters.all
    assert (letter.key, letter.value, len(letter.headers)) == (None, None, 6)


@virtual
async def test_accepted_records_and_gaps_have_no_letters() -> None:
    bench = SharingBench(has_dead_letters=True)
    bench.states.keeps = True
    bench.log.append_records(b"a", None, b"c", b"d")
    led = await bench.led()
    await bench.offsets(led)
    await led.acknowledge("m", [batch(0, 0, ACCEPT), batch(1, 3, REJECT)])
    await until(lambda: is_done(led, 4))
    assert [each.value for each in bench.letters.all] == [b"c", b"d"]
    assert bench.measures.lost_letters == 0


@virtual
async def test_the_plan_and_the_reasons_are_persisted_before_the_letter_is_written() -> None:
    bench, led = await bench_with_letters(3)
    bench.letters.gate = asyncio.Event()
    await bench.offsets(led)
    await led.acknowledge("m", [batch(0, 1, REJECT), batch(2, 2, ACCEPT)])
    await until(lambda: len(bench.letters.batches) > 0)
    assert bench.states.state.batches == (
        StateBatch(0, 1, RecordState.ARCHIVING_REJECTED, 1),
        StateBatch(2, 2, RecordState.ACKNOWLEDGED, 1),
    )
    assert bench.states.state.letters == LetterPlan(*DEAD, 1_000, 0, 1, ((0, 1),))
    assert not is_done(led, 1)
    bench.letters.gate.set()
    await until(lambda: is_done(led, 3))
    assert bench.states.state.letters == LetterPlan(*DEAD, 1_000, 2, 2)


async def bench_whose_leader_is_gone() -> SharingBench:
    """It has sent the letters of two records, and has not heard of the outcome."""
    bench, led = await bench_with_letters(2)
    bench.letters.gate = asyncio.Event()
    await bench.offsets(led)
    await led.acknowledge("m", [batch(0, 1, REJECT)])
    await until(lambda: len(bench.letters.batches) > 0)
    led.drop(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    bench.letters.gate = None
    return bench


@virtual
async def test_the_next_leader_writes_the_same_batch_again() -> None:
    """The topic has it already, and does not take it twice."""
    bench = await bench_whose_leader_is_gone()
    following = await bench.led()
    await until(lambda: is_done(following, 2))
    first, again = map(read_header, bench.letters.batches)
    assert (first.producer_id, first.base_sequence, first.record_count) == (
        again.producer_id,
        again.base_sequence,
        again.record_count,
    )
    assert [each.value for each in bench.letters.all] == [b"value 0", b"value 1"]


@virtual
async def test_a_lost_answer_doubles_no_letter() -> None:
    bench, led = await bench_with_letters(2)
    bench.letters.loses_answers = True
    await bench.offsets(led)
    await led.acknowledge("m", [batch(0, 0, REJECT), batch(1, 1, ACCEPT)])
    await until(lambda: len(bench.letters.batches) >= 3)
    bench.letters.loses_answers = False
    await until(lambda: is_done(led, 2))
    assert len(bench.letters.all) == 1


@virtual
async def test_the_batch_has_the_same_size_when_compaction_has_taken_a_record() -> None:
    bench = await bench_whose_leader_is_gone()
    bench.log.batches.clear()
    bench.log.append_records(b"value 0", None)
    following = await bench.led()
    await until(lambda: is_done(following, 2))
    again = decode(bench.letters.batches[-1])
    assert [each.value for each in again] == [b"value 0", None]
    assert [each.value for each in bench.letters.all] == [b"value 0", b"value 1"]


@virtual
async def test_a_topic_that_takes_nothing_makes_records_wait_and_says_why() -> None:
    bench, led = await bench_with_letters(2)
    bench.letters.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    await bench.offsets(led)
    await led.acknowledge("m", [batch(0, 0, REJECT), batch(1, 1, ACCEPT)])
    await until(lambda: len(bench.letters.batches) >= 4)
    described = led.describe(0, 10)
    assert described is not None
    assert (described.archiving_count, described.start_offset) == (1, 0)
    assert "NOT_ENOUGH_REPLICAS" in (described.letter_trouble or "")
    bench.letters.refusal = None
    await until(lambda: is_done(led, 2))
    described = led.describe(0, 10)
    assert described is not None
    assert (described.archiving_count, described.letter_trouble) == (0, None)


@virtual
async def test_the_lag_counts_no_record_that_waits_for_its_letter() -> None:
    """No member gets it any more."""
    bench, led = await bench_with_letters(4)
    bench.letters.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    assert len(await bench.offsets(led)) == 4
    await led.acknowledge("m", [batch(1, 2, REJECT)])
    assert bench.states.state.complete_count == 2
    await until(lambda: len(bench.letters.batches) > 0)
    assert bench.states.state.complete_count == 2
    await led.acknowledge("m", [batch(3, 3, ACCEPT)])
    assert bench.states.state.complete_count == 3
    bench.letters.refusal = None
    await until(lambda: bench.measures.letters == 2)
    assert (bench.states.state.start_offset, bench.states.state.complete_count) == (0, 3)


@virtual
async def test_tries_come_later_each_time() -> None:
    bench, led = await bench_with_letters(1)
    bench.letters.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    await bench.offsets(led)
    await led.acknowledge("m", [batch(0, 0, REJECT)])
    await asyncio.sleep(60)
    assert 10 <= len(bench.letters.batches) <= 14


@pytest.mark.parametrize("trouble", ["disabled", "missing"])
@virtual
async def test_a_topic_must_exist_and_take_dead_letters(trouble: str) -> None:
    bench, led = await bench_with_letters(1)
    if trouble == "disabled":
        bench.letters.configure("errors.deadletterqueue.group.enable", "false")
    else:
        bench.letters.delete_topic()
    await bench.offsets(led)
    await led.acknowledge("m", [batch(0, 0, REJECT)])
    await asyncio.sleep(1)
    described = led.describe(0, 1)
    assert described is not None
    assert "errors.deadletterqueue.group.enable" in (described.letter_trouble or "")
    assert bench.letters.batches == []
    if trouble == "disabled":
        bench.letters.configure("errors.deadletterqueue.group.enable", "true")
    else:
        bench.letters.make_topic(b"e" * 16)
    await until(lambda: is_done(led, 1))
    assert len(bench.letters.all) == 1


async def bench_without_a_topic() -> tuple[SharingBench, LedSharePartition]:
    """The brokers may make it."""
    bench = SharingBench(makes_letter_topics=True, has_dead_letters=True)
    bench.states.keeps = True
    bench.log.append_records(b"value")
    bench.letters.delete_topic()
    return bench, await bench.led()


@virtual
async def test_a_missing_topic_is_made_if_the_node_may() -> None:
    bench, led = await bench_without_a_topic()
    await bench.offsets(led)
    assert bench.letters.creations == [], "no record needs it yet"
    await led.acknowledge("m", [batch(0, 0, REJECT)])
    await until(lambda: is_done(led, 1))
    assert bench.letters.creations == [DEAD_LETTER_TOPIC]
    assert [each.value for each in bench.letters.all] == [b"value"]


@virtual
async def test_a_topic_that_cannot_be_made_is_a_trouble_with_a_reason() -> None:
    bench, led = await bench_without_a_topic()
    bench.letters.creation_refusal = ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, "too few")
    await bench.offsets(led)
    await led.acknowledge("m", [batch(0, 0, REJECT)])
    await asyncio.sleep(4)
    described = led.describe(0, 1)
    assert described is not None
    assert "too few" in (described.letter_trouble or "")
    assert len(bench.letters.creations) == 1, "a refusal counts for some seconds"
    bench.letters.creation_refusal = None
    await until(lambda: is_done(led, 1))


@virtual
async def test_a_topic_that_is_there_is_not_made() -> None:
    bench = SharingBench(makes_letter_topics=True, has_dead_letters=True)
    bench.letters.configure("errors.deadletterqueue.group.enable", "false")
    bench.log.append_records(b"value")
    led = await bench.led()
    await bench.offsets(led)
    await led.acknowledge("m", [batch(0, 0, REJECT)])
    await asyncio.sleep(1)
    assert bench.letters.creations == []
    assert bench.letters.all == []


@virtual
async def test_letters_of_a_topic_that_is_made_anew_have_a_new_producer() -> None:
    bench, led = await bench_with_letters(1)
    bench.letters.loses_answers = True
    await bench.offsets(led)
    await led.acknowledge("m", [batch(0, 0, REJECT)])
    await until(lambda: len(bench.letters.batches) > 0)
    bench.letters.loses_answers = False
    bench.letters.delete_topic()
    bench.letters.make_topic(b"e" * 16)
    await until(lambda: is_done(led, 1))
    assert list(bench.letters.letters) == [DEAD, PartitionId(b"e" * 16, 0)]
    ids = [read_header(each).producer_id for each in bench.letters.batches]
    assert (ids[0], ids[-1]) == (1_000, 1_001)


@virtual
async def test_a_topic_that_has_lost_letters_gets_a_new_producer() -> None:
    bench, led = await bench_with_letters(2)
    await bench.offsets(led)
    await led.acknowledge("m", [batch(0, 0, REJECT)])
    await until(lambda: is_done(led, 1))
    bench.letters.refusal = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    await led.acknowledge("m", [batch(1, 1, REJECT)])
    await until(lambda: len(bench.letters.batches) == 2)
    bench.letters.refusal = None
    await until(lambda: is_done(led, 2))
    header = read_header(bench.letters.batches[-1])
    assert (header.producer_id, header.base_sequence) == (1_001, 0)


@virtual
async def test_a_group_whose_topic_is_taken_away_goes_on_without_letters(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench, led = await bench_with_letters(2)
    bench.letters.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    await bench.offsets(led)
    await led.acknowledge("m", [batch(0, 1, REJECT)])
    await until(lambda: len(bench.letters.batches) > 0)
    bench.limits = bench.limits._replace(has_dead_letters=False)
    with caplog.at_level(logging.ERROR):
        led.configure(bench.settings())
        await until(lambda: is_done(led, 2))
    assert bench.measures.lost_letters == 2
    assert "2 records from offset 0 on have no dead letters" in caplog.text


@virtual
async def test_records_that_retention_deletes_first_are_counted_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench, led = await bench_with_letters(3)
    bench.letters.delete_topic()
    await bench.offsets(led)
    await led.acknowledge("m", [batch(0, 2, REJECT)])
    await asyncio.sleep(1)
    bench.log.start_offset = 2
    with caplog.at_level(logging.ERROR):
        led.fetch_offset()
    assert bench.measures.lost_letters == 2
    assert "retention has deleted 2 records, offsets 0 to 1" in caplog.text
    bench.letters.make_topic(b"e" * 16)
    await until(lambda: is_done(led, 3))
    assert [each.value for each in bench.letters.all] == [b"value 2"]


@virtual
async def test_records_that_are_deleted_before_they_are_given_up_count_as_lost() -> None:
    """No fetch has seen the new start of the log."""
    bench, led = await bench_with_letters(3)
    await bench.offsets(led)
    bench.log.start_offset = 2
    await led.acknowledge("m", [batch(0, 2, REJECT)])
    await until(lambda: is_done(led, 3))
    assert bench.measures.lost_letters == 2
    assert [each.value for each in bench.letters.all] == [b"value 2"]


@virtual
async def test_batches_of_letters_are_bounded() -> None:
    bench = SharingBench(has_dead_letters=True, partition_max_record_locks=2_000)
    bench.log.append_records(*([b"v"] * (PLANS + 50)))
    led = await bench.led()
    await bench.offsets(led)
    await led.acknowledge("m", [batch(0, PLANS + 49, REJECT)])
    await until(lambda: is_done(led, PLANS + 50))
    assert [read_header(each).record_count for each in bench.letters.batches] == [PLANS, 50]
    assert [read_header(each).base_sequence for each in bench.letters.batches] == [0, PLANS]
    assert len({each.key for each in bench.letters.all}) == PLANS + 50


@virtual
async def test_a_batch_of_letters_is_no_larger_than_its_topic_allows() -> None:
    bench = SharingBench(has_dead_letters=True)
    bench.letters.configure("max.message.bytes", "5000")
    bench.log.append_records(*([b"v" * 1_000] * 5), b"v" * 4_000)
    led = await bench.led()
    await bench.offsets(led)
    await led.acknowledge("m", [batch(0, 5, REJECT)])
    await until(lambda: is_done(led, 6))
    assert max(map(len, bench.letters.batches)) <= 5_000
    assert len(bench.letters.all) == 6
    assert len(bench.letters.batches) == 3


@virtual
async def test_a_share_partition_without_members_is_dropped_after_its_letters() -> None:
    bench, led = await bench_with_letters(2)
    bench.letters.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    await bench.offsets(led)
    await led.acknowledge("m", [batch(0, 1, REJECT)])
    await until(lambda: len(bench.letters.batches) > 0)
    led.retire()
    assert led.failure is None
    bench.letters.refusal = None
    await until(lambda: led.failure is not None)
    assert len(bench.letters.all) == 2
    assert bench.states.state.start_offset == 0
    assert bench.states.state.batches == (StateBatch(0, 1, RecordState.ARCHIVED, 1),)


@virtual
async def test_a_leader_that_is_fenced_plans_no_letters() -> None:
    bench, led = await bench_with_letters(1)
    await bench.offsets(led)
    bench.letters.delete_topic()
    await led.acknowledge("m", [batch(0, 0, REJECT)])
    bench.letters.make_topic(b"e" * 16)
    bench.states.refusal = StateAnswer(ErrorCode.FENCED_LEADER_EPOCH)
    await until(lambda: led.failure is not None)
    await asyncio.sleep(20)
    assert bench.letters.batches == []
