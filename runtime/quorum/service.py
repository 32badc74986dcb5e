"""What a replica of the quorum serves: ``stele.v1.Raft``."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

from google.protobuf.message import Message

from raft.membership import AddVoter, RemoveVoter, UpdateVoter, VoterChange
from raft.messages import (
    BeginQuorumEpochRequest,
    FetchResponse,
    FetchSnapshotResponse,
    Request,
    Response,
)
from raft.quorum import NO_DIRECTORY, ReplicaKey, Voter
from raft.ready import ReadRange, Reply
from runtime.quorum.changes import QuorumChanges
from runtime.quorum.config import QuorumConfig
from runtime.quorum.log import QuorumLog
from runtime.quorum.messages import (
    ADD_VOTER,
    DESCRIBE_QUORUM,
    METHODS,
    REMOVE_VOTER,
    SUPPORTED_FEATURES,
    TRANSFER_LEADERSHIP,
    UPDATE_VOTER,
    MessageError,
    directory_id,
    encode_response,
    endpoint,
    features,
    features_to_wire,
    leader_to_wire,
    parse,
)
from runtime.quorum.peers import Endpoints, NoAnswerError, ask_features
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import raft_pb2 as pb
from stele.world import RpcCode, RpcError
from storage.errors import CorruptLogError, StorageError
from world.network import Network, Peer, Service

_log = logging.getLogger(__name__)

CATCH_UP_TIMEOUT_MS = 20_000
"""How long an observer that is to be a voter may take where the request does not say."""

_ASK_AGAIN_S = 0.2  # after a controller did not answer

BeginRequest = Callable[[str, bytes, bytes], Awaitable[bool]]
"""Whether the request of this method with this id and these bytes begins now, and has not before.
Raises ApiError."""

_BEGUN = (
    "this request has begun before, and what it asks for is not so: it is under way still, or "
    "it has failed. Look with stele quorum describe, and ask again under a new request id"
)


class QuorumService:
    """Hands requests to the core, and waits for the replies that come out of it.

    ``submit(request_id, message)`` passes a request on; ``reply`` takes what the core answers.
    ``standing()`` is (leader id, epoch) as this replica knows them.
    """

    def __init__(
        self,
        config: QuorumConfig,
        network: Network,
        *,
        submit: Callable[[int, Request], None],
        standing: Callable[[], tuple[int | None, int]],
        describe: Callable[[], Awaitable[pb.DescribeQuorumResponse]],
        changes: QuorumChanges,
        endpoints: Endpoints,
        failed: Callable[[BaseException], None],
    ) -> None:
        """``failed`` is told that the disk gives nothing any more: the replica cannot go on."""
        self._config = config
        self._network = network
        self._submit = submit
        self._standing = standing
        self._describe = describe
        self._changes = changes
        self._endpoints = endpoints
        self._failed = failed
        self._log: QuorumLog | None = None  # None while the replica does not run
        self._waiting: dict[int, asyncio.Future[Reply]] = {}  # by request id
        self._last_request_id = 0
        self.begin_request: BeginRequest | None = None  # None: ids are not looked at

    def open(self, log: QuorumLog) -> None:
        self._log = log

    def close(self) -> None:
        """Answer no more; who waits is told that this replica is gone."""
        self._log = None
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(RpcError(RpcCode.UNAVAILABLE, "the replica has stopped"))

    def service(self) -> Service:
        unary = {method: partial(self._serve, method) for method in METHODS}
        return Service(
            unary={
                **unary,
                DESCRIBE_QUORUM: self._describe_quorum,
                TRANSFER_LEADERSHIP: self._transfer_leadership,
                ADD_VOTER: self._add_voter,
                REMOVE_VOTER: self._remove_voter,
                UPDATE_VOTER: self._update_voter,
                SUPPORTED_FEATURES: self._supported_features,
            }
        )

    def reply(self, reply: Reply) -> None:
        """The core's answer to a request; its asker may have gone meanwhile."""
        future = self._waiting.get(reply.request_id)
        if future is not None and not future.done():
            future.set_result(reply)

    async def _serve(self, name: str, data: bytes, _: Peer) -> bytes:
        method = METHODS[name]
        self._running()
        try:
            wire = parse(method.request, data)
            if wire.cluster_id != self._config.cluster_id:
                _log.warning("%s from cluster %r is refused", name, wire.cluster_id)
                refusal = method.refuse(ErrorCode.INCONSISTENT_CLUSTER_ID, *self._standing())
                return self._encoded(refusal)
            message = method.decode(wire)
            if isinstance(message, BeginQuorumEpochRequest):
                self._endpoints.tell(message.leader_id, endpoint(wire.leader_endpoint))
        except MessageError as error:
            raise RpcError(RpcCode.INVALID_ARGUMENT, str(error)) from None
        reply = await self._ask(message)
        try:
            return await self._encode(reply)
        except FileNotFoundError as error:  # a snapshot has taken that part's place meanwhile
            raise RpcError(RpcCode.UNAVAILABLE, str(error)) from None
        except (StorageError, CorruptLogError, OSError) as error:
            self._failed(error)
            raise RpcError(RpcCode.UNAVAILABLE, f"the disk fails: {error}") from None

    async def _ask(self, message: Request) -> Reply:
        self._last_request_id += 1
        request_id = self._last_request_id
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = future
        try:
            self._submit(request_id, message)
            return await future
        finally:
            del self._waiting[request_id]

    async def _encode(self, reply: Reply) -> bytes:
        message: Response = reply.message
        if isinstance(message, FetchSnapshotResponse) and message.error is ErrorCode.NONE:
            return self._encoded(await self._fill(message))
        if reply.read is None or not isinstance(message, FetchResponse):
            return self._encoded(message)
        log = self._running()
        max_bytes = min(reply.read.max_bytes, self._config.fetch_max_bytes)
        try:
            records = await log.read(ReadRange(reply.read.offset, max_bytes))
        except StorageError:
            raise
        except ApiError as error:
            raise RpcError(RpcCode.UNAVAILABLE, str(error)) from None
        leader_id, epoch = self._standing()
        if epoch != message.epoch or leader_id != self._config.node_id:
            # The log may have been cut while the bytes were fetched from the device.
            refusal = FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_id, epoch)
            return self._encoded(refusal)
        return self._encoded(message, bytes(records))

    def _encoded(self, response: Response, records: bytes = b"") -> bytes:
        leader_id = response.leader_id
        address = None if leader_id is None else self._endpoints.get(leader_id)
        return encode_response(
            response, records, leader_endpoint="" if address is None else str(address)
        )

    def _running(self) -> QuorumLog:
        if self._log is None:
            raise RpcError(RpcCode.UNAVAILABLE, "the replica does not run")
        return self._log

    async def _fill(self, message: FetchSnapshotResponse) -> FetchSnapshotResponse:
        """The piece of the snapshot that was asked for, or why there is none."""
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
        return (await self._describe()).SerializeToString()

    async def _transfer_leadership(self, data: bytes, _: Peer) -> bytes:
        self._running()
        request: pb.TransferLeadershipRequest = _parsed(pb.TransferLeadershipRequest, data)
        answer = pb.TransferLeadershipResponse()
        try:
            if await self._begins(TRANSFER_LEADERSHIP, request):
                await self._changes.transfer_leadership(request.voter_id)
            elif self._standing()[0] != request.voter_id:
                raise ApiError(ErrorCode.OPERATION_NOT_ATTEMPTED, _BEGUN)
        except ApiError as error:
            answer.error, answer.message = int(error.code), error.message
        leader_id, answer.epoch = self._standing()
        answer.leader_id = leader_to_wire(leader_id)
        return answer.SerializeToString()

    # ------------------------------------------------------------------------------- voters

    async def _add_voter(self, data: bytes, _: Peer) -> bytes:
        request: pb.AddVoterRequest = _parsed(pb.AddVoterRequest, data)

        async def change() -> VoterChange:
            if not request.endpoint:
                raise MessageError("where is it reached? The endpoint is empty")
            voter = Voter(_key(request), endpoint(request.endpoint))
            timeout_ms = request.timeout_ms if request.timeout_ms > 0 else CATCH_UP_TIMEOUT_MS
            return await self._with_features(AddVoter(voter, timeout_ms / 1000))

        return await self._change(ADD_VOTER, request, change)

    async def _with_features(self, adding: AddVoter) -> AddVoter:
        """What the controller to be added supports, too, as soon as it answers: it may have just
        been started. Raises NotLeaderError, ApiError."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + adding.timeout_s
        while True:
            await self._changes.wait_possible(adding)  # else nobody need be asked
            try:
                supported = await ask_features(self._network, self._config, adding.voter)
            except NoAnswerError:
                if loop.time() + _ASK_AGAIN_S >= deadline:
                    raise
                await asyncio.sleep(_ASK_AGAIN_S)
                continue
            voter = replace(adding.voter, features=supported)
            return AddVoter(voter, max(deadline - loop.time(), _ASK_AGAIN_S))

    async def _remove_voter(self, data: bytes, _: Peer) -> bytes:
        request: pb.RemoveVoterRequest = _parsed(pb.RemoveVoterRequest, data)

        async def change() -> VoterChange:
            return RemoveVoter(_key(request))

        return await self._change(REMOVE_VOTER, request, change)

    async def _update_voter(self, data: bytes, _: Peer) -> bytes:
        request: pb.UpdateVoterRequest = _parsed(pb.UpdateVoterRequest, data)

        async def change() -> VoterChange:
            supported = features(request.features)
            return UpdateVoter(Voter(_key(request), endpoint(request.endpoint), supported))

        return await self._change(UPDATE_VOTER, request, change)

    async def _supported_features(self, data: bytes, _: Peer) -> bytes:
        self._running()
        request: pb.SupportedFeaturesRequest = _parsed(pb.SupportedFeaturesRequest, data)
        if request.cluster_id != self._config.cluster_id:
            error = int(ErrorCode.INCONSISTENT_CLUSTER_ID)
            return pb.SupportedFeaturesResponse(error=error).SerializeToString()
        return pb.SupportedFeaturesResponse(
            node_id=self._config.node_id,
            directory_id=self._config.directory_id,
            features=features_to_wire(self._config.features),
            out_of_room=self._log is not None and not self._log.has_room(),
        ).SerializeToString()

    async def _begins(self, method: str, request: Any) -> bool:
        """Whether a leader may act on the request: not on a copy of what it has begun (or another
        leader has). Raises NotLeaderError, ApiError."""
        if not request.request_id or self.begin_request is None:
            return True
        content = request.SerializeToString(deterministic=True)
        return await self.begin_request(method, request.request_id, content)

    async def _change(
        self, method: str, request: Any, change: Callable[[], Awaitable[VoterChange]]
    ) -> bytes:
        self._running()
        answer = pb.VoterChangeResponse()
        try:
            if request.cluster_id not in ("", self._config.cluster_id):
                raise ApiError(
                    ErrorCode.INCONSISTENT_CLUSTER_ID,
                    f"this is cluster {self._config.cluster_id}, not {request.cluster_id}",
                )
            key = _key(request)
            if method == UPDATE_VOTER or await self._begins(method, request):
                await self._changes.change_voters(await change())
            elif self._changes.is_voter(key) != (method == ADD_VOTER):
                raise ApiError(ErrorCode.OPERATION_NOT_ATTEMPTED, _BEGUN)
        except MessageError as error:
            answer.error, answer.message = int(ErrorCode.INVALID_REQUEST), str(error)
        except ApiError as error:
            answer.error, answer.message = int(error.code), error.message
        leader_id, answer.epoch = self._standing()
        answer.leader_id = leader_to_wire(leader_id)
        return answer.SerializeToString()


def _key(request: pb.AddVoterRequest | pb.RemoveVoterRequest | pb.UpdateVoterRequest) -> ReplicaKey:
    """Raises MessageError: which replica is meant must be said in full."""
    directory = directory_id(request.voter_directory_id)
    if directory == NO_DIRECTORY:
        raise MessageError(f"which directory of controller {request.voter_id}? Its id is missing")
    return ReplicaKey(request.voter_id, directory)


def _parsed(kind: type[Message], data: bytes) -> Any:
    try:
        return parse(kind, data)
    except MessageError as error:
        raise RpcError(RpcCode.INVALID_ARGUMENT, str(error)) from None
