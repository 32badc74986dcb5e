"""The quota of this broker, as a leader, for throttled replicas of followers not in sync.

A partition that has to wait for quota is put aside in its fetch session, so that other fetches of
the session do not look at it. One deadline of the broker wakes the sessions in which some wait.
"""

from __future__ import annotations

from broker.replication.deadlines import Deadline, DeadlineWheel
from broker.replication.fetch_session import FetchSession
from broker.replication.quota import ReplicationQuota
from broker.replication.replica import Replica
from broker.replication.replicas import Replicas


class LeaderThrottle:
    """The quota of ``leader.replication.throttled.rate``, and the partitions that wait for it."""

    def __init__(self, replicas: Replicas, deadlines: DeadlineWheel) -> None:
        self._replicas = replicas
        self._deadlines = deadlines
        self._quota = ReplicationQuota()
        # Sessions with partitions put aside, as of their last look.
        self._waiting: dict[FetchSession, None] = {}
        self._deadline: Deadline | None = None

    def set_rate(self, rate: int) -> None:
        """Bytes per second, from now on."""
        if rate != self._quota.rate:
            self._quota.set_rate(rate, self._replicas.now_ms())
            self._wake_all()

    def available_bytes(self) -> int:
        """How much may be sent now to followers that are not in sync."""
        return self._quota.available_bytes(self._replicas.now_ms())

    def sent(self, size_bytes: int) -> None:
        """Count bytes of throttled replicas that went to followers, in sync or not."""
        self._replicas.counters.throttled_bytes_out += size_bytes
        self._quota.record(size_bytes, self._replicas.now_ms())

    def await_quota(self, session: FetchSession) -> None:
        """Have the session look again when there is quota."""
        if session not in self._waiting:
            # Those whose connection was lost are left out.
            self._waiting = {each: None for each in self._waiting if each.held}
            self._waiting[session] = None
        if self._deadline is None:
            delay_ms = self._quota.retry_after_ms(self._replicas.now_ms())
            if delay_ms is not None:
                self._deadline = self._deadlines.add(delay_ms, self._wake_all)

    def _wake_all(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        waiting, self._waiting = self._waiting, {}
        for session in waiting:
            if session.held:
                session.look_again()


def is_held_back(replica: Replica, follower_id: int) -> bool:
    """Whether what the follower gets of a replica led here depends on the quota."""
    return replica.throttled_as_leader and follower_id not in replica.machine.state.isr
