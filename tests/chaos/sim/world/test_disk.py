"""Virtual disks: what survives each kind of crash, and every fault."""

import asyncio
import errno
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.sim.world.disk import PAGE_BYTES, DiskFaults, ProcessDeadError
from chaos.sim.world.simulation import Simulation
from chaos.sim.world.write_errors import WriteErrorHandle, WriteErrors
from tests.support.worlds import simulated
from world.disk import Disk, SyncFailedError


def after_power_loss(seed: int, prepare: Callable[[Disk], None]) -> Disk:
    """The disk as the next process finds it."""
    sim = Simulation(seed)
    prepare(sim.process("a").world.disk)
    sim.power_off("a")
    sim.power_on("a")
    return sim.process("a").world.disk


def read(disk: Disk, path: str) -> bytes | None:
    return disk.read_file(path) if disk.exists(path) else None


async def synced(disk: Disk, *paths: str) -> None:
    await disk.sync(paths)


def outcomes(prepare: Callable[[Disk], None], path: str) -> set[bytes | None]:
    return {read(after_power_loss(seed, prepare), path) for seed in range(60)}


def test_files_are_files() -> None:
    disk = Simulation(1).process("a").world.disk
    disk.make_directory("/d/e")
    with pytest.raises(FileNotFoundError):
        disk.open("/d/none")
    with pytest.raises(FileNotFoundError):
        disk.open("/nowhere/file", create=True)
    file = disk.open("/d/f", create=True)
    assert file.append([b"ab", bytearray(b"cd")]) == 0
    assert file.append([memoryview(b"ef")]) == 4
    assert (file.size, file.read(1, 3), file.read_now(4, 10)) == (6, b"bcd", b"ef")
    file.truncate(2)
    assert disk.read_file("/d/f") == b"ab"
    file.close()
    with pytest.raises(ValueError, match="closed"):
        file.append([b"x"])
    assert disk.list("/d") == ["e", "f"]
    disk.rename("/d/f", "/d/e/g")
    assert (disk.exists("/d/f"), disk.read_file("/d/e/g")) == (False, b"ab")
    with pytest.raises(OSError, match="empty"):
        disk.rename("/d/e/g", "/d")
    disk.remove_tree("/d")
    assert disk.list("/") == []
    with pytest.raises(FileNotFoundError):
        disk.remove("/d")


def test_an_open_file_outlives_its_name() -> None:
    disk = Simulation(1).process("a").world.disk
    file = disk.open("/f", create=True)
    file.append([b"abc"])
    disk.remove("/f")
    assert file.read_now(0, 3) == b"abc"


def test_what_is_synced_survives_power_loss() -> None:
    def prepare(disk: Disk) -> None:
        disk.make_directory("/d")
        file = disk.open("/d/f", create=True)
        file.append([b"synced"])
        for path in ("/d/f", "/d", "/"):
            disk.sync_now(path)
        file.append([b" and not"])

    found = outcomes(prepare, "/d/f")
    assert all(data is not None and data.startswith(b"synced") for data in found)
    assert b"synced" in found
    assert b"synced and not" in found
    assert len(found) > 3, "a torn write leaves any prefix"


def test_a_synced_file_is_lost_with_its_unsynced_name() -> None:
    def prepare(disk: Disk) -> None:
        disk.open("/f", create=True).append([b"abc"])
        disk.sync_now("/f")

    assert outcomes(prepare, "/f") == {None, b"abc"}


def test_an_unsynced_rename_may_be_undone_and_never_loses_both() -> None:
    def prepare(disk: Disk) -> None:
        for name in ("/new", "/old"):
            disk.open(name, create=True).append([name.encode()])
            disk.sync_now(name)
        disk.sync_now("/")
        disk.rename("/new", "/old")

    assert outcomes(prepare, "/old") == {b"/old", b"/new"}


def test_an_unsynced_cut_may_be_undone() -> None:
    def prepare(disk: Disk) -> None:
        file = disk.open("/f", create=True)
        file.append([b"abcdef"])
        disk.sync_now("/f")
        disk.sync_now("/")
        file.truncate(3)
        file.append([b"XY"])

    assert outcomes(prepare, "/f") == {b"abcdef", b"abc", b"abcX", b"abcXY"}


def test_replace_file_is_atomic_and_durable() -> None:
    def prepare(disk: Disk) -> None:
        disk.replace_file_now("/f", b"one")
        disk.replace_file_now("/f", b"two")

    assert outcomes(prepare, "/f") == {b"two"}


