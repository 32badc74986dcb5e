"""Administrators' gRPC requests to the quorum: about its leader and its voters."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from google.protobuf.message import Message

from raft.membership import AddVoter, RemoveVoter, UpdateVoter, VoterChange
from raft.quorum import NO_DIRECTORY, ReplicaKey, Voter
from runtime.quorum.changes import QuorumChanges
from runtime.quorum.config import QuorumConfig
from runtime.quorum.driver import Driver
from runtime.quorum.messages import (
    ADD_VOTER,
    REMOVE_VOTER,
    TRANSFER_LEADERSHIP,
    UPDATE_VOTER,
    MessageError,
    directory_id,
    endpoint,
    features,
    leader_to_wire,
    parse_request,
)
from runtime.quorum.supported_features import NoAnswerError, ask_features
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import raft_pb2 as pb
from stele.world import Connector
from world.network import Peer, Service

CATCH_UP_TIMEOUT_MS = 20_000
"""How long a voter to be may take to catch up if the request does not say."""

_ASK_AGAIN_S = 0.2  # after a controller did not answer

BeginRequest = Callable[[str, bytes, bytes], Awaitable[bool]]
"""Whether the request of this method with this id and these bytes begins now, and has not before.
Raises ApiError."""

_BEGUN = (
    "this request has begun before, and what it asks for is not so: it is under way still, or "
    "it has failed. Look with stele quorum describe, and ask again under a new request id"
)


class Administration:
    """Has requests carried out, at most once for each id, and answers with their outcome."""

    def __init__(
        self,
        config: QuorumConfig,
        controllers: Mapping[str, Connector],
        driver: Driver,
        changes: QuorumChanges,
    ) -> None:
        """``controllers``: how they are connected to, by the name of their listener."""
        self._config = config
        self._controllers = controllers
        self._driver = driver
        self._changes = changes
        self.begin_request: BeginRequest | None = None  # None: ids are not looked at

    def service(self) -> Service:
        changes = {
            name: partial(self._change_voters, name, method)
            for name, method in _VOTER_METHODS.items()
        }
        return Service(unary={TRANSFER_LEADERSHIP: self._transfer_leadership, **changes})

    async def _begins(self, method: str, request: Any) -> bool:
        """Whether a leader may act on the request: not on a copy of what it has begun (or another
        leader has). Raises NotLeaderError, ApiError."""
        if not request.request_id or self.begin_request is None:
            return True
        content = request.SerializeToString(deterministic=True)
        return await self.begin_request(method, request.request_id, content)

    # -------------------------------------------------------------------------- leadership

    async def _transfer_leadership(self, data: bytes, _: Peer) -> bytes:
        self._driver.running()
        request: pb.TransferLeadershipRequest = parse_request(pb.TransferLeadershipRequest, data)
        answer = pb.TransferLeadershipResponse()
        try:
            if await self._begins(TRANSFER_LEADERSHIP, request):
                await self._changes.transfer_leadership(request.voter_id)
            elif self._driver.leader.leader_id != request.voter_id:
                raise ApiError(ErrorCode.OPERATION_NOT_ATTEMPTED, _BEGUN)
        except ApiError as error:
            answer.error, answer.message = int(error.code), error.message
        leader_id, answer.epoch = self._driver.leader
        answer.leader_id = leader_to_wire(leader_id)
        return answer.SerializeToString()

    # ------------------------------------------------------------------------------- voters

    async def _change_voters(self, name: str, method: VoterMethod, data: bytes, _: Peer) -> bytes:
        request = parse_request(method.request, data)
        self._driver.running()
        answer = pb.VoterChangeResponse()
        try:
            self._check_cluster(request.cluster_id)
            key = _key(request)
            if method.votes_then is None or await self._begins(name, request):
                await self._changes.change_voters(await method.change(self, request))
            elif self._changes.is_voter(key) != method.votes_then:
                raise ApiError(ErrorCode.OPERATION_NOT_ATTEMPTED, _BEGUN)
        except MessageError as error:
            answer.error, answer.message = int(ErrorCode.INVALID_REQUEST), str(error)
        except ApiError as error:
            answer.error, answer.message = int(error.code), error.message
        leader_id, answer.epoch = self._driver.leader
        answer.leader_id = leader_to_wire(leader_id)
        return answer.SerializeToString()

    def _check_cluster(self, cluster_id: str) -> None:
        if cluster_id not in ("", self._config.cluster_id):
            raise ApiError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"this is cluster {self._config.cluster_id}, not {cluster_id}",
            )

    async def adding(self, request: pb.AddVoterRequest) -> VoterChange:
        if not request.endpoint:
            raise MessageError(
                "the endpoint is empty: give the address (host:port) of the controller"
            )
        voter = Voter(_key(request), endpoint(request.endpoint))
        timeout_ms = request.timeout_ms if request.timeout_ms > 0 else CATCH_UP_TIMEOUT_MS
        return await self._with_features(AddVoter(voter, timeout_ms / 1000))

    async def _with_features(self, adding: AddVoter) -> AddVoter:
        """What the controller to be added supports, too, as soon as it answers: it may have just
        been started. Raises NotLeaderError, ApiError."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + adding.timeout_s
        while True:
            await self._changes.wait_possible(adding)  # else nobody need be asked
            try:
                supported = await ask_features(self._controllers, self._config, adding.voter)
            except NoAnswerError:
                if loop.time() + _ASK_AGAIN_S >= deadline:
                    raise
                await asyncio.sleep(_ASK_AGAIN_S)
                continue
            voter = replace(adding.voter, features=supported)
            return AddVoter(voter, max(deadline - loop.time(), _ASK_AGAIN_S))

    async def removing(self, request: pb.RemoveVoterRequest) -> VoterChange:
        return RemoveVoter(_key(request))

    async def updating(self, request: pb.UpdateVoterRequest) -> VoterChange:
        supported = features(request.features)
        where = endpoint(request.listeners or request.endpoint)
        return UpdateVoter(Voter(_key(request), where, supported))


@dataclass(frozen=True, slots=True)
class VoterMethod:
    """The decoding of a request to change voters. Its functions raise MessageError, ApiError."""

    request: type[Message]
    change: Callable[[Administration, Any], Awaitable[VoterChange]]
    votes_then: bool | None
    """Whether the replica votes after the change: copies of the request are answered by that.
    None: copies do no harm, so the request has no id."""


_VOTER_METHODS: Final = {
    ADD_VOTER: VoterMethod(pb.AddVoterRequest, Administration.adding, votes_then=True),
    REMOVE_VOTER: VoterMethod(pb.RemoveVoterRequest, Administration.removing, votes_then=False),
    UPDATE_VOTER: VoterMethod(pb.UpdateVoterRequest, Administration.updating, votes_then=None),
}


def _key(request: pb.AddVoterRequest | pb.RemoveVoterRequest | pb.UpdateVoterRequest) -> ReplicaKey:
    """Raises MessageError: which replica is meant must be said in full."""
    directory = directory_id(request.voter_directory_id)
    if directory == NO_DIRECTORY:
        raise MessageError(f"the directory id of controller {request.voter_id} is missing")
    return ReplicaKey(request.voter_id, directory)
