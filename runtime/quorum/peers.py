"""The calls of one replica to the others, each in a task of its own, and where those are."""

from __future__ import annotations

import asyncio
import logging

from raft.messages import FetchRequest
from raft.quorum import FeatureLevels, ReplicaKey, Voter, VoterSet
from raft.ready import Call
from runtime.config.node import Address, parse_address
from runtime.quorum.config import QuorumConfig
from runtime.quorum.inbox import Inbox
from runtime.quorum.messages import (
    SUPPORTED_FEATURES,
    MessageError,
    decode_response,
    directory_id,
    encode_request,
    features,
    parse,
)
from stele.errors import ApiError, ErrorCode
from stele.ids import encode_uuid
from stele.wire.v1 import raft_pb2 as pb
from stele.world import Channel, RpcCode, RpcError
from world.network import Network

_log = logging.getLogger(__name__)

FIRST_BOOTSTRAP_ID = -2
"""The configured servers to ask have no ids; they are called -2, -3, … as in Kafka."""


class Endpoints:
    """Where each peer is reached, by node id.

    Of a voter, the voters record knows; of a leader that is not in the newest one here, other
    replicas do; of the rest, the configuration. One that does not answer gives way to the next.
    """

    def __init__(self, config: QuorumConfig) -> None:
        self._own_id, self._own = config.node_id, parse_address(config.own_endpoint)
        self._configured = {each.id: Address(each.host, each.port) for each in config.voters}
        for number, (host, port) in enumerate(config.bootstrap):
            self._configured[FIRST_BOOTSTRAP_ID - number] = Address(host, port)
        self._recorded: dict[int, Address] = {}
        self._told: dict[int, Address] = {}
        self._failures: dict[int, int] = {}  # in a row, by id: how far down its addresses it is

    @property
    def bootstrap_ids(self) -> tuple[int, ...]:
        """All that the configuration says where they are, but this node."""
        others = [each for each in self._configured if each != self._own_id]
        return tuple(sorted(others, key=lambda each: (each > 0, abs(each))))

    def settle(self, voters: VoterSet, leader_id: int | None) -> None:
        """These are the voters now, and this is the leader, which need not be one of them: it may
        have been added behind the end of this log, or be about to leave."""
        if leader_id is not None and leader_id in self._recorded:
            self._told.setdefault(leader_id, self._recorded[leader_id])
        recorded = {each.id: parse_address(each.endpoint) for each in voters.voters}
        found = {node_id: address for node_id, address in recorded.items() if address is not None}
        if found != self._recorded:
            self._recorded = found
            self._failures.clear()
        for node_id in [each for each in self._told if each not in (*voters.ids, leader_id)]:
            del self._told[node_id]

    @property
    def in_use(self) -> set[Address]:
        """Where those are that this replica may have to call."""
        ids = [*self._recorded, *self._told, *self._configured]
        return {address for each in ids if (address := self.get(each)) is not None}

    def tell(self, node_id: int | None, endpoint: str) -> None:
        """Another replica says that this node is there."""
        address = parse_address(endpoint)
        if node_id is not None and address is not None and self._told.get(node_id) != address:
            self._told[node_id] = address
            self._failures.pop(node_id, None)

    def failed(self, node_id: int) -> None:
        """It was not reached where it was thought to be."""
        self._failures[node_id] = self._failures.get(node_id, 0) + 1

    def get(self, node_id: int) -> Address | None:
        """None: nobody knows where this node is."""
        if node_id == self._own_id and self._own is not None:
            return self._own
        known = self._known(node_id)
        return known[self._failures.get(node_id, 0) % len(known)] if known else None

    def _known(self, node_id: int) -> list[Address]:
        known: list[Address] = []
        for source in (self._recorded, self._told, self._configured):
            address = source.get(node_id)
            if address is not None and address not in known:
                known.append(address)
        return known


