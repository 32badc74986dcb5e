"""One hosted partition: what shares a batch, what waits for it, and the state after failures."""

from __future__ import annotations

import asyncio

import pytest

from stele.errors import ErrorCode
from stele.wire.batch import HEADER_SIZE, BatchBuilder, record_size_bound
from tests.support.shards import TIMEOUT_MS, active, turn
from tests.support.worlds import virtual

# ---------------------------------------------------------------------------- deciding


@virtual
async def test_requests_of_one_turn_share_a_batch_and_see_one_another() -> None:
    bench = await active()
    heard = [bench.add(b"a"), bench.add(b"a", 10), bench.add(b"b", 5)]
    await turn()
    (batch,) = bench.log.batches
    assert [(each.key, each.value) for each in batch] == [
        (b"a", b"1"), (b"a", b"11"), (b"b", b"5"),
    ]  # fmt: skip
    assert [each.told for each in heard] == [[], [], []]
    bench.log.commit()
    assert [each.told for each in heard] == [[1], [11], [5]]
    assert bench.machine.committed_below == 3


@virtual
async def test_an_answer_waits_for_its_own_records_only() -> None:
    bench = await active()
    first, second, last = (bench.add(key) for key in (b"a", b"b", b"c"))
    await turn()
    bench.log.commit(1)
    assert (first.told, second.told) == ([1], [])
    bench.log.commit(2)
    assert (second.told, last.told) == ([1], [])
    await asyncio.sleep(TIMEOUT_MS / 1000 + 0.02)
    assert last.told == [ErrorCode.COORDINATOR_NOT_AVAILABLE], "it has its time-out still"


@virtual
async def test_an_answer_waits_until_the_records_it_rests_on_are_committed() -> None:
    bench = await active()
    bench.add(b"a")
    await turn()
    told, other = bench.get(b"a"), bench.get(b"b")
    await turn()
    assert (told.told, other.told) == ([], [None])
    bench.log.commit()
    assert told.told == [1]
    again = bench.get(b"a")
    await turn()
    assert again.told == [1]


@pytest.mark.parametrize(("spare", "sizes"), [(0, [2]), (-1, [1, 1])])
@virtual
async def test_a_batch_may_be_full(spare: int, sizes: list[int]) -> None:
    builder = BatchBuilder()
    builder.append(b"a", b"%0400d" % 1, timestamp_ms=0)
    full = builder.size_bytes + record_size_bound(b"b", b"%0400d" % 1, ())
    bench = await active(max_batch_bytes=full + spare)
    for key in (b"a", b"b"):
        bench.add(key, size=400)
    await turn()
    assert [len(batch) for batch in bench.log.batches] == sizes


@pytest.mark.parametrize(("spare", "told"), [(0, 1), (-1, ErrorCode.UNKNOWN_SERVER_ERROR)])
@virtual
async def test_a_step_may_fill_a_batch(spare: int, told: object) -> None:
    room = record_size_bound(b"a", b"%0400d" % 1, ())
    bench = await active(max_batch_bytes=HEADER_SIZE + room + spare)
    heard = bench.add(b"a", size=400)
    await turn()
    bench.log.commit()
    assert heard.told == [told]


@virtual
async def test_more_than_fits_into_a_batch_makes_another_one() -> None:
    bench = await active(max_batch_bytes=1000)
    heard = [bench.add(b"%d" % number, size=300) for number in range(7)]
    await turn()
    assert [len(batch) for batch in bench.log.batches] == [2, 2, 2, 1]
    bench.log.commit()
    assert all(each.told == [1] for each in heard)


@virtual
async def test_a_step_that_fits_into_no_batch_is_refused_and_changes_nothing() -> None:
    bench = await active(max_batch_bytes=1000)
    heard, other = bench.add(b"a", size=1000), bench.add(b"b")
    await turn()
    assert heard.told == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert bench.machine.sums == {b"b": 1}
    bench.log.commit()
    assert other.told == [1]


# ---------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
    ],
)
@virtual
async def test_a_log_that_takes_nothing_refuses_writers_only(
    error: ErrorCode, told: ErrorCode
) -> None:
    bench = await active()
    bench.log.no_writes = error
    writer, reader = bench.add(b"a"), bench.get(b"a")
    await turn()
    assert (writer.told, reader.told) == ([told], [None])
    assert bench.machine.sums == {}
    assert bench.log.batches == []


@virtual
async def test_without_a_lease_nobody_is_answered() -> None:
    bench = await active()
    writer = bench.add(b"a")
    await turn()
    bench.log.refusal = ErrorCode.NOT_LEADER_OR_FOLLOWER
    bench.log.commit()
    reader = bench.get(b"b")
    await turn()
    assert (writer.told, reader.told) == ([], [ErrorCode.NOT_COORDINATOR])
    bench.log.refusal = ErrorCode.NONE
    bench.log.commit()  # the watcher is called again with every change
    assert writer.told == [1]


@virtual
async def test_records_that_cannot_be_committed_are_kept_and_not_acknowledged() -> None:
    bench = await active()
    first = bench.add(b"a")
    await turn()
    second = bench.add(b"b")
    await turn()
    third = bench.add(b"c")
    await turn()
    refused = [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    bench.log.tokens[1].refuse(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    assert [each.told for each in (first, second, third)] == [[], refused, []]
    bench.log.commit()
    assert [each.told for each in (first, second, third)] == [[1], refused, [1]]
    assert bench.machine.sums == {b"a": 1, b"b": 1, b"c": 1}


@virtual
async def test_an_answer_waits_only_so_long() -> None:
    bench = await active()
    first = bench.add(b"a")
    await asyncio.sleep(3)
    second = bench.add(b"b")
    await asyncio.sleep(1)
    last = bench.add(b"b")
    await asyncio.sleep(0.9)
    assert first.told == []
    await asyncio.sleep(0.2)
    assert (first.told, second.told) == ([ErrorCode.COORDINATOR_NOT_AVAILABLE], [])
    await asyncio.sleep(3)
    assert (second.told, last.told) == ([ErrorCode.COORDINATOR_NOT_AVAILABLE], [])
    await asyncio.sleep(1)
    assert last.told == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert len(bench.wheel) == 0
    bench.log.commit()
    third = bench.add(b"c")
    await turn()
    bench.log.commit()
    assert third.told == [1]
    assert len(bench.wheel) == 0
