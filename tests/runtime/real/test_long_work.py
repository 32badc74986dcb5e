"""Long work in a helper process: a round of compaction on real files."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import select
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from runtime.real.disk import RealDisk
from storage.compaction.round import AbandonedError
from storage.compaction.survey import survey
from tests.support.compaction import (
    LIMITS,
    compact,
    compacting,
    filled,
    last_values,
    opened,
    records,
    roll,
)
from tests.support.timing import until

ROOT = Path(__file__).parents[3]


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists() or " Z " in Path(f"/proc/{pid}/stat").read_text()


def test_a_round_in_a_process_of_its_own(disk: RealDisk, tmp_path: Path) -> None:
    log = filled(disk, 60, keys=7, directory=f"{tmp_path}/t-0")
    before = records(log)
    finished = compact(log, disk)
    assert finished is not None
    assert finished.clean_end == 60
    assert len(records(log)) == 8
    assert last_values(records(log)) == last_values(before)
    assert not [name for name in os.listdir(f"{tmp_path}/t-0") if "." not in name]
    assert not list(tmp_path.glob("t-0/*.cleaned"))
    assert not list(tmp_path.glob("t-0/*.deleted"))
    again = opened(disk, directory=f"{tmp_path}/t-0", recovery_point=log.end_offset)
    assert records(again) == records(log)


async def test_one_process_does_all_rounds(disk: RealDisk, tmp_path: Path) -> None:
    log = filled(disk, 60, keys=7, directory=f"{tmp_path}/t-0")

    await compacting(log, disk)
    first = disk.work_process_id
    roll(log)
    await compacting(log, disk)
    assert disk.work_process_id == first


async def test_work_that_is_closed_early_ends_and_other_work_begins(
    disk: RealDisk, tmp_path: Path
) -> None:
    log = filled(disk, 60, keys=7, directory=f"{tmp_path}/t-0")
    slow = LIMITS._replace(bytes_per_s=1.0)

    task = asyncio.create_task(compacting(log, disk, limits=slow))
    await until(lambda: disk.work_process_id is not None)
    pid = disk.work_process_id
    assert pid is not None
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert is_gone(pid)
    assert await compacting(log, disk) is not None

    assert len(records(log)) == 8


async def test_a_process_that_dies_fails_its_work_alone(disk: RealDisk, tmp_path: Path) -> None:
    log = filled(disk, 60, keys=7, directory=f"{tmp_path}/t-0")

    found = await survey(log, 0, log.end_offset, 10**9)
    work = disk.carry_out(nap, 60.0)
    first = asyncio.ensure_future(anext(work))
    await until(lambda: disk.work_process_id is not None)
    assert disk.work_process_id is not None
    os.kill(disk.work_process_id, signal.SIGKILL)
    with pytest.raises(OSError, match="died") as caught:
        await first
    assert caught.value.errno == errno.ECHILD
    assert found.segments
    assert await compacting(log, disk) is not None


def nap(disk: RealDisk, seconds: float) -> Generator[Any, None, None]:
    """Named, never run: the process cannot import it before it is killed."""
    yield seconds
    raise AssertionError(disk)


def of_no_module(disk: RealDisk, seconds: float) -> Generator[Any, None, None]:
    """Named, never run: no process can import it."""
    yield seconds
    raise AssertionError(disk)


of_no_module.__module__ = "vanished"


async def test_errors_come_back_as_they_were(disk: RealDisk, tmp_path: Path) -> None:
    log = filled(disk, 60, keys=7, directory=f"{tmp_path}/t-0")

    os.remove(log.segments.all()[1].path)
    with pytest.raises(Exception, match="is gone"):
        await compacting(log, disk)
    # What cannot even begin is no failure of the device.
    with pytest.raises(OSError, match="No module named 'vanished'") as caught:
        await anext(disk.carry_out(of_no_module, 1.0))
    assert caught.value.errno == errno.EINVAL

    assert log.offline is None


async def test_a_log_that_is_deleted_meanwhile_gets_no_files(
    disk: RealDisk, tmp_path: Path
) -> None:
    log = filled(disk, 60, keys=7, directory=f"{tmp_path}/t-0")

    task = asyncio.create_task(compacting(log, disk))
    await asyncio.sleep(0)
    log.close()
    os.rename(f"{tmp_path}/t-0", f"{tmp_path}/t-0-delete")
    os.mkdir(f"{tmp_path}/t-0")
    with pytest.raises(AbandonedError):
        await task

    assert not [name for name in os.listdir(f"{tmp_path}/t-0") if not name.endswith(".cleaned")]


PARENT = """
import asyncio, sys
from runtime.real.disk import RealDisk
from tests.support.compaction import LIMITS, compacting, opened
async def main():
    disk = RealDisk()
    log = opened(disk, directory=sys.argv[1])
    slow = LIMITS._replace(bytes_per_s=1.0)
    task = asyncio.create_task(compacting(log, disk, limits=slow))
    while disk.work_process_id is None:
        await asyncio.sleep(0.01)
    print(disk.work_process_id, flush=True)
    await task
asyncio.run(main())
"""


@pytest.mark.processes
def test_a_killed_parent_leaves_no_orphan(disk: RealDisk, tmp_path: Path) -> None:
    filled(disk, 60, keys=7, directory=f"{tmp_path}/t-0").close()
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, f"{tmp_path}/t-0"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        helper = os.pidfd_open(pid)
        parent.kill()
    try:
        assert select.select([helper], [], [], 10)[0]  # readable once the process has ended
    finally:
        os.close(helper)
