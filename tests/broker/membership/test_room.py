"""When a broker reports that it has no room, and when it reports that it has room again."""

from __future__ import annotations

from broker.membership.room import Room, Rooms
from tests.support.timing import HandClock

MIB = 1 << 20


class _Disk:
    def __init__(self) -> None:
        self.free = {"/a": 100 * MIB, "/b": 100 * MIB}

    def free_bytes(self, path: str) -> int:
        if self.free[path] < 0:
            raise OSError(5, "no such luck")
        return self.free[path]


class _World:
    def __init__(self) -> None:
        self.clock, self.disk = HandClock(), _Disk()
        self.rooms = Rooms(self.disk, self.clock, ["/a", "/b", "/a"])  # type: ignore[arg-type]
        self.told: list[Room] = []
        self.rooms.on_change = lambda: self.told.append(self.rooms.room)

    def now(self) -> tuple[Room, tuple[str, ...]]:
        return self.rooms.room, self.rooms.full

    def wait(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.now_ms += 1000
            self.rooms.check()


def test_there_is_room() -> None:
    world = _World()
    world.wait(5)
    assert world.now() == (Room.ENOUGH, ())
    assert world.told == []


def test_a_refused_write() -> None:
    world = _World()
    world.rooms.refused("/b", 10)
    assert world.now() == (Room.NONE, ("/b",))
    world.wait(2)
    assert world.now() == (Room.YIELDS, ("/b",))
    world.wait(2)
    assert world.now() == (Room.YIELDS, ("/b",)), "at least five seconds"
    world.wait(1)
    assert world.now() == (Room.ENOUGH, ())
    assert world.told == [Room.NONE, Room.YIELDS, Room.ENOUGH]


def test_a_directory_that_is_offline_is_not_full() -> None:
    """Its file system may not even tell how much is free."""
    world = _World()
    world.disk.free["/b"] = -1
    world.wait(1)
    assert world.now() == (Room.NONE, ("/b",))
    world.rooms.leave_out("/b")
    world.wait(5)
    assert world.now() == (Room.ENOUGH, ())
    assert world.told == [Room.NONE, Room.ENOUGH]


def test_little_is_left() -> None:
    world = _World()
    world.disk.free["/a"] = 2 * MIB - 1
    world.wait(3)
    assert world.told == [Room.NONE, Room.YIELDS]
    world.disk.free["/a"] = 8 * MIB - 1
    world.wait(60)
    assert world.now() == (Room.YIELDS, ("/a",)), "not enough for some batches"
    world.disk.free["/a"] = 8 * MIB
    world.wait(1)
    assert world.now() == (Room.ENOUGH, ())


def test_as_much_as_was_refused_must_fit() -> None:
    world = _World()
    world.disk.free["/a"] = 100 * MIB
    world.rooms.refused("/a", 30 * MIB)
    world.wait(10)
    assert world.now()[1] == ("/a",)
    world.disk.free["/a"] = 120 * MIB
    world.wait(1)
    assert world.now() == (Room.ENOUGH, ())


def test_refused_again_it_has_been_full_since_the_first_time() -> None:
    world = _World()
    world.rooms.refused("/a", 30 * MIB)
    world.wait(4)
    world.rooms.refused("/a", 1)
    assert world.now() == (Room.YIELDS, ("/a",))
    world.wait(10)
    assert world.now() == (Room.YIELDS, ("/a",)), "what was refused first does not fit"
    world.disk.free["/a"] = 120 * MIB
    world.wait(1)
    assert world.now() == (Room.ENOUGH, ())
    assert world.told == [Room.NONE, Room.YIELDS, Room.ENOUGH]


def test_two_mebibytes_are_room() -> None:
    world = _World()
    world.disk.free["/a"] = 2 * MIB
    world.wait(3)
    assert world.told == []


def test_a_disk_that_does_not_answer_has_no_room() -> None:
    world = _World()
    world.disk.free["/a"] = -1
    world.wait(1)
    assert world.now()[1] == ("/a",)
    assert world.rooms.free_bytes("/a") == 0
