"""Answers and failures of the calls to other replicas, on their way to the core."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from raft.messages import (
    Batch,
    CallFailed,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Response,
    ResponseReceived,
)
from raft.ready import Call
from runtime.quorum.config import QuorumConfig
from runtime.quorum.driver import Driver
from stele.world import RpcCode
from storage.errors import StorageError

_log = logging.getLogger(__name__)

_NO_ROOM_PAUSE_S = 1.0  # before what did not fit on the disk is fetched again


class Inbox:
    """Hands in answers that fit on the disk, and failures.

    A full disk is no failed disk: fetched bytes that do not fit are dropped, and fetched again.
    """

    def __init__(self, config: QuorumConfig, driver: Driver) -> None:
        self._config = config
        self._driver = driver

    def answered(self, call: Call, response: Response) -> None:
        answer = ResponseReceived(call.request_id, response)
        if self._fits(response):
            self._driver.step(answer)
        elif isinstance(response, FetchResponse):
            # The leader was heard, so it is not looked for; what it sent is fetched again.
            heard = replace(answer, message=replace(response, batches=()))
            pause_s = min(_NO_ROOM_PAUSE_S, self._config.fetch_timeout_ms / 2000)
            asyncio.get_running_loop().call_later(pause_s, self._driver.step, heard)
        else:
            self._driver.step(CallFailed(call.request_id))

    def failed(self, call: Call, code: RpcCode) -> None:
        self._driver.step(CallFailed(call.request_id))
        fetched = isinstance(call.message, FetchRequest | FetchSnapshotRequest)
        broken = code is RpcCode.UNAVAILABLE and fetched
        core = self._driver.core
        if core is not None and broken and call.to == core.status.leader_id:
            self._driver.take(lambda core, now: core.leader_unreachable(now))

    def _fits(self, response: Response) -> bool:
        log, size_bytes = self._driver.log, _size_bytes(response)
        if log is None or not size_bytes:
            return True
        try:
            log.require_room(size_bytes)
        except StorageError as error:
            _log.error("cannot follow the metadata log: %s", error)
            return False
        return True


def _size_bytes(response: Response) -> int:
    """The bytes that the disk would have to take."""
    match response:
        case FetchResponse(batches=batches):
            return sum(_batch_bytes(batch) for batch in batches)
        case FetchSnapshotResponse(data=data):
            return len(data)
    return 0


def _batch_bytes(batch: Batch) -> int:
    return len(batch.payload) if isinstance(batch.payload, bytes) else 0
