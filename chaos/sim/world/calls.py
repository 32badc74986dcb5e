"""Unary calls of the simulated control plane. They may overtake each other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from chaos.sim.world.process import Machine
from chaos.sim.world.rpc_server import INTERNAL_ERROR, ProcessNetwork, RpcServer
from chaos.sim.world.wire import Said, Stage
from stele.addresses import Address
from stele.world import MAX_MESSAGE_BYTES, RpcCode, RpcError
from world.network import Peer

logger = logging.getLogger(__name__)

# Calls whose copies may arrive much later: their handlers must not rely on the caller's waiting.
_MAY_COME_LATE = frozenset(
    {
        "/stele.v1.Controller/AlterPartition",
        "/stele.v1.Controller/AssignReplicasToDirectories",
        "/stele.v1.Raft/Vote",
        "/stele.v1.Raft/BeginQuorumEpoch",
        "/stele.v1.Raft/EndQuorumEpoch",
        "/stele.v1.Raft/Fetch",
        "/stele.v1.Admin/AddVoter",
        "/stele.v1.Admin/RemoveVoter",
    }
)


def _too_large(message: bytes) -> RpcError:
    """As gRPC refuses a message."""
    detail = f"a message of {len(message)} bytes: {MAX_MESSAGE_BYTES} are the most"
    return RpcError(RpcCode.RESOURCE_EXHAUSTED, detail)


class ClientCall:
    """A unary call at its client. It takes the first answer or error that comes."""

    def __init__(
        self,
        network: ProcessNetwork,
        address: Address,
        client_id: str | None,
        method: str,
        on_end: Callable[[ClientCall], None],
    ) -> None:
        self.network = network
        self.process = network.process
        self.method = method
        self.client_id = client_id
        self.authorization: str | None = None
        self._host, self._port = address[:2]
        self._on_end = on_end
        self._answer: asyncio.Future[bytes] = self.process.loop.create_future()
        self.server_calls: list[ServerCall] = []
        self.over = False
        self._request = b""
        self._resource = self.process.own(self)

    async def run(self, request: bytes, timeout_s: float) -> bytes:
        deadline = self.process.loop.call_later(
            timeout_s, self.fail, RpcError(RpcCode.DEADLINE_EXCEEDED, self.method)
        )
        self._send(request, timeout_s)
        try:
            return await self._answer
        finally:
            deadline.cancel()
            self._end()

    def _send(self, request: bytes, timeout_s: float) -> None:
        fabric = self.network.fabric
        machine = self.process.machine
        target = self.network.resolve(self._host)
        if target is None:
            self.process.loop.call_soon(
                self.fail, RpcError(RpcCode.UNAVAILABLE, f"no host {self._host}")
            )
            return
        if len(request) > MAX_MESSAGE_BYTES:
            self.process.loop.call_soon(self.fail, _too_large(request))
            return
        rng = fabric.rng(machine, target)
        faults = fabric.faults
        copies = 1
        if faults.lost_request and rng.random() < faults.lost_request:
            copies = 0
        elif faults.duplicate and rng.random() < faults.duplicate:
            copies = 2
        self.network.note(
            "call", f"{target.name}:{self._port}{self.method} {len(request)}x{copies}"
        )
        self._request = request
        said = self._said(machine, target)
        fabric.wire.tell(Stage.SENT, said)
        held_s = [fabric.wire.held_s(said)] * copies
        late = faults.late_copy if self.method in _MAY_COME_LATE else 0.0
        if late and rng.random() < late:
            held_s.append(rng.uniform(0.0, faults.late_copy_s))
        held_s += fabric.wire.echoes_s(said)
        for late_s in held_s:
            if late_s:
                fabric.scheduler.at(late_s, self._leave, target, request, timeout_s)
            else:
                self._leave(target, request, timeout_s)

    def _said(self, source: Machine, target: Machine, answer: bytes = b"") -> Said:
        return Said(source.name, target.name, self.method, self._request, answer)

    def _leave(self, target: Machine, request: bytes, timeout_s: float) -> None:
        self.network.fabric.send(
            self.process.machine, target, self._arrive, target, request, timeout_s
        )

    def _arrive(self, target: Machine, request: bytes, timeout_s: float) -> None:
        """The request arrives at the server's machine."""
        self.network.fabric.wire.tell(Stage.ARRIVED, self._said(self.process.machine, target))
        server = target.ports.get(self._port)
        if not isinstance(server, RpcServer):
            self.reply(target, RpcError(RpcCode.UNAVAILABLE, f"{target.name}:{self._port} refused"))
            return
        call = ServerCall(server, self)
        self.server_calls.append(call)
        call.begin(request, timeout_s)

    def reply(self, source: Machine, outcome: bytes | RpcError) -> None:
        """Send the outcome, from the server's machine."""
        fabric = self.network.fabric
        faults = fabric.faults
        if isinstance(outcome, bytes) and len(outcome) > MAX_MESSAGE_BYTES:
            outcome = _too_large(outcome)
        if isinstance(outcome, bytes):
            said = self._said(self.process.machine, source, outcome)
            fabric.wire.tell(Stage.ANSWERED, said)
        rng = fabric.rng(source, self.process.machine)
        if faults.lost_reply and rng.random() < faults.lost_reply:
            return
        hand_in = self.process.loop.hand_in
        fabric.send(source, self.process.machine, hand_in, self._take, source, outcome)

    def _take(self, source: Machine, outcome: bytes | RpcError) -> None:
        if isinstance(outcome, RpcError):
            self.fail(outcome)
        elif not self._answer.done():
            said = self._said(self.process.machine, source, outcome)
            self.network.fabric.wire.tell(Stage.TAKEN, said)
            self._answer.set_result(outcome)

    def fail(self, error: RpcError) -> None:
        if not self._answer.done():
            self._answer.set_exception(error)

    def channel_closed(self) -> None:
        self.fail(RpcError(RpcCode.CANCELLED, "the channel was closed"))

    def _end(self) -> None:
        """End the call. Whatever still runs for it at the server is cancelled."""
        if self.over or self.process.dead:
            return
        self.over = True
        self.process.disown(self._resource)
        self._on_end(self)
        self._cancel_at_server()

    def die(self, *, silent: bool) -> None:
        self.over = True
        if not silent:
            self._cancel_at_server()

    def _cancel_at_server(self) -> None:
        for call in self.server_calls:
            if not call.over:
                self.network.fabric.send(
                    self.process.machine, call.server.process.machine, call.client_left
                )


