"""Groups on a real shard: what the machine and its host make of each other."""

from __future__ import annotations

from broker.coordinator.group.config import GroupConfig
from broker.coordinator.group.counters import GroupCounters
from broker.coordinator.group.machine import GroupMachine
from broker.coordinator.group.types import (
    JoinAnswer,
    OffsetCommitAnswer,
    OffsetCommitRequest,
    OffsetFetchAnswer,
    OffsetFetchRequest,
    OffsetToCommit,
    SyncAnswer,
    SyncRequest,
)
from broker.coordinator.shard import Shard
from broker.replication.deadlines import DeadlineWheel
from stele.errors import ErrorCode
from tests.support.coordinators import Heard, HeldLog
from tests.support.groups import join_request, told
from tests.support.timing import LoopClock, until
from tests.support.worlds import virtual


def host(log: HeldLog) -> Shard[GroupMachine]:
    clock = LoopClock()
    shard = Shard(
        GroupMachine(GroupConfig(), lambda: "u", GroupCounters()),
        log,
        clock=clock,
        deadlines=DeadlineWheel(clock),
        commit_timeout_ms=5_000,
        on_broken=lambda: None,
    )
    shard.begin()
    for loaded in log.loaded():
        shard.replay(loaded)
    shard.activate()
    return shard


@virtual
async def test_a_group_on_a_shard() -> None:
    log = HeldLog()
    shard = host(log)
    joined, synced, committed = Heard(), Heard(), Heard()
    join = join_request(instance="i")
    shard.submit(join, joined)
    await until(lambda: bool(joined.told))  # after the first rebalance's delay
    member_id = told(joined, JoinAnswer).member_id
    sync = SyncRequest("g", 1, member_id, "i", "consumer", "range", {member_id: b"all"})
    shard.submit(sync, synced)
    offsets = (OffsetToCommit("t", 0, 5),)
    commit = OffsetCommitRequest("g", 1, member_id, "i", offsets)
    shard.submit(commit, committed)
    await until(lambda: len(log.batches) == 1)
    assert [len(each) for each in log.batches] == [2]
    assert (synced.told, committed.told) == ([], [])
    log.commit()
    assert told(synced, SyncAnswer).assignment == b"all"
    assert told(committed, OffsetCommitAnswer).errors == (ErrorCode.NONE,)

    waiting = Heard()
    other = join_request(known_id=False)
    shard.submit(other, waiting)
    fetched = Heard()
    fetch = OffsetFetchRequest("g", None)
    shard.submit(fetch, fetched)
    await until(lambda: bool(fetched.told))
    shard.unload()
    assert waiting.told == [ErrorCode.NOT_COORDINATOR]

    shard = host(log)
    again = Heard()
    shard.submit(fetch, again)
    await until(lambda: bool(again.told))
    assert told(again, OffsetFetchAnswer) == told(fetched, OffsetFetchAnswer)
    assert [each.offset for each in told(again, OffsetFetchAnswer).offsets] == [5]
    await until(lambda: len(log.batches) == 2)  # nobody is heard of: the group is empty
    shard.unload()
