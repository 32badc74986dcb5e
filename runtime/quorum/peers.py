"""The calls of one replica to the others, each in a task of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from raft.messages import FetchRequest
from raft.quorum import VoterSet
from raft.ready import Call
from runtime.config.addresses import NamedAddress
from runtime.config.node import ConfigError
from runtime.quorum.config import QuorumConfig
from runtime.quorum.endpoints import Endpoints
from runtime.quorum.inbox import Inbox
from runtime.quorum.messages import (
    ForeignClusterError,
    MessageError,
    check_epoch,
    decode_response,
    encode_request,
)
from runtime.quorum.refusals import RefusalLog
from stele.world import Channel, Connector, RpcCode, RpcError

_log = logging.getLogger(__name__)


class Peers:
    """Sends calls, and hands in each one's answer or its failure, once, on the event loop.

    A cancelled call hands in nothing.
    """

    def __init__(
        self,
        config: QuorumConfig,
        controllers: Mapping[str, Connector],
        endpoints: Endpoints,
        inbox: Inbox,
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        """``controllers``: by the name of the listener. ``on_fatal`` gets a ConfigError if all that
        the configuration names are nodes of another cluster."""
        self._on_fatal = on_fatal
        self._config = config
        self._controllers = controllers
        self._endpoints = endpoints
        self._inbox = inbox
        self._channels: dict[NamedAddress, Channel] = {}
        self._closing: set[asyncio.Task[None]] = set()  # held, or they could be collected
        self._calls: dict[int, asyncio.Task[None]] = {}  # by request id, until it is done
        # By node id: where another cluster has answered last.
        self._foreign: dict[int, NamedAddress] = {}
        self._refusals = RefusalLog()
        self._has_found_own = False  # a node of this cluster has answered this process

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
        """These are the voters and the leader now: close the connections that are not needed any
        more."""
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
        channel = self._channel(node_id, self._endpoints.get(node_id))
        return await channel.call(method, request, timeout_s=timeout_s)

    async def _call(self, call: Call) -> None:
        config, endpoints = self._config, self._endpoints
        peer = endpoints.get(call.to)
        listener = "" if peer is None else peer.name
        own = endpoints.text_of(config.node_id, listener)
        method, request = encode_request(call.message, config.cluster_id, own)
        try:
            answer = await self._channel(call.to, peer).call(
                method, request, timeout_s=self._timeout_s(call)
            )
            response, leader_endpoint = decode_response(method, answer)
            check_epoch(response.epoch, call.message.epoch)
        except RpcError as error:
            _log.debug("%s to node %d failed: %s", method, call.to, error)
            self._refusals.failed(call.to, peer, error)
            self._endpoints.failed(call.to)
            self._inbox.failed(call, error.code)
        except MessageError as error:
            _log.error("node %d answers %s with unreadable bytes: %s", call.to, method, error)
            self._inbox.failed(call, RpcCode.INTERNAL)
        except ForeignClusterError:
            self._warn_of_foreigner(call.to)
            self._endpoints.failed(call.to)
            # As if nobody listened there: nobody of this cluster does.
            self._inbox.failed(call, RpcCode.UNAVAILABLE)
        else:
            self._foreign.pop(call.to, None)
            self._refusals.answered(call.to)
            self._has_found_own = True
            endpoints.tell(response.leader_id, leader_endpoint, listener)
            self._inbox.answered(call, response)

    def _warn_of_foreigner(self, node_id: int) -> None:
        """Say it once for each address: the node is asked again several times a second."""
        address = self._endpoints.get(node_id)
        if address is None or self._foreign.get(node_id) == address:
            return
        self._foreign[node_id] = address
        _log.error(
            "the node at %s belongs to another cluster than %s and is not believed; correct"
            " controller.quorum.bootstrap.servers or controller.quorum.voters if they name it",
            address.address,
            self._config.cluster_id,
        )
        self._check_configuration()

    def _check_configuration(self) -> None:
        """A broker that meets nothing but another cluster would wait for ever. A voter may be all
        that is left of its own cluster, and goes on."""
        named = self._endpoints.bootstrap_ids
        if (
            not named
            or self._has_found_own
            or self._config.own_endpoint
            or any(each not in self._foreign for each in named)
        ):
            return
        places = ", ".join(str(self._foreign[each].address) for each in named)
        self._on_fatal(
            ConfigError(
                f"the controllers at {places} belong to another cluster, and this node's "
                f"directories are formatted for {self._config.cluster_id}: correct "
                "controller.quorum.bootstrap.servers or controller.quorum.voters, or give the node "
                "directories that are formatted for the controllers' cluster"
            )
        )

    def _channel(self, node_id: int, peer: NamedAddress | None) -> Channel:
        """Raises RpcError."""
        if peer is None:
            raise RpcError(RpcCode.UNAVAILABLE, f"nobody has said where node {node_id} is")
        channel = self._channels.get(peer)
        if channel is None:
            channel = self._controllers[peer.name].channel(peer.address)
            self._channels[peer] = channel
        return channel

    def _timeout_s(self, call: Call) -> float:
        wait_ms = call.message.max_wait_ms if isinstance(call.message, FetchRequest) else 0
        return (self._config.request_timeout_ms + wait_ms) / 1000
