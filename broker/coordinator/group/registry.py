"""The groups of one partition of ``__consumer_offsets``, by id."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from broker.coordinator.group.group import Group
from broker.coordinator.step import Now, Step, Waiter, told

G = TypeVar("G", bound=Group)

DELETION_MS: Final = 10_000
"""How long after a part of a group was deleted the group is closed for the next part. Otherwise a
member could join a group that has lost some of its offsets, and the rest would stay. If the
deletion ends early, the group opens again after this time."""

IN_PARTS: Final = 0
"""The number of the deletion of a group in parts. It ends with the group."""


class GroupRegistry:
    """Only one group has an id, of whatever kind."""

    def __init__(self, make_default: Callable[[str], Group]) -> None:
        """``make_default`` makes the group of offsets whose committer is no member."""
        self._make_default = make_default
        self._groups: dict[str, Group] = {}
        # The offset after the last tombstone of a group. The answer that a group does not exist is
        # sent when it is committed.
        self._removed_end = -1
        # The deletions that close groups, by name: the number of each, and when it closes the group
        # no more. Meanwhile no member may join or commit.
        self._deletions: dict[str, dict[int, float]] = {}
        self._last_deletion = IN_PARTS
        self.is_loaded = False

    # ------------------------------------------------------------------------- questions

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups.values())

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def ids(self) -> list[str]:
        return list(self._groups)

    def get(self, group_id: str) -> Group | None:
        return self._groups.get(group_id)

    def find(self, group_id: str, kind: type[G]) -> G | None:
        """The group, if it is of this kind."""
        group = self._groups.get(group_id)
        return group if isinstance(group, kind) else None

    def is_being_deleted(self, group_id: str, now: Now) -> bool:
        """Clients that are refused for this reason ask again soon."""
        deletions = self._deletions.get(group_id, {})
        return any(until_ms > now.monotonic_ms for until_ms in deletions.values())

    def end_of(self, group: Group | None) -> int:
        """The offset after the records that say that the group is as it is, or that it does not
        exist."""
        return self._removed_end if group is None else group.recorded_end

    def not_found(self, waiter: Waiter, answer: object) -> Step:
        """Answer that a group does not exist."""
        return told(waiter, answer, self._removed_end)

    # ------------------------------------------------------------------------- changes

    def put(self, group: G) -> G:
        """Add a group, in the place of one of another kind, if there is one."""
        former = self._groups.get(group.group_id)
        if former is not None and former is not group:
            former.dissolve()
        self._groups[group.group_id] = group
        return group

    def ensure(self, group_id: str) -> None:
        """A group exists as long as it has offsets, pending or not."""
        if group_id not in self._groups:
            self._groups[group_id] = self._make_default(group_id)

    def drop(self, group_id: str) -> None:
        """Remove a group."""
        self._groups.pop(group_id).dissolve()
        self._deletions.pop(group_id, None)

    def tombstone_read(self, end_offset: int) -> None:
        """The tombstone of a group was replayed, whether there was such a group or not."""
        self._removed_end = end_offset

    def next_deletion(self) -> int:
        """The number of a new deletion. ``deletion_ended`` needs it."""
        self._last_deletion += 1
        return self._last_deletion

    def deletion_begun(self, group_id: str, number: int, now: Now) -> None:
        """A part of a group is deleted, and the request for the next part is on its way."""
        deletions = self._deletions.get(group_id, {})
        lasting = {each: ms for each, ms in deletions.items() if ms > now.monotonic_ms}
        self._deletions[group_id] = {**lasting, number: now.monotonic_ms + DELETION_MS}

    def deletion_ended(self, group_id: str, number: int) -> None:
        """The group opens again, unless another deletion is under way."""
        deletions = self._deletions.get(group_id, {})
        deletions.pop(number, None)
        if not deletions:
            self._deletions.pop(group_id, None)

    def unloaded(self) -> list[Waiter]:
        """Forget all groups. Returns the waiters of all of them."""
        groups, self._groups = self._groups, {}
        return [waiter for each in groups.values() for waiter in each.waiters()]
