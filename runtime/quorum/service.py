"""The service of a replica of the quorum: ``stele.v1.Raft``."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from functools import partial

from raft.messages import (
    BeginQuorumEpochRequest,
    FetchResponse,
    FetchSnapshotResponse,
    Request,
    RequestReceived,
    Response,
)
from raft.ready import ReadRange, Reply
from runtime.quorum.config import QuorumConfig
from runtime.quorum.description import describe
from runtime.quorum.driver import Driver
from runtime.quorum.endpoints import Endpoints
from runtime.quorum.log import QuorumLog
from runtime.quorum.messages import (
    DESCRIBE_QUORUM,
    METHODS,
    SUPPORTED_FEATURES,
    MessageError,
    address,
    check_epoch,
    encode_response,
    features_to_wire,
    parse_request,
)
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import raft_pb2 as pb
from stele.world import RpcCode, RpcError
from storage.errors import CorruptLogError, StorageError
from world.network import Peer, Service

_log = logging.getLogger(__name__)


class QuorumService:
    """Hands requests to the core, and waits for the replies that come out of it."""

    def __init__(self, config: QuorumConfig, driver: Driver, endpoints: Endpoints) -> None:
        self._config = config
        self._driver = driver
        self._endpoints = endpoints
        self._waiting: dict[int, asyncio.Future[Reply]] = {}  # by request id
        self._last_request_id = 0

    def close(self) -> None:
        """Waiting callers learn that this replica has stopped."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(RpcError(RpcCode.UNAVAILABLE, "the replica has stopped"))

    def service(self) -> Service:
        unary = {method: partial(self._serve, method) for method in METHODS}
        return Service(
            unary={
                **unary,
                DESCRIBE_QUORUM: self._describe_quorum,
                SUPPORTED_FEATURES: self._supported_features,
            }
        )

    def reply(self, reply: Reply) -> None:
        """The core's answer to a request; its asker may have gone meanwhile."""
        future = self._waiting.get(reply.request_id)
        if future is not None and not future.done():
            future.set_result(reply)

    async def _serve(self, name: str, data: bytes, peer: Peer) -> bytes:
        method = METHODS[name]
        self._running()
        try:
            wire = parse_request(method.request, data)
            if wire.cluster_id != self._config.cluster_id:
                _log.warning("%s from cluster %r is refused", name, wire.cluster_id)
                return self._encoded(method.foreign, peer)
            message = method.decode(wire)
            check_epoch(message.epoch, self._driver.leader.epoch)
            if isinstance(message, BeginQuorumEpochRequest):
                leader = address(wire.leader_endpoint)
                self._endpoints.tell(message.leader_id, leader, peer.listener)
        except MessageError as error:
            raise RpcError(RpcCode.INVALID_ARGUMENT, str(error)) from None
        reply = await self._ask(message)
        try:
            return await self._encode(reply, peer)
        except FileNotFoundError as error:  # a snapshot has taken that part's place meanwhile
            raise RpcError(RpcCode.UNAVAILABLE, str(error)) from None
        except (StorageError, CorruptLogError, OSError) as error:
            self._driver.fail(error)
            raise RpcError(RpcCode.UNAVAILABLE, f"the disk fails: {error}") from None

    async def _ask(self, message: Request) -> Reply:
        self._last_request_id += 1
        request_id = self._last_request_id
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = future
        try:
            self._driver.step(RequestReceived(request_id, message))
            return await future
        finally:
            del self._waiting[request_id]

    async def _encode(self, reply: Reply, peer: Peer) -> bytes:
        message: Response = reply.message
        if isinstance(message, FetchSnapshotResponse) and message.error is ErrorCode.NONE:
            return self._encoded(await self._fill(message), peer)
        if reply.read is None or not isinstance(message, FetchResponse):
            return self._encoded(message, peer)
        log = self._running()
        max_bytes = min(reply.read.max_bytes, self._config.fetch_max_bytes)
        try:
            records = await log.read(ReadRange(reply.read.offset, max_bytes))
        except StorageError:
            raise
        except ApiError as error:
            raise RpcError(RpcCode.UNAVAILABLE, str(error)) from None
        leader_id, epoch = self._driver.leader
        if epoch != message.epoch or leader_id != self._config.node_id:
            # The log may have been cut while the bytes were fetched from the device.
            refusal = FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_id, epoch)
            return self._encoded(refusal, peer)
        return self._encoded(message, peer, bytes(records))

    def _encoded(self, response: Response, peer: Peer, records: bytes = b"") -> bytes:
        leader = self._endpoints.text_of(response.leader_id, peer.listener)
        return encode_response(response, records, leader_endpoint=leader)

    def _running(self) -> QuorumLog:
        return self._driver.running()

    async def _fill(self, message: FetchSnapshotResponse) -> FetchSnapshotResponse:
        """The requested piece of the snapshot, or the reason for refusing it."""
        log, snapshot = self._running(), message.snapshot
        assert snapshot is not None  # the core repeats the request's
        max_bytes = max(1, min(message.max_bytes, self._config.fetch_max_bytes))
        try:
            data, size = await log.snapshots.piece(snapshot, message.position, max_bytes)
        except (KeyError, FileNotFoundError):
            return replace(message, error=ErrorCode.SNAPSHOT_NOT_FOUND)
        except ValueError:
            return replace(message, error=ErrorCode.POSITION_OUT_OF_RANGE)
        return replace(message, data=data, size=size)

    async def _describe_quorum(self, data: bytes, _: Peer) -> bytes:
        self._running()
        return (await describe(self._driver)).SerializeToString()

    async def _supported_features(self, data: bytes, _: Peer) -> bytes:
        log = self._running()
        request: pb.SupportedFeaturesRequest = parse_request(pb.SupportedFeaturesRequest, data)
        if request.cluster_id != self._config.cluster_id:
            error = int(ErrorCode.INCONSISTENT_CLUSTER_ID)
            return pb.SupportedFeaturesResponse(error=error).SerializeToString()
        return pb.SupportedFeaturesResponse(
            node_id=self._config.node_id,
            directory_id=self._config.directory_id,
            features=features_to_wire(self._config.features),
            out_of_room=not log.has_room(),
        ).SerializeToString()