class Peers:
    """Sends calls, and hands in each one's answer or its failure, once, on the event loop.

    A cancelled call hands in nothing.
    """

    def __init__(
        self, config: QuorumConfig, network: Network, endpoints: Endpoints, inbox: Inbox
    ) -> None:
        self._config = config
        self._network = network
        self._endpoints = endpoints
        self._inbox = inbox
        self._channels: dict[Address, Channel] = {}
        self._closing: set[asyncio.Task[None]] = set()  # held, or they could be collected
        self._calls: dict[int, asyncio.Task[None]] = {}  # by request id, until it is done

    def send(self, call: Call) -> None:
        task = asyncio.get_running_loop().create_task(
            self._call(call), name=f"quorum-call-{call.request_id}-to-{call.to}"
        )
        self._calls[call.request_id] = task
        task.add_done_callback(lambda _: self._calls.pop(call.request_id, None))

    def cancel(self, request_id: int) -> None:
        task = self._calls.pop(request_id, None)
        if task is not None:
            task.cancel()

    def settle(self, voters: VoterSet, leader_id: int | None) -> None:
        """These are the voters and the leader now: leave those that nobody needs any more."""
        self._endpoints.settle(voters, leader_id)
        in_use = self._endpoints.in_use
        for address in [each for each in self._channels if each not in in_use]:
            task = asyncio.get_running_loop().create_task(self._channels.pop(address).close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def finish(self, *, timeout_s: float) -> None:
        """Wait for the calls that are out, so long at most."""
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.gather(*self._calls.values(), return_exceptions=True)
        except TimeoutError:
            _log.info("not every voter answered within %.1f s", timeout_s)

    async def close(self) -> None:
        """Give up every call and every channel."""
        tasks = [*self._calls.values(), *self._closing]
        for task in self._calls.values():
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for channel in self._channels.values():
            await channel.close()
        self._channels.clear()

    async def ask(self, node_id: int, method: str, request: bytes) -> bytes:
        """One call that is not the core's. Raises RpcError."""
        timeout_s = self._config.request_timeout_ms / 1000
        return await self._channel(node_id).call(method, request, timeout_s=timeout_s)

    async def _call(self, call: Call) -> None:
        config = self._config
        method, request = encode_request(call.message, config.cluster_id, config.own_endpoint)
        try:
            answer = await self._channel(call.to).call(
                method, request, timeout_s=self._timeout_s(call)
            )
            response, leader_endpoint = decode_response(method, answer)
        except RpcError as error:
            _log.debug("%s to node %d failed: %s", method, call.to, error)
            self._endpoints.failed(call.to)
            self._inbox.failed(call, error.code)
        except MessageError as error:
            _log.error("node %d answers %s with nonsense: %s", call.to, method, error)
            self._inbox.failed(call, RpcCode.INTERNAL)
        else:
            self._endpoints.tell(response.leader_id, leader_endpoint)
            self._inbox.answered(call, response)

    def _channel(self, node_id: int) -> Channel:
        address = self._endpoints.get(node_id)
        if address is None:
            raise RpcError(RpcCode.UNAVAILABLE, f"nobody has said where node {node_id} is")
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = self._network.channel(address.host, address.port)
        return channel

    def _timeout_s(self, call: Call) -> float:
        wait_ms = call.message.max_wait_ms if isinstance(call.message, FetchRequest) else 0
        return (self._config.request_timeout_ms + wait_ms) / 1000


class NoAnswerError(ApiError):
    """A controller is not there, or not yet."""


async def ask_features(
    network: Network, config: QuorumConfig, voter: Voter
) -> tuple[FeatureLevels, ...]:
    """What a controller that is no voter yet supports, asked of itself at its endpoint (KIP-853).

    Empty when its version of Stele cannot tell. Raises NoAnswerError, and ApiError: it is another
    one that answers.
    """
    address = parse_address(voter.endpoint)
    assert address is not None  # what has no endpoint is not asked
    request = pb.SupportedFeaturesRequest(cluster_id=config.cluster_id).SerializeToString()
    channel = network.channel(address.host, address.port)  # no old one, that waits to reconnect
    try:
        data = await channel.call(
            SUPPORTED_FEATURES, request, timeout_s=config.request_timeout_ms / 1000
        )
        answer: pb.SupportedFeaturesResponse = parse(pb.SupportedFeaturesResponse, data)
        found = ReplicaKey(answer.node_id, directory_id(answer.directory_id))
        supported = features(answer.features)
    except (RpcError, MessageError) as error:
        if isinstance(error, RpcError) and error.code is RpcCode.UNIMPLEMENTED:
            return ()
        raise NoAnswerError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"controller {voter.id} does not answer at {voter.endpoint}: nothing changed ({error})",
        ) from None
    finally:
        await channel.close()
    if answer.error or found != voter.key:
        there = f"{found.id} with {encode_uuid(found.directory_id)}"
        who = "one of another cluster" if answer.error else there
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"at {voter.endpoint} is not controller {voter.id} with the directory id "
            f"{encode_uuid(voter.key.directory_id)}, but {who}: nothing changed",
        )
    return supported