def test_a_process_crash_loses_nothing_and_frees_its_locks() -> None:
    sim = Simulation(1)
    process = sim.process("a")
    process.world.disk.open("/f", create=True).append([b"abc"])
    process.world.disk.lock("/lock")
    with pytest.raises(BlockingIOError):
        sim.process("a", "other").world.disk.lock("/lock")
    process.kill()
    disk = sim.process("a").world.disk
    assert disk.read_file("/f") == b"abc"
    release = disk.lock("/lock")
    release()
    with pytest.raises(ProcessDeadError):
        process.world.disk.exists("/f")


def test_sync_takes_time_and_covers_what_was_written_before_it() -> None:
    def sync_then_write(seed: int) -> bytes | None:
        sim = Simulation(seed)

        async def main() -> bytes | None:
            disk = sim.process("a").world.disk
            process = sim.machines["a"].processes[0]
            file = disk.open("/f", create=True)
            disk.sync_now("/")
            file.append([b"1"])
            first = process.start(synced(disk, "/f"))
            await asyncio.sleep(0)
            file.append([b"2"])
            second = process.start(synced(disk, "/f", "/gone"))
            await asyncio.sleep(0)
            file.append([b"3"])
            while not (first.done() and second.done()):
                await asyncio.sleep(0.0001)
            assert sim.now > 0
            sim.power_off("a")
            sim.power_on("a")
            return read(sim.process("a").world.disk, "/f")

        return sim.run(main())

    assert {sync_then_write(seed) for seed in range(30)} == {b"12", b"123"}


def test_power_lost_during_a_sync_leaves_any_part_of_it() -> None:
    def lose(seed: int) -> bytes | None:
        sim = Simulation(seed)

        async def main() -> bytes | None:
            process = sim.process("a")
            disk = process.world.disk
            file = disk.open("/f", create=True)
            disk.sync_now("/")
            file.append([b"ab"])
            process.start(synced(disk, "/f"))
            await asyncio.sleep(0.000_1)
            sim.power_off("a")
            sim.power_on("a")
            await asyncio.sleep(1)
            return read(sim.process("a").world.disk, "/f")

        return sim.run(main())

    assert {lose(seed) for seed in range(60)} == {b"", b"a", b"ab"}


def test_a_failed_sync_loses_what_it_covered_even_if_tried_again() -> None:
    sim = Simulation(1)
    machine = sim.machine("a")
    disk = sim.process("a").world.disk
    file = disk.open("/f", create=True)
    disk.sync_now("/")
    file.append([b"a" * PAGE_BYTES + b"bc"])
    machine.disk.faults.failing_sync = True
    with pytest.raises(OSError, match="Input/output") as caught:
        disk.sync_now("/f")
    assert caught.value.errno == errno.EIO
    machine.disk.faults.failing_sync = False
    disk.sync_now("/f")
    file.append([b"def"])
    disk.sync_now("/f")
    sim.power_off("a")
    sim.power_on("a")
    # A page that is written again is written as a whole.
    assert sim.process("a").world.disk.read_file("/f") == bytes(PAGE_BYTES) + b"bcdef"


def test_a_full_disk_takes_a_part_and_says_so() -> None:
    sim = Simulation(1)
    disk = sim.process("a").world.disk
    sim.machine("a").disk.faults.quota_bytes = 10
    file = disk.open("/f", create=True)
    file.append([b"1234567"])
    assert disk.free_bytes("/") == 3
    with pytest.raises(OSError, match="space") as caught:
        file.append([b"890abc"])
    assert caught.value.errno == errno.ENOSPC
    assert disk.read_file("/f") == b"1234567890"


@simulated(1)
async def test_a_full_disk_keeps_no_part_of_a_file_that_was_to_be_replaced(sim: Simulation) -> None:
    disk = sim.process("a").world.disk
    disk.replace_file_now("/f", b"one")
    sim.machine("a").disk.faults.quota_bytes = 10
    with pytest.raises(OSError, match="space"):
        disk.replace_file_now("/f", b"far too much")
    assert disk.list("/") == ["f"]
    assert (disk.free_bytes("/"), disk.read_file("/f")) == (7, b"one")

    with pytest.raises(OSError, match="space"):
        await disk.replace_file("/f", b"far too much")
    assert disk.list("/") == ["f"]


def test_a_file_is_old_if_it_cannot_be_replaced_for_want_of_a_handle() -> None:
    sim = Simulation(1)
    disk = sim.process("a").world.disk
    disk.replace_file_now("/f", b"0")
    last, refused = b"0", 0
    sim.machine("a").disk.faults.no_handle = 0.3
    for number in range(100):
        data = b"%d" % number
        try:
            disk.replace_file_now("/f", data)
        except OSError:
            refused += 1
        else:
            last = data
        assert sim.machine("a").disk.file("/f").data == last
    assert 10 < refused < 90


