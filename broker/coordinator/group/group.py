"""What every kind of group has in common, whatever protocol its members speak.

A kind is a folder: the state of a group, which only the replay of records changes, what the group
makes of events, and the requests that only this kind knows. ``GroupMachine`` puts the kinds
together; it knows groups by this protocol alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from broker.coordinator.group.deadlines import Timer
from broker.coordinator.group.notes import Note
from broker.coordinator.group.types import (
    DescribeAnswer,
    GroupState,
    HeartbeatRequest,
    JoinRequest,
    LeaveRequest,
    ListedGroup,
    OffsetCommitRequest,
    SyncRequest,
)
from broker.coordinator.step import KeyValue, Now, Step, Waiter
from stele.errors import ErrorCode


class Group(Protocol):
    """One group. Its events add records and replies to a step.

    If an event adds a record, only the replay of the record changes the group.
    """

    group_id: str
    recorded_end: int
    """The offset after the group's last record. An answer about the group is sent when the records
    below it are committed."""

    # ------------------------------------------------------------------------- questions

    @property
    def state(self) -> GroupState: ...

    @property
    def state_time_ms(self) -> int:
        """When the group came into its state, by the wall clock; -1: that is not known."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        ...

    @property
    def may_be_replaced(self) -> bool:
        """Whether a group of another kind may take its place now."""
        ...

    @property
    def is_used(self) -> bool:
        """Whether it has members, or ids that were given out."""
        ...

    @property
    def has_consumers(self) -> bool:
        """Whether its members are consumers, so that they name the topics that they read."""
        ...

    @property
    def commits_keep_sessions(self) -> bool:
        """Whether a commit of a member counts as a heartbeat."""
        ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members use the topic's offsets."""
        ...

    def described(self) -> DescribeAnswer: ...

    def listed(self) -> ListedGroup: ...

    def waiters(self) -> list[Waiter]:
        """Everybody whose request waits in the group."""
        ...

    # ------------------------------------------------------------------------- events

    def join(
        self,
        request: JoinRequest,
        waiter: Waiter,
        now: Now,
        step: Step,
        new_id: Callable[[str], str],
    ) -> None:
        """``new_id`` makes a member id from its prefix: the client id, or the instance id."""
        ...

    def sync(self, request: SyncRequest, waiter: Waiter, now: Now, step: Step) -> None: ...

    def heartbeat(
        self, request: HeartbeatRequest, waiter: Waiter, now: Now, step: Step
    ) -> None: ...

    def leave(self, request: LeaveRequest, waiter: Waiter, now: Now, step: Step) -> None: ...

    def commit_errors(self, request: OffsetCommitRequest) -> tuple[ErrorCode, ...]:
        """Whether a client may commit each of the offsets."""
        ...

    def fetch_error(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whether a client may know the offsets."""
        ...

    def deadline_passed(self, timer: Timer, now: Now, step: Step) -> None:
        """A deadline of the group or of one of its members. It is moved or cancelled, either here
        or by the step's records."""
        ...

    def take_note(self, note: Note, now: Now) -> None:
        """The replay of a record that this process has made."""
        ...

    # ------------------------------------------------------------------------- life

    def loaded(self, now: Now, step: Step) -> None:
        """Begin all sessions anew."""
        ...

    def tombstones(self) -> Iterator[KeyValue]:
        """The end of a group without members."""
        ...

    def dissolve(self) -> None:
        """Cancel all timers of a group that is removed."""
        ...
