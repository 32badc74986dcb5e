"""The law of logs that are opened."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from chaos.sim.cluster.methods import REGISTER_BROKER
from chaos.sim.laws.openings import LogsOpenAsTheyWereLeft
from chaos.sim.world.wire import Said, Stage
from stele.ids import TopicPartition
from storage.checkpoints import (
    CORRUPT_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    encode_offsets,
)
from storage.cuts import CUT_FILE
from storage.errors import CorruptLogError, UnreadableLogError
from storage.swaps import SWAP_FILE
from tests.support.batches import make_batch
from tests.support.law_bench import TOPIC, LawBench

KEY = TopicPartition(TOPIC, 0)
DIRECTORY = f"/data/{KEY}"
SEGMENT = f"{DIRECTORY}/{0:020d}.log"


@pytest.fixture
def bench() -> LawBench:
    return LawBench()


def checkpoint(bench: LawBench, name: str, offset: int) -> None:
    bench.put(1, f"/data/{name}", encode_offsets({KEY: offset}))


class Restart:
    """Broker 1 has a log of two batches of two records. It starts, and registers."""

    def __init__(self, bench: LawBench) -> None:
        self.bench = bench
        self.node = bench.brokers[1]
        self.law = LogsOpenAsTheyWereLeft(bench.cluster, bench.report)
        self.batches = [make_batch(2), make_batch(2, base_offset=2)]
        self.log = bench.replica(1, *self.batches).log

    def __call__(self, *, corrupt: CorruptLogError | None = None) -> list[str]:
        """Open what was left, or find it corrupt."""
        opened = {} if corrupt else {KEY: self.log}
        directory = SimpleNamespace(
            path="/data", logs=opened, corrupt={KEY: corrupt} if corrupt else {}
        )
        self.node.broker.directories = [directory]
        self.node.restart()
        said = Said("b1", "c101", REGISTER_BROKER, b"")
        self.law.hear(Stage.SENT, said)
        self.law.hear(Stage.SENT, said)
        return self.bench.broken()

    def leave(self) -> None:
        """What is on the disk now is what a process has left."""
        starts = self.node.on_start
        assert starts is not None
        starts(self.bench.sim_node(1))


@pytest.fixture
def restart(bench: LawBench) -> Restart:
    return Restart(bench)


def test_a_log_that_opens_with_everything_is_right(restart: Restart) -> None:
    restart.leave()
    assert not restart()
    assert restart.law.looked == 1


def test_a_log_that_opens_without_a_whole_batch_breaks_it(restart: Restart) -> None:
    restart.leave()
    restart.log.truncate_to(2)
    (report,) = restart()
    assert "opens and ends at 2" in report


@pytest.mark.parametrize("torn", [62, 100])
def test_what_is_torn_may_be_cut(bench: LawBench, restart: Restart, torn: int) -> None:
    inode = bench.simulation.machine("b1").disk.file(SEGMENT)
    del inode.data[len(restart.batches[0]) + torn :]
    restart.leave()
    restart.log.truncate_to(2)
    assert not restart()


def test_a_batch_behind_a_torn_one_may_go(bench: LawBench, restart: Restart) -> None:
    inode = bench.simulation.machine("b1").disk.file(SEGMENT)
    inode.data[len(restart.batches[0])] = 0xFF
    inode.data[len(restart.batches[0]) - 1] ^= 1
    restart.leave()
    restart.log.truncate_to(0)
    assert not restart()


def test_a_log_that_opens_below_its_checkpoints_breaks_it(
    bench: LawBench, restart: Restart
) -> None:
    for name in (RECOVERY_POINT_FILE, HIGH_WATERMARK_FILE):
        checkpoint(bench, name, 4)
        restart.leave()
        assert not restart()
    bench.simulation.machine("b1").disk.flip_bit(SEGMENT, 100)
    restart.leave()
    restart.log.truncate_to(2)
    (report,) = restart()
    assert report.endswith("opens and ends at 2; 4 was on disk")


def test_only_a_log_that_was_damaged_is_corrupt(bench: LawBench, restart: Restart) -> None:
    error = CorruptLogError(SEGMENT, position=0, offset=0, reason="the CRC does not match")
    restart.leave()
    (report,) = restart(corrupt=error)
    assert report.startswith("broker 1 calls t-0 corrupt, which nobody has damaged")
    bench.simulation.machine("b1").disk.flip_bit(SEGMENT, 100)
    restart.leave()
    assert not restart(corrupt=error)


def test_what_a_device_does_not_give_or_has_lost_may_be_given_up(
    bench: LawBench, restart: Restart
) -> None:
    restart.leave()
    assert not restart(
        corrupt=UnreadableLogError(DIRECTORY, position=0, offset=-1, reason="it cannot be read")
    )
    bench.simulation.machine("b1").disk.failures += 1
    restart.leave()
    assert not restart(
        corrupt=CorruptLogError(SEGMENT, position=0, offset=0, reason="the CRC does not match")
    )


def test_a_log_keeps_the_segment_in_which_it_begins(bench: LawBench, restart: Restart) -> None:
    checkpoint(bench, LOG_START_FILE, 4)
    restart.leave()
    assert not restart()
    restart.leave()
    restart.log.reset_to(4)
    (report,) = restart()
    assert "opens and begins with 4" in report


def test_retention_may_run_before_a_broker_has_registered(
    bench: LawBench, restart: Restart
) -> None:
    checkpoint(bench, LOG_START_FILE, 4)
    restart.leave()
    restart.log.reset_to(4)
    restart.node.config.log_retention_check_interval_ms = 1000
    bench.simulation.run(asyncio.sleep(1.001))
    assert not restart()


def test_a_log_whose_end_is_lost_may_begin_anew_at_its_start(
    bench: LawBench, restart: Restart
) -> None:
    checkpoint(bench, LOG_START_FILE, 5)
    restart.leave()
    restart.log.reset_to(5)
    assert not restart()


@pytest.mark.parametrize("note", [CUT_FILE, SWAP_FILE, CORRUPT_FILE])
def test_what_an_earlier_process_has_noted_is_not_judged(
    bench: LawBench, restart: Restart, note: str
) -> None:
    bench.put(1, f"{DIRECTORY}/{note}", b"")
    restart.leave()
    restart.log.truncate_to(2)
    assert not restart()
    assert restart.law.looked == 0