def test_broken_devices_and_flipped_bits() -> None:
    sim = Simulation(1)
    disk = sim.process("a").world.disk
    faults = sim.machine("a").disk.faults
    file = disk.open("/f", create=True)
    file.append([b"abc"])
    sim.machine("a").disk.flip_bit("/f", 1)
    assert file.read_now(0, 3) == b"acc"
    faults.failing_read = True
    with pytest.raises(OSError, match="Input/output"):
        file.read_now(0, 1)
    with pytest.raises(OSError, match="Input/output"):
        disk.read_file("/f")
    faults.failing_write = True
    with pytest.raises(OSError, match="Input/output"):
        file.append([b"x"])


@simulated(1)
async def test_cold_reads_answer_after_warming(sim: Simulation) -> None:
    sim.machine("a").disk.faults.cold_read = 1.0

    process = sim.process("a")
    disk = process.world.disk

    async def look() -> bytes | bytearray | None:
        file = disk.open("/f", create=True)
        file.append([b"abc"])
        assert file.read(0, 3) is None
        await disk.warm("/f", 0, 3)
        return file.read(0, 3)

    assert await process.run(look()) == b"abc"


@settings(max_examples=60)
@given(
    st.lists(
        st.one_of(
            st.binary(min_size=1, max_size=9000),
            st.integers(0, 9000),
            st.just("sync"),
        ),
        max_size=12,
    ),
    st.integers(0, 1000),
    st.sampled_from([0.0, 0.5]),
)
def test_a_power_loss_keeps_every_synced_byte_that_no_cut_took(
    steps: list[bytes | int | str], seed: int, torn_page: float
) -> None:
    sim = Simulation(seed)
    sim.machine("a").disk.faults = DiskFaults(torn_page=torn_page)
    disk = sim.process("a").world.disk
    file = disk.open("/f", create=True)
    disk.sync_now("/")
    content = b""
    safe = b""  # what no write or cut since the last sync has touched
    for step in steps:
        if isinstance(step, bytes):
            file.append([step])
            content += step
        elif isinstance(step, int):
            size = min(step, len(content))
            file.truncate(size)
            content = content[:size]
            safe = safe[:size]
        else:
            disk.sync_now("/f")
            safe = content
    assert disk.read_file("/f") == content
    sim.power_off("a")
    sim.power_on("a")
    assert sim.process("a").world.disk.read_file("/f").startswith(safe)


# ------------------------------------------------------------------------------- write errors


def test_a_write_error_is_reported_once_to_each_handle_since_before_it() -> None:
    errors = WriteErrors()
    before, other = WriteErrorHandle(errors), WriteErrorHandle(errors)
    assert not before.tell()
    errors.add()
    after = WriteErrorHandle(errors)  # nobody has heard of it yet
    assert [handle.tell() for handle in (before, other, after)] == [True] * 3
    assert [handle.tell() for handle in (before, other, after)] == [False] * 3
    assert not WriteErrorHandle(errors).tell()  # it is too late


@simulated(1)
async def test_all_later_syncs_of_every_owner_report_a_failed_write_back(
    sim: Simulation,
) -> None:
    disk = sim.process("a").world.disk
    faults = sim.machines["a"].disk.faults
    process = sim.machines["a"].processes[0]
    paths: dict[str, list[str]] = {}
    for name in ("/a", "/b", "/a/metadata"):
        disk.make_directory(name)
        _ = disk.own(name) if name == "/a/metadata" else disk.lock(f"{name}/.lock")
        paths[name] = [f"{name}/{number}.log" for number in range(2)]
        for path in paths[name]:
            faults.failing_write_back = "/a/1.log"
            disk.open(path, create=True).append([b"x"])
    told = []
    for name in ("/a/metadata", "/b", "/a") * 2:
        sync = process.start(synced(disk, *paths[name]))
        while not sync.done():
            await asyncio.sleep(0.0001)
        if isinstance(sync.exception(), SyncFailedError):
            told.append(name)
    with pytest.raises(SyncFailedError):
        disk.sync_now("/a")
    disk.sync_now("/")
    sim.power_off("a")
    sim.power_on("a")
    assert read(sim.process("a").world.disk, "/a/1.log") == b""
    assert told == ["/a/metadata", "/b", "/a"] * 2
