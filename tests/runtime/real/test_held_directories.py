"""Which owner a path belongs to, beside a twin that looks at every owner each time."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.real.held_directories import HeldDirectories
from world.disk import SyncFailedError

DIRECTORIES = ("/a", "/a/metadata", "/ab", "/a/metadata/x", "/b/")
PATHS = ("/a", "/a/t-0/1.log", "/a/metadata/1.log", "/ab/t-0", "/a/metadata/x/y", "/b/1", "/c")


def owner_by_looking(held: dict[str, str], paths: list[str]) -> str | None:
    def holds(directory: str) -> bool:
        inside = directory.rstrip("/") + "/"
        return all(path == directory or path.startswith(inside) for path in paths)

    found = [directory for directory in held if holds(directory)]
    return held[max(found, key=len)] if found else None


STEPS = st.one_of(
    st.tuples(st.just("hold"), st.sampled_from(DIRECTORIES)),
    st.tuples(st.just("release"), st.sampled_from(DIRECTORIES)),
    st.tuples(st.just("ask"), st.lists(st.sampled_from(PATHS), min_size=1, max_size=3)),
)


@given(st.lists(STEPS, max_size=30))
def test_the_owner_is_the_innermost_one_that_is_held_now(
    steps: list[tuple[str, str | list[str]]],
) -> None:
    held, twin = HeldDirectories[str](), dict[str, str]()
    for kind, what in steps:
        if isinstance(what, list):
            assert held.of(what) == owner_by_looking(twin, what)
        elif kind == "hold":
            twin[what] = f"handle of {what} {len(twin)}"
            held.hold(what, twin[what])
        elif what in twin:
            assert held.release(what, twin.pop(what))


def test_a_failed_sync_is_told_to_its_owner_alone() -> None:
    held = HeldDirectories[str]()
    held.hold("/a", "outer")
    held.hold("/a/metadata", "inner")
    held.failed(["/a/metadata/1.log"], OSError(errno.EIO, "lost"))
    held.check(["/a/t-0/1.log"])
    held.check(["/a/t-0/1.log", "/a/metadata/1.log"])
    with pytest.raises(SyncFailedError):
        held.check(["/a/metadata/2.log"])
