"""A lane's driver: what it makes of the answers of leaders, and of leaders that do not answer."""

from __future__ import annotations

import asyncio
import itertools
import random
from typing import cast

import pytest

from broker.gateway.lane_driver import TIMEOUT_S, LaneDriver, Preparation
from broker.gateway.lanes import Resolved
from broker.gateway.leaders import AcknowledgedBatch, PartitionLeaders, TopicDeletedError
from broker.gateway.peers import UnansweredError
from broker.gateway.refusals import Refusal
from broker.gateway.runs import Room, Run, Written
from broker.gateway.shared_lane import SharedLane
from stele.config import ClientWorld
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from stele.wire.batch import read_header
from stele.wire.compression import Compression
from stele.world import Connector
from tests.support.timing import LoopClock, until
from tests.support.worlds import virtual

HANGS_S = 10.0
PARTITION = PartitionId(b"t" * 16, 0)


class HangingLeader:
    """It answers each request after ten seconds."""

    def __init__(self) -> None:
        self.batches = 0

    async def produce(
        self, partition: PartitionId, batch: bytearray, acks: int = -1
    ) -> AcknowledgedBatch:
        self.batches += 1
        await asyncio.sleep(HANGS_S)
        return AcknowledgedBatch(0, -1)


class Times:
    """When each run got its outcome."""

    def __init__(self) -> None:
        self.refused_s: list[tuple[float, ErrorCode]] = []
        self.stored_s: list[float] = []

    def stored(self, run: Run, first: int, record_count: int, written: Written) -> None:
        self.stored_s.append(asyncio.get_running_loop().time())

    def refused(self, run: Run, first: int, record_count: int, refusal: Refusal) -> None:
        self.refused_s.append((asyncio.get_running_loop().time(), refusal.code))


def driver_of(
    lane: SharedLane[Run], prepare: Preparation, leader: object, room: Room
) -> LaneDriver:
    return LaneDriver(
        PARTITION,
        lane,
        prepare,
        cast(PartitionLeaders, leader),
        room,
        ClientWorld(LoopClock(), cast(Connector, None), random.Random(1)),
        acks=-1,
        compression=Compression.NONE,
    )


