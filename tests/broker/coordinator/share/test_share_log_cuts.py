"""The log of a share coordinator loses the records that no share partition needs."""

from __future__ import annotations

from broker.coordinator.share.types import InitializeRequest, StateKey, WriteRequest
from broker.replication.deletion import Deletion, DeletionResult
from broker.share.values import RecordState, StateBatch
from metadata.internal_topics import SHARE_TOPIC
from stele.errors import ErrorCode
from stele.ids import PartitionId
from tests.support.broker_apis import Edges
from tests.support.coordinators import Heard
from tests.support.share_states import StateBench, T
from tests.support.timing import until
from tests.support.worlds import virtual

KEY = StateKey("g", T, 0)


def write(key: StateKey, offset: int) -> WriteRequest:
    done = StateBatch(offset, offset, RecordState.ACKNOWLEDGED, 1)
    return WriteRequest(key, 1, 0, offset, -1, (done,))


def test_a_cut_waits_until_the_newer_snapshots_are_committed() -> None:
    """If the leader changed before, the next one would have neither the old nor the new ones."""
    bench = StateBench()
    bench.ask(InitializeRequest(KEY, 1, 0))
    bench.commits_at_once = False
    for offset in range(30):
        bench.send(write(KEY, offset))
    assert bench.machine.needed_from > 10
    bench.machine.committed(bench.high_watermark)
    assert bench.machine.cut_offset == 0
    wanted = bench.machine.needed_from
    bench.machine.committed(len(bench.log) - 1)
    assert bench.machine.cut_offset == 0
    bench.commit()
    assert bench.machine.cut_offset == wanted


def test_a_small_part_of_a_log_stays() -> None:
    bench = StateBench()
    bench.ask(InitializeRequest(KEY, 1, 0))
    for offset in range(7):
        bench.ask(write(KEY, offset))
    assert 0 < bench.machine.needed_from < 10
    assert bench.machine.cut_offset == 0
    bench.ask(write(KEY, 7))
    bench.ask(write(KEY, 8))
    bench.ask(write(KEY, 9))
    assert bench.machine.needed_from == 10
    assert bench.machine.cut_offset == 10


def test_a_loaded_machine_knows_where_its_log_begins() -> None:
    bench = StateBench()
    bench.ask(InitializeRequest(KEY, 1, 0))
    for offset in range(30):
        bench.ask(write(KEY, offset))
    bench.cut_when_due()
    start = bench.start
    assert start >= 10
    bench.reload()
    assert bench.machine.cut_offset == start


@virtual
async def test_records_are_deleted_when_many_are_not_needed() -> None:
    edges = Edges(share_coordinator_snapshot_update_records_per_snapshot="1")
    orders = edges.add_topic("orders", [[1]])
    states = edges.add_topic(SHARE_TOPIC, [[1]])
    coordinators = edges.sharing.coordinators
    await until(lambda: len(coordinators.active) == 1)
    key = StateKey("g", orders, 0)
    coordinators.submit(0, InitializeRequest(key, 1, 0), Heard())
    deletion = edges.replicas.deletion
    deletion.result = DeletionResult(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    (machine,) = coordinators.active
    last = Heard()
    for offset in range(1_100):
        last = Heard()
        coordinators.submit(0, write(key, offset), last)
    await until(lambda: bool(deletion.deleted))
    assert len(last.told) == 1
    first = deletion.deleted[0][0]
    assert first == [Deletion(PartitionId(states, 0), machine.cut_offset)]
    # A deletion that failed is repeated with the next one.
    deletion.result = DeletionResult(ErrorCode.NONE, 0)
    for offset in range(1_100, 2_300):
        coordinators.submit(0, write(key, offset), Heard())
    await until(lambda: len(deletion.deleted) == 2)
    assert deletion.deleted[1][0][0].offset == machine.cut_offset > first[0].offset
    await edges.sharing.stop()


@virtual
async def test_the_states_of_a_deleted_topic_go() -> None:
    edges = Edges()
    orders = edges.add_topic("orders", [[1]])
    edges.add_topic(SHARE_TOPIC, [[1]])
    coordinators = edges.sharing.coordinators
    await until(lambda: len(coordinators.active) == 1)
    heard = Heard()
    coordinators.submit(0, InitializeRequest(StateKey("g", orders, 0), 1, 0), heard)
    (machine,) = coordinators.active
    await until(lambda: machine.count == 1)
    edges.remove_topic("orders")
    await until(lambda: machine.count == 0)
    await edges.sharing.stop()
