"""Which open file a path names, against what the file system says."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from runtime.real.disk import RealDisk, RealFile

DIRECTORIES, NAMES = ("a", "b"), ("x", "y")
places = st.tuples(st.sampled_from(DIRECTORIES), st.sampled_from(NAMES))


class Names(RuleBasedStateMachine):
    """Files are opened, closed, renamed and removed, and some have their handles taken away. A
    handle always belongs to the file that its path names."""

    def __init__(self) -> None:
        super().__init__()
        self.temporary = tempfile.TemporaryDirectory()
        self.root = Path(self.temporary.name)
        for directory in DIRECTORIES:
            (self.root / directory).mkdir()
        self.disk = RealDisk(max_handles=3)
        self.disk.kept.is_on = True
        self.names = self.disk.names
        self.files: list[RealFile] = []

    def path(self, place: tuple[str, str]) -> str:
        return str(self.root.joinpath(*place))

    @rule(place=places)
    def open(self, place: tuple[str, str]) -> None:
        file = self.disk.open(self.path(place), create=True)
        self.files.append(file)
        assert self.names.file(file.path) is file

    @rule(number=st.integers(0, 9))
    def close(self, number: int) -> None:
        if self.files:
            self.files.pop(number % len(self.files)).close()

    @rule(number=st.integers(0, 9))
    def use(self, number: int) -> None:
        if self.files:
            file = self.files[number % len(self.files)]
            try:
                file.append([b"x"])
            except FileNotFoundError:
                self.files.remove(file)  # its path names another one
                file.close()

    @rule(before=places, after=places)
    def rename(self, before: tuple[str, str], after: tuple[str, str]) -> None:
        if os.path.exists(self.path(before)):
            self.disk.rename(self.path(before), self.path(after))

    @rule()
    def swap_directories(self) -> None:
        one, other = (str(self.root / each) for each in DIRECTORIES)
        for source, target in ((one, one + "-"), (other, one), (one + "-", other)):
            self.disk.rename(source, target)

    @rule(place=places)
    def remove(self, place: tuple[str, str]) -> None:
        if os.path.exists(self.path(place)):
            self.disk.remove(self.path(place))

    @rule(directory=st.sampled_from(DIRECTORIES))
    def remove_tree(self, directory: str) -> None:
        self.disk.remove_tree(str(self.root / directory))
        (self.root / directory).mkdir()

    @rule(place=places)
    def see(self, place: tuple[str, str]) -> None:
        path = self.path(place)
        if os.path.exists(path):
            self.names.seen(path, os.stat(path))

    @invariant()
    def a_handle_is_of_what_the_path_names(self) -> None:
        for directory in DIRECTORIES:
            for name in NAMES:
                path = self.path((directory, name))
                file = self.names.file(path)
                if file is not None:
                    assert os.fstat(file.handle).st_ino == os.stat(path).st_ino

    def teardown(self) -> None:
        for file in self.files:
            file.close()
        self.disk.close()
        self.temporary.cleanup()


TestNames = Names.TestCase
TestNames.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_a_closed_file_is_no_more_known_and_a_newer_one_stays(tmp_path: Path) -> None:
    disk = RealDisk()
    names = disk.names
    path = str(tmp_path / "f")
    older, newer = disk.open(path, create=True), disk.open(path)
    older.close()
    assert names.file(path) is newer
    newer.close()
    assert (names.file(path), len(names)) == (None, 0)
    disk.close()


def test_a_removed_file_has_no_path(tmp_path: Path) -> None:
    disk = RealDisk()
    path = str(tmp_path / "f")
    file = disk.open(path, create=True)
    disk.remove(path)
    assert disk.names.file(path) is None
    file.close()
    disk.close()


def test_after_a_change_a_file_counts_when_it_was_seen_again(tmp_path: Path) -> None:
    disk = RealDisk()
    names = disk.names
    path = str(tmp_path / "f")
    file = disk.open(path, create=True)
    disk.rename(disk.open(str(tmp_path / "g"), create=True).path, str(tmp_path / "h"))
    assert names.file(path) is None
    names.seen(path, os.stat(tmp_path / "h"))
    assert names.file(path) is None
    names.seen(path, os.stat(path))
    assert names.file(path) is file
    disk.close()
