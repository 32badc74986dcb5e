"""ListOffsets and OffsetForLeaderEpoch on local leaders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from broker.replication.replica import Replica, ReplicaState, ReportCorrupt
from broker.replication.replicas import Replicas
from broker.replication.types import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    EpochQuery,
    OffsetQuery,
    OffsetResult,
)
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from storage.errors import CorruptLogError
from storage.turns import SLICE_STEPS, Slices

_SEARCH_STEPS: Final = SLICE_STEPS  # a search by time begins in a turn of its own


class OffsetRequests:
    """Looks offsets up by time and by epoch.

    ``lease_valid``: a leader without it may have a successor that knows later records. It does not
    tell the last offset: a reader that stopped there would miss acknowledged records.
    """

    def __init__(
        self,
        replicas: Replicas,
        lease_valid: Callable[[], bool],
        on_corrupt: ReportCorrupt,
    ) -> None:
        self._replicas = replicas
        self._lease_valid = lease_valid
        self._on_corrupt = on_corrupt

    async def list_offsets(
        self, queries: Sequence[OffsetQuery], *, read_committed: bool = False
    ) -> list[OffsetResult]:
        """One result per query. A search by time may wait for the disk.

        ``read_committed``: the last offset is the last stable one, and nothing above it is found.
        """
        results: list[OffsetResult] = []
        slices = Slices(SLICE_STEPS)
        for query in queries:
            if results:
                is_search = query.timestamp_ms not in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)
                await slices.step(_SEARCH_STEPS if is_search else 1)
            try:
                results.append(await self._offset(query, read_committed))
            except ApiError as error:
                results.append(OffsetResult(error.code))
        return results

    def end_offset_for_epoch(self, queries: Sequence[EpochQuery]) -> list[OffsetResult]:
        """The greatest epoch not above the one asked for, and its end (KIP-320)."""
        results = []
        for query in queries:
            try:
                replica = self._leader(query.id, query.current_leader_epoch)
            except ApiError as error:
                results.append(OffsetResult(error.code))
                continue
            end = replica.log.end_offset_for_epoch(query.leader_epoch)
            results.append(OffsetResult(ErrorCode.NONE, end.end_offset, leader_epoch=end.epoch))
        return results

    def _leader(self, partition: PartitionId, current_leader_epoch: int) -> Replica:
        replica = self._replicas.by_id.get(partition)
        if replica is None:
            raise ApiError(self._replicas.refusal(partition))
        error = replica.machine.fence(current_leader_epoch)
        if error is not ErrorCode.NONE:
            raise ApiError(error)
        if self._replicas.deposed():
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if replica.state is not ReplicaState.ONLINE:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR)
        return replica

    async def _offset(self, query: OffsetQuery, read_committed: bool) -> OffsetResult:
        replica = self._leader(query.id, query.current_leader_epoch)
        log, machine = replica.log, replica.machine
        if query.timestamp_ms == EARLIEST_TIMESTAMP:
            epoch = log.epochs.epoch_for(machine.start_offset)
            return OffsetResult(ErrorCode.NONE, machine.start_offset, leader_epoch=epoch)
        if query.timestamp_ms == LATEST_TIMESTAMP:
            if not machine.tells_latest or not self._lease_valid():
                return OffsetResult(ErrorCode.OFFSET_NOT_AVAILABLE)
            latest = machine.consumable_end(read_committed=read_committed)
            return OffsetResult(ErrorCode.NONE, latest, leader_epoch=machine.leader_epoch)
        return await self._offset_by_time(replica, query, read_committed)

    async def _offset_by_time(
        self, replica: Replica, query: OffsetQuery, read_committed: bool
    ) -> OffsetResult:
        """Only committed records are found. Where it is not yet known whether a record is
        committed, the answer is an error, not "none"."""
        log, machine = replica.log, replica.machine
        epoch = machine.leader_epoch
        try:
            if query.timestamp_ms == MAX_TIMESTAMP:
                limit = machine.consumable_end(read_committed=read_committed)
                # A new leader does not know all that is committed. If the newest record of all is
                # above the limit, it cannot tell the newest committed one.
                within = limit if machine.tells_latest else log.end_offset
                found = await log.max_timestamp_offset(within)
            else:
                found = await log.offset_for_timestamp(query.timestamp_ms)
        except CorruptLogError as error:
            self._on_corrupt(replica, log, error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        # The search may have waited for the disk: somebody else may lead by now.
        replica = self._leader(query.id, query.current_leader_epoch)
        if not replica.uses(log) or machine.leader_epoch != epoch:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        limit = machine.consumable_end(read_committed=read_committed)
        if found is not None and found.offset < limit:
            return OffsetResult(
                ErrorCode.NONE, found.offset, found.timestamp_ms, found.leader_epoch
            )
        if not machine.tells_latest:
            return OffsetResult(ErrorCode.OFFSET_NOT_AVAILABLE)
        return OffsetResult(ErrorCode.NONE)