@virtual
async def test_a_driver_rests_quietly_when_its_lane_is_empty(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is logged, and nothing expires before its time."""
    lane: SharedLane[Run] = SharedLane(1000, is_numbered=False)
    expired: list[float] = []
    times = Times()

    def expire(now_s: float) -> list[Resolved[Run]]:
        expired.append(now_s)
        return []

    monkeypatch.setattr(lane, "expire", expire)

    async def prepare() -> list[Resolved[Run]]:
        raise AssertionError("records without numbers need no producer id")

    driver = driver_of(lane, prepare, HangingLeader(), Room(1000))
    run = Run(times, [(None, b"v", (), 1)], [0], 250)
    lane.add(run, 1, 250, TIMEOUT_S)
    driver.taken(run)
    await asyncio.sleep(HANGS_S + 1)
    assert times.stored_s == [HANGS_S]
    assert driver.is_idle
    assert expired == []
    assert caplog.text == ""


@virtual
async def test_a_record_waits_no_longer_than_its_time_for_a_leader_that_hangs() -> None:
    lane: SharedLane[Run] = SharedLane(1, is_numbered=True)  # every run is a batch

    async def prepare() -> list[Resolved[Run]]:
        lane.renewed(7)
        return []

    times, leader, room = Times(), HangingLeader(), Room(1000)
    driver = driver_of(lane, prepare, leader, room)
    for _ in range(5):
        run = Run(times, [(None, b"v", (), 1)], [0], 250)
        lane.add(run, 1, 250, TIMEOUT_S - 5)
        driver.taken(run)
    assert room.is_full
    await asyncio.sleep(TIMEOUT_S - 4.9)
    assert times.stored_s == [HANGS_S, 2 * HANGS_S]
    assert times.refused_s == [(TIMEOUT_S - 5, ErrorCode.REQUEST_TIMED_OUT)] * 3
    assert await room.wait(0.0)
    assert leader.batches == 3, "the third has no answer yet"
    await asyncio.sleep(HANGS_S)
    assert driver.is_idle
    assert len(times.stored_s) + len(times.refused_s) == 5
    assert leader.batches == 3


# ------------------------------------------------------------------------------ answers


class ScriptedLeader:
    """Fails on order, and then writes. Notes the producer id and sequence of each batch."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = [*failures]
        self.stamps: list[tuple[int, int]] = []

    async def produce(
        self, partition: PartitionId, batch: bytearray, acks: int = -1
    ) -> AcknowledgedBatch:
        header = read_header(batch)
        self.stamps.append((header.producer_id, header.base_sequence))
        if self.failures:
            raise self.failures.pop(0)
        return AcknowledgedBatch(50, -1)


class Outcomes:
    def __init__(self) -> None:
        self.found: list[int | Refusal | None] = []

    def stored(self, run: Run, first: int, record_count: int, written: Written) -> None:
        self.found.append(written.base_offset)

    def refused(self, run: Run, first: int, record_count: int, refusal: Refusal) -> None:
        self.found.append(refusal)


async def outcome_of(
    leader: ScriptedLeader, *preparations: Exception | None
) -> int | Refusal | None:
    """Of one record. Before producer ids are given, ``preparations`` fail: for now, where that is
    None. The first id is 7."""
    ids, failures = itertools.count(7), [*preparations]
    lane: SharedLane[Run] = SharedLane(1000, is_numbered=True)

    async def prepare() -> list[Resolved[Run]] | None:
        if failures:
            failure = failures.pop(0)
            if failure is not None:
                raise failure
            return None
        lane.renewed(next(ids))
        return []

    outcomes = Outcomes()
    driver = driver_of(lane, prepare, leader, Room(1000))
    run = Run(outcomes, [(None, b"v", (), 1)], [0], 250)
    lane.add(run, 1, 250, TIMEOUT_S)
    driver.taken(run)
    await until(lambda: driver.is_idle)
    assert not failures
    (found,) = outcomes.found
    return found


def refused(code: ErrorCode) -> ApiError:
    return ApiError(code, "because")


FEW = refused(ErrorCode.NOT_ENOUGH_REPLICAS)  # before it was appended
MOVED = refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)  # perhaps afterwards
UNCERTAIN = refused(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
GAP = refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
LOST, UNSENT = (UnansweredError("no answer", maybe_taken=taken) for taken in (True, False))


@pytest.mark.parametrize(
    ("failures", "stamps"),
    [
        ([], [(7, 0)]),
        ([FEW], [(7, 0)] * 2),
        ([UNCERTAIN, LOST, MOVED], [(7, 0)] * 4),
        ([refused(ErrorCode.UNKNOWN_SERVER_ERROR)], [(7, 0)] * 2),
        ([GAP], [(7, 0), (8, 0)]),
        ([FEW, GAP], [(7, 0)] * 2 + [(8, 0)]),
        ([UNSENT, GAP], [(7, 0)] * 2 + [(8, 0)]),
        ([UNSENT, refused(ErrorCode.INVALID_PRODUCER_EPOCH)], [(7, 0)] * 2 + [(8, 0)]),
    ],
)
@virtual
async def test_a_record_is_written_once_after_failures_that_pass(
    failures: list[Exception], stamps: list[tuple[int, int]]
) -> None:
    """A batch that may be in the log keeps its numbers, so that the leader knows it again."""
    leader = ScriptedLeader(*failures)
    assert await outcome_of(leader) == 50
    assert leader.stamps == stamps


@virtual
async def test_a_batch_that_the_leader_knows_is_stored_wherever() -> None:
    leader = ScriptedLeader(UNCERTAIN, refused(ErrorCode.DUPLICATE_SEQUENCE_NUMBER))
    assert await outcome_of(leader) is None


@pytest.mark.parametrize(
    ("failures", "code", "maybe_written"),
    [
        ([refused(ErrorCode.INVALID_RECORD)], ErrorCode.INVALID_RECORD, False),
        ([FEW, refused(ErrorCode.INVALID_RECORD)], ErrorCode.INVALID_RECORD, False),
        ([LOST, refused(ErrorCode.INVALID_RECORD)], ErrorCode.INVALID_RECORD, True),
        ([MOVED, GAP], ErrorCode.UNKNOWN_PRODUCER_ID, True),
        ([UNCERTAIN, GAP], ErrorCode.UNKNOWN_PRODUCER_ID, True),
        ([LOST, GAP], ErrorCode.UNKNOWN_PRODUCER_ID, True),
        ([TopicDeletedError("gone")], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
        ([LOST, TopicDeletedError("gone")], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
        ([ZeroDivisionError()], ErrorCode.UNKNOWN_SERVER_ERROR, False),
    ],
)
@virtual
async def test_a_refusal_says_whether_the_record_may_be_written(
    failures: list[Exception], code: ErrorCode, *, maybe_written: bool
) -> None:
    leader = ScriptedLeader(*failures)
    found = await outcome_of(leader)
    assert isinstance(found, Refusal)
    assert (found.code, found.maybe_written) == (code, maybe_written)
    assert len(leader.stamps) == len(failures)


@virtual
async def test_a_producer_id_is_asked_for_until_that_is_refused_for_good() -> None:
    leader = ScriptedLeader()
    loading = refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert await outcome_of(leader, None, loading, UNSENT) == 50
    assert leader.stamps == [(7, 0)]
    found = await outcome_of(leader, refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    assert isinstance(found, Refusal)
    assert found.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert leader.stamps == [(7, 0)]


@virtual
async def test_records_that_a_preparation_refuses_get_its_reason() -> None:
    """A publisher whose id somebody else has used learns it before anything is sent."""
    lane: SharedLane[Run] = SharedLane(1000, is_numbered=True)
    fenced = ErrorCode.INVALID_PRODUCER_EPOCH

    async def prepare() -> list[Resolved[Run]]:
        return lane.fail_all(fenced, "fenced")

    leader, outcomes = ScriptedLeader(), Outcomes()
    driver = driver_of(lane, prepare, leader, Room(1000))
    run = Run(outcomes, [(None, b"v", (), 1)], [0], 250)
    lane.add(run, 1, 250, TIMEOUT_S)
    driver.taken(run)
    await until(lambda: driver.is_idle)
    assert outcomes.found == [Refusal(fenced, "fenced")]
    assert leader.stamps == []
