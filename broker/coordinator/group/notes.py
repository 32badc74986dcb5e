"""What the replay of a record also changes in the process that has made it.

A step with records changes nothing by itself: the replay of its records does. Some changes are not
for the log, since the next coordinator begins without them. A note on a record carries them to its
replay.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.coordinator.group.types import MemberProtocol
from broker.coordinator.step import KeyValue


class Successor(NamedTuple):
    """The new process of a static member supports these protocols. The group's record only has the
    metadata for the one in use, and a change of the protocol needs the others."""

    member_id: str
    protocols: tuple[MemberProtocol, ...]


class Committer(NamedTuple):
    """A member has committed offsets. So it lives, and its session begins anew."""

    member_id: str


class PartialDeletion(NamedTuple):
    """A part of a group is deleted, and the request for the next part is on its way."""

    number: int


class DeletionEnd(NamedTuple):
    """All parts are deleted, and the group stays."""

    number: int


Note = Successor | Committer | PartialDeletion | DeletionEnd


class NotedRecord(KeyValue):
    """A record with a note."""

    note: Note

    @classmethod
    def of(cls, record: KeyValue, note: Note) -> NotedRecord:
        made = cls(*record)
        made.note = note
        return made
