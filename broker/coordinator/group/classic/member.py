"""A member of a group of the classic protocol."""

from __future__ import annotations

from broker.coordinator.group.deadlines import Timer
from broker.coordinator.group.records import RecordedMember
from broker.coordinator.group.types import DescribedMember, MemberProtocol
from broker.coordinator.step import Waiter


class Member:
    """The member's identity, what it supports, and its waiting request. There is at most one."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "join_waiter",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session",
        "session_timeout_ms",
        "sync_waiter",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        *,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: tuple[MemberProtocol, ...],
        session: Timer,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        # Of the last stable generation that the member was in.
        self.assignment = assignment
        # Each heartbeat moves it. It may be cancelled while `is_alive`.
        self.session = session
        # It waits for its first generation and may not know its id yet. Its client may be gone, so
        # waiting does not keep it in the group.
        self.is_new = False
        self.join_waiter: Waiter | None = None
        self.sync_waiter: Waiter | None = None

    @classmethod
    def recorded(cls, value: RecordedMember, session: Timer) -> Member:
        """As its record says, which has none of its protocols but the one in use."""
        return cls(
            value.member_id,
            value.group_instance_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            session_timeout_ms=value.session_timeout_ms,
            protocols=(),
            session=session,
        )

    @property
    def is_static(self) -> bool:
        """It keeps its assignment when it is restarted with its instance id (KIP-345)."""
        return self.group_instance_id is not None

    @property
    def has_joined(self) -> bool:
        """It waits for the next generation."""
        return self.join_waiter is not None

    @property
    def is_alive(self) -> bool:
        """A member that waits for an answer need not send heartbeats."""
        waits = self.join_waiter is not None or self.sync_waiter is not None
        return waits and not self.is_new

    def restart_session(self, now_ms: float) -> None:
        self.session.set(now_ms + self.session_timeout_ms)

    def metadata(self, protocol: str | None) -> bytes:
        """Its metadata for a protocol. Empty: it does not support the protocol."""
        return next((each.metadata for each in self.protocols if each.name == protocol), b"")

    def described(self, protocol: str | None) -> DescribedMember:
        return DescribedMember(
            self.member_id,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            self.metadata(protocol),
            self.assignment,
        )
