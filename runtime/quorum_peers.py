"""The calls of one replica to the voters, each in a task of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from raft.messages import FetchRequest, Response
from raft.ready import Call
from runtime.quorum_config import QuorumConfig, QuorumVoter
from runtime.quorum_messages import MessageError, decode_response, encode_request
from stele.world import Channel, Network, RpcCode, RpcError

_log = logging.getLogger(__name__)


class Peers:
    """Sends calls, and hands back each one's answer or its failure, once, on the event loop.

    ``on_answer(call, response)``; ``on_failure(call, code)``. A cancelled call hands back nothing.
    """

    def __init__(
        self,
        config: QuorumConfig,
        network: Network,
        *,
        on_answer: Callable[[Call, Response], None],
        on_failure: Callable[[Call, RpcCode], None],
    ) -> None:
        self._config = config
        self._network = network
        self._on_answer = on_answer
        self._on_failure = on_failure
        self._voters: dict[int, QuorumVoter] = {voter.id: voter for voter in config.voters}
        self._channels: dict[int, Channel] = {}
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

    async def finish(self, *, timeout_s: float) -> None:
        """Wait for the calls that are out, so long at most."""
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.gather(*self._calls.values(), return_exceptions=True)
        except TimeoutError:
            _log.info("not every voter answered within %.1f s", timeout_s)

    async def close(self) -> None:
        """Give up every call and every channel."""
        tasks = list(self._calls.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for channel in self._channels.values():
            await channel.close()
        self._channels.clear()

    async def _call(self, call: Call) -> None:
        method, request = encode_request(call.message, self._config.cluster_id)
        try:
            answer = await self._channel(call.to).call(
                method, request, timeout_s=self._timeout_s(call)
            )
            response = decode_response(method, answer)
        except RpcError as error:
            _log.debug("%s to voter %d failed: %s", method, call.to, error)
            self._on_failure(call, error.code)
        except MessageError as error:
            _log.error("voter %d answers %s with nonsense: %s", call.to, method, error)
            self._on_failure(call, RpcCode.INTERNAL)
        else:
            self._on_answer(call, response)

    def _channel(self, voter_id: int) -> Channel:
        channel = self._channels.get(voter_id)
        if channel is None:
            voter = self._voters[voter_id]
            channel = self._network.channel(voter.host, voter.port)
            self._channels[voter_id] = channel
        return channel

    def _timeout_s(self, call: Call) -> float:
        wait_ms = call.message.max_wait_ms if isinstance(call.message, FetchRequest) else 0
        return (self._config.request_timeout_ms + wait_ms) / 1000
