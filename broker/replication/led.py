"""A partition that this broker leads, in one leader epoch."""

from __future__ import annotations

from collections.abc import Callable

from broker.replication.replica import Replica
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from storage.log import PartitionLog


class LedPartition:
    """Nothing is said of it once the epoch has passed."""

    def __init__(
        self,
        replica: Replica,
        *,
        lease_valid: Callable[[], bool],
        deposed: Callable[[], bool],
    ) -> None:
        self.replica = replica
        self.leader_epoch = replica.machine.leader_epoch
        self._lease_valid = lease_valid
        self._deposed = deposed
        self._tenure = replica.tenure
        self._last_log = replica.log

    def __repr__(self) -> str:
        return f"{self.replica!r} in leader epoch {self.leader_epoch}"

    @property
    def id(self) -> PartitionId:
        return self.replica.id

    @property
    def log(self) -> PartitionLog:
        """In the directory where it is now."""
        if self.replica.has_tenure(self._tenure):
            self._last_log = self.replica.log
        return self._last_log

    @property
    def is_led(self) -> bool:
        """Whether this broker leads it still, in the same epoch and with the same records. An epoch
        has one leader, so nobody else leads before the epoch rises."""
        replica = self.replica
        is_same_epoch = replica.machine.leader_epoch == self.leader_epoch
        return is_same_epoch and replica.has_tenure(self._tenure)

    @property
    def refusal(self) -> ErrorCode:
        """The error with which the leader must refuse answers now; NONE: it may answer. The clock
        is read anew: a process that was paused may have been replaced meanwhile."""
        if not self.is_led or self._deposed() or not self._lease_valid():
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    @property
    def high_watermark(self) -> int:
        return self.replica.machine.high_watermark

    def check_led(self) -> None:
        """Raises ApiError NOT_LEADER_OR_FOLLOWER. Call it after any await."""
        if not self.is_led:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
