"""The members of a group, by member id and by instance id."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from broker.coordinator.group.classic.member import Member
from stele.errors import ErrorCode


class Membership:
    """The members of a group in the order in which they joined."""

    def __init__(self) -> None:
        # At most one member has a member id or an instance id. Each instance id leads to the
        # member that has it.
        self._members: dict[str, Member] = {}
        self._instances: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __contains__(self, member_id: object) -> bool:
        return member_id in self._members

    def __getitem__(self, member_id: str) -> Member:
        return self._members[member_id]

    def get(self, member_id: str) -> Member | None:
        return self._members.get(member_id)

    def of_instance(self, group_instance_id: str | None) -> Member | None:
        """The static member with this instance id."""
        if group_instance_id is None:
            return None
        member_id = self._instances.get(group_instance_id)
        return None if member_id is None else self._members[member_id]

    def check(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Whether there is such a member. A process is fenced if its instance id belongs to
        another process by now (KIP-345)."""
        if group_instance_id is not None:
            owner = self.of_instance(group_instance_id)
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if owner.member_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self else ErrorCode.UNKNOWN_MEMBER_ID

    def set(self, members: Iterable[Member]) -> None:
        """Replace all members."""
        self._members = {each.member_id: each for each in members}
        self._instances = {
            each.group_instance_id: each.member_id
            for each in self
            if each.group_instance_id is not None
        }

    def add(self, member: Member) -> None:
        self._members[member.member_id] = member
        if member.group_instance_id is not None:
            self._instances[member.group_instance_id] = member.member_id

    def remove(self, member: Member) -> None:
        del self._members[member.member_id]
        if member.group_instance_id is not None:
            del self._instances[member.group_instance_id]
