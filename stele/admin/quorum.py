"""Administration of the controllers' quorum: its voters, its leader, and the progress of its
replicas."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from stele.admin.grpc_calls import Message, call
from stele.admin.requests import REQUEST_ID_BYTES
from stele.cluster.messages import error_code
from stele.cluster.view import ClusterView
from stele.config import ClientConfig
from stele.errors import ApiError, ErrorCode
from stele.ids import decode_uuid, encode_uuid
from stele.wire.v1 import raft_pb2

_ANSWER_MARGIN_MS = 5_000
"""How much of a call's time is reserved for the answer, for the case that a voter does not catch
up."""

Ask = Callable[[str, Message, Callable[[bytes], Any]], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class ReplicaDescription:
    """A replica of the metadata log. A node with another directory is another replica."""

    replica_id: int
    directory_id: str  # in Kafka's text form; "" if it is not known yet
    endpoint: str  # of a voter's first listener, host:port; "" if it is not known
    log_end_offset: int | None
    last_fetch_time_ms: int | None
    last_caught_up_time_ms: int | None
    listeners: str = ""
    """If a voter has several listeners: NAME://host:port of each, joined by plus signs."""


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """The quorum of the metadata log: its leader (the active controller), voters and observers."""

    leader_id: int | None
    epoch: int
    high_watermark: int
    voters: tuple[ReplicaDescription, ...]
    observers: tuple[ReplicaDescription, ...]

    def voter(self, node_id: int) -> ReplicaDescription | None:
        """The voter with this node id, or None."""
        return next((each for each in self.voters if each.replica_id == node_id), None)

    def voters_heard(self, within_ms: int = 10_000) -> dict[int, bool]:
        """For each voter's id whether it is there: it leads, or its last fetch is at most
        ``within_ms`` older than the newest fetch of all replicas."""
        heard = [each.last_fetch_time_ms or 0 for each in (*self.voters, *self.observers)]
        newest_ms = max(heard, default=0)
        return {
            each.replica_id: each.replica_id == self.leader_id
            or (each.last_fetch_time_ms or 0) >= newest_ms - within_ms
            for each in self.voters
        }


class QuorumAdmin:
    """The part of ``stele.admin.admin.Admin`` for the quorum. ``ask`` repeats a request until a
    broker answers it or it fails for a reason that does not pass."""

    def __init__(self, view: ClusterView, config: ClientConfig, ask: Ask) -> None:
        self._view = view
        self._config = config
        self._ask = ask

    async def describe(self) -> QuorumDescription:
        response: raft_pb2.DescribeQuorumResponse = await self._ask(
            "DescribeQuorum",
            raft_pb2.DescribeQuorumRequest(),
            raft_pb2.DescribeQuorumResponse.FromString,
        )
        return QuorumDescription(
            _known(response.leader_id),
            response.epoch,
            response.high_watermark,
            tuple(_replica(each) for each in response.voters),
            tuple(_replica(each) for each in response.observers),
        )

    async def transfer_leadership(self, voter_id: int) -> int:
        response: raft_pb2.TransferLeadershipResponse = await self._ask(
            "TransferLeadership",
            raft_pb2.TransferLeadershipRequest(voter_id=voter_id, request_id=self._new_id()),
            raft_pb2.TransferLeadershipResponse.FromString,
        )
        return response.epoch

    async def add_voter(
        self, voter_id: int, directory_id: str, endpoint: str, cluster_id: str = ""
    ) -> None:
        timeout_ms = max(self._config.default_api_timeout_ms - _ANSWER_MARGIN_MS, 1)
        request = raft_pb2.AddVoterRequest(
            cluster_id=cluster_id,
            voter_id=voter_id,
            voter_directory_id=_directory(directory_id),
            endpoint=endpoint,
            timeout_ms=timeout_ms,
        )

        async def is_done() -> bool:
            voter = (await self.describe()).voter(voter_id)
            return voter is not None and voter.directory_id == directory_id

        await self._change("AddVoter", request, ErrorCode.DUPLICATE_VOTER, is_done)

    async def remove_voter(self, voter_id: int, directory_id: str, cluster_id: str = "") -> None:
        request = raft_pb2.RemoveVoterRequest(
            cluster_id=cluster_id, voter_id=voter_id, voter_directory_id=_directory(directory_id)
        )

        async def is_done() -> bool:
            return (await self.describe()).voter(voter_id) is None

        await self._change("RemoveVoter", request, ErrorCode.VOTER_NOT_FOUND, is_done)

    def _new_id(self) -> bytes:
        return self._view.world.rng.randbytes(REQUEST_ID_BYTES)

    async def _change(
        self,
        name: str,
        request: raft_pb2.AddVoterRequest | raft_pb2.RemoveVoterRequest,
        done_already: ErrorCode,
        is_done: Callable[[], Awaitable[bool]],
    ) -> None:
        """Ask until a leader decides. If an answer was lost, ``done_already`` may mean that an
        earlier attempt was carried out. ``is_done`` then checks that."""
        attempts, request_id = 0, self._new_id()

        async def attempt() -> raft_pb2.VoterChangeResponse:
            nonlocal attempts, request_id
            attempts += 1
            request.request_id = request_id
            answer = await self._view.ask_any(
                call(f"/stele.v1.Admin/{name}", request, raft_pb2.VoterChangeResponse.FromString),
                timeout_s=self._config.default_api_timeout_ms / 1000,
            )
            if answer.error == ErrorCode.NOT_CONTROLLER:
                raise ApiError(ErrorCode.NOT_CONTROLLER, f"{name}: there is no active controller")
            if answer.error == ErrorCode.OPERATION_NOT_ATTEMPTED:
                # An earlier attempt with this id was begun and failed, or is under way. Copies of
                # it do nothing any more.
                request_id = self._new_id()
                raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"{name}: {answer.message}")
            return answer

        timeout_s = self._config.default_api_timeout_ms / 1000
        answer = await self._view.keep_asking(attempt, name, timeout_s)
        code = error_code(answer.error)
        if attempts > 1 and code is done_already and await is_done():
            return
        if code is not ErrorCode.NONE:
            raise ApiError(code, answer.message)


def _replica(replica: raft_pb2.ReplicaState) -> ReplicaDescription:
    return ReplicaDescription(
        replica.replica_id,
        encode_uuid(replica.directory_id) if any(replica.directory_id) else "",
        replica.endpoint,
        _known(replica.log_end_offset),
        _known(replica.last_fetch_time_ms),
        _known(replica.last_caught_up_time_ms),
        replica.listeners if "+" in replica.listeners else "",
    )


def _directory(text: str) -> bytes:
    try:
        return decode_uuid(text)
    except ValueError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"directory id: {error}") from None


def _known(number: int) -> int | None:
    return number if number >= 0 else None
