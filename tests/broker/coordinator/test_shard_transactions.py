"""A hosted partition whose records are part of transactions."""

from __future__ import annotations

import pytest

from broker.coordinator.shard import ShardState
from broker.coordinator.step import Now, Producer, Step
from broker.replication.hosted import Loaded
from stele.errors import ErrorCode
from stele.wire.control_records import EndMarker
from tests.support.coordinators import Event, Heard, Sums
from tests.support.shards import ShardBench, active, record, turn
from tests.support.worlds import virtual

COMMIT = EndMarker(commit=True, coordinator_epoch=0)
ONE, OTHER = Producer(0, 0), Producer(2, 5)


def put(bench: ShardBench, key: bytes, number: int, producer: Producer) -> Heard:
    heard = Heard()

    def event(machine: Sums, now: Now) -> Step:
        return machine.put(key, number, heard, producer)

    bench.shard.submit(Event(event), heard)
    return heard


@virtual
async def test_a_batch_is_of_one_transaction_or_of_none() -> None:
    bench = await active()
    bench.log.confirmed |= {ONE, OTHER}
    bench.add(b"a")
    for key, producer in ((b"b", ONE), (b"c", ONE), (b"d", OTHER)):
        put(bench, key, 7, producer)
    bench.add(b"e")
    await turn()
    assert bench.log.producers == [None, ONE, OTHER, None]
    keys = [[each.key for each in batch] for batch in bench.log.batches]
    assert keys == [[b"a"], [b"b", b"c"], [b"d"], [b"e"]]
    assert bench.machine.sums == {b"a": 1, b"e": 1}
    assert bench.machine.pending == {0: {b"b": 7, b"c": 7}, 2: {b"d": 7}}


@pytest.mark.parametrize(("commits", "expected"), [(True, {b"a": 7}), (False, {})])
@virtual
async def test_a_marker_ends_it(commits: bool, expected: dict[bytes, int]) -> None:
    bench = await active()
    bench.log.confirmed.add(ONE)
    heard = put(bench, b"a", 7, ONE)
    await turn()
    bench.log.commit()
    assert heard.told == [7]
    bench.log.end_transaction(ONE, commits=commits)
    assert bench.machine.sums == expected
    assert bench.machine.pending == {}
    bench.add(b"z")
    await turn()
    assert [each[0].offset for each in bench.log.batches] == [0, 1, 2]
    assert bench.broken == 0


@virtual
async def test_what_the_log_does_not_take_has_changed_nothing() -> None:
    bench = await active()
    heard = put(bench, b"a", 7, ONE)
    bench.add(b"b")
    await turn()
    assert heard.told == [ErrorCode.INVALID_TXN_STATE]
    assert bench.machine.pending == {}
    assert bench.log.producers == [None]


@virtual
async def test_a_log_that_takes_nothing_takes_nothing_of_transactions() -> None:
    bench = await active()
    bench.log.confirmed.add(ONE)
    bench.log.no_writes = ErrorCode.NOT_ENOUGH_REPLICAS
    heard = put(bench, b"a", 7, ONE)
    await turn()
    assert heard.told == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert bench.machine.pending == {}


@virtual
async def test_a_marker_that_comes_between_request_and_decision_ends_the_transaction() -> None:
    bench = await active()
    bench.log.confirmed.add(ONE)
    heard = put(bench, b"a", 7, ONE)
    bench.log.end_transaction(ONE, commits=False)
    await turn()
    assert heard.told == [ErrorCode.INVALID_TXN_STATE]
    assert len(bench.log.batches) == 1


@virtual
async def test_transactions_are_loaded() -> None:
    bench = ShardBench()
    bench.shard.replay(Loaded([record(b"a", b"4"), record(b"b", b"5", 1)], 0))
    bench.shard.replay(Loaded([record(b"c", b"6", 2)], 2))
    bench.shard.replay(Loaded([record(b"d", None, 3)], 2))  # passed over
    bench.shard.replay(Loaded([record(b"", b"", 4)], 0, COMMIT))
    assert bench.machine.sums == {b"a": 4, b"b": 5}
    assert bench.machine.pending == {2: {b"c": 6}}
    bench.shard.activate()


@virtual
async def test_while_the_log_is_read_markers_are_read_and_then_they_are_heard() -> None:
    """Each one ends its transaction once: a second time might end the next one."""

    bench = ShardBench()
    bench.machine.pending[0] = {b"a": 1}
    bench.log.end_transaction(ONE, commits=True)
    assert bench.machine.sums == {}  # it is read later
    for loaded in bench.log.loaded():
        bench.shard.replay(loaded)
    assert bench.machine.sums == {b"a": 1}
    bench.shard.activate()
    assert bench.shard.state is ShardState.LOADING  # it is not committed
    bench.machine.pending[0] = {b"b": 2}
    bench.log.end_transaction(ONE, commits=True)
    assert bench.machine.sums == {b"a": 1, b"b": 2}
    bench.log.commit()
    await turn()
    assert bench.machine.is_loaded


@virtual
async def test_an_unloaded_shard_hears_nothing() -> None:
    bench = await active()
    bench.machine.pending[0] = {b"a": 1}
    on_marker = bench.log.on_marker
    assert on_marker is not None
    bench.shard.unload()
    on_marker(0, 0, COMMIT)
    assert bench.machine.sums == {}
    assert bench.log.on_marker is None


@virtual
async def test_a_machine_that_fails_at_a_marker_is_loaded_anew() -> None:
    bench = await active()
    bench.machine.pending[0] = {b"a": "no number"}  # type: ignore[dict-item]
    bench.machine.sums = None  # type: ignore[assignment]
    bench.log.end_transaction(ONE, commits=True)
    assert bench.broken == 1
    assert bench.shard.state is ShardState.UNLOADED


# ------------------------------------------------------------------------------- too large


@virtual
async def test_a_step_that_no_batch_holds_is_replaced_by_its_other_one() -> None:
    bench = await active(max_batch_bytes=200)
    heard, other = Heard(), Heard()

    def event(machine: Sums, now: Now) -> Step:
        step = machine.add(b"a", 1, heard, size=1_000)
        step.instead = lambda: machine.add(b"b", 2, other)
        return step

    bench.shard.submit(Event(event), heard)
    await turn()
    bench.log.commit()
    assert (heard.told, other.told) == ([], [2])
    assert bench.machine.sums == {b"b": 2}