class ServerCall:
    """A unary call at its server."""

    def __init__(self, server: RpcServer, client: ClientCall) -> None:
        self.server = server
        self.peer = Peer(
            client.process.machine.name,
            client.client_id,
            client.network.principal,
            authorization=client.authorization,
        )
        self._client = client
        self._task: asyncio.Task[None] | None = None
        self.over = False
        self._number = server.add(self)
        self._deadline: asyncio.TimerHandle | None = None

    def begin(self, request: bytes, timeout_s: float) -> None:
        loop = self.server.process.loop
        self._task = loop.create_task(self._serve(request))
        # A gRPC call carries its deadline to the server.
        self._deadline = loop.call_later(timeout_s, self.client_left)

    async def _serve(self, request: bytes) -> None:
        method = self._client.method
        outcome: bytes | RpcError
        try:
            outcome = await self.server.service.call(method, request, self.peer)
        except RpcError as error:
            outcome = error
        except asyncio.CancelledError:
            outcome = RpcError(RpcCode.CANCELLED, method)
        except Exception as error:
            logger.exception("%s: %s failed", self.server.process.name, method)
            self.server.network.internal_error(f"{method}: {error!r}")
            outcome = INTERNAL_ERROR
        self._finish(outcome)

    def _finish(self, outcome: bytes | RpcError) -> None:
        if not self.over:
            self.over = True
            self.server.calls.pop(self._number, None)
            if self._deadline is not None:
                self._deadline.cancel()
            self._client.reply(self.server.process.machine, outcome)

    def client_left(self) -> None:
        """The client has cancelled, or its deadline has passed."""
        self._cancel(RpcError(RpcCode.CANCELLED, "the client has gone"))

    def server_closed(self) -> None:
        self._cancel(RpcError(RpcCode.UNAVAILABLE, "the server is shutting down"))

    def _cancel(self, outcome: RpcError) -> None:
        if self.over:
            return
        if self._task is not None:
            self._task.cancel()
        self._finish(outcome)

    def server_died(self, *, silent: bool) -> None:
        self.over = True
        if not silent:
            error = RpcError(RpcCode.UNAVAILABLE, "the connection was reset")
            self._client.reply(self.server.process.machine, error)
