"""The client's way to one server of the simulated control plane."""

from __future__ import annotations

from chaos.sim.world.calls import ClientCall
from chaos.sim.world.rpc_server import ProcessNetwork
from chaos.sim.world.streams import ClientStream
from stele.addresses import Address
from stele.world import RpcCode, RpcError, Stream


class SimChannel:
    """``stele.world.Channel``."""

    def __init__(
        self, network: ProcessNetwork, address: Address, client_id: str | None = None
    ) -> None:
        self._network = network
        self._address = address
        self._client_id = client_id
        self._open: dict[ClientCall | ClientStream, None] = {}  # in the order of their start
        self._closed = False

    async def call(
        self, method: str, request: bytes, *, timeout_s: float, authorization: str | None = None
    ) -> bytes:
        if self._closed:
            raise RpcError(RpcCode.CANCELLED, "the channel is closed")
        call = ClientCall(self._network, self._address, self._client_id, method, self._ended)
        call.authorization = authorization
        self._open[call] = None
        return await call.run(bytes(request), timeout_s)

    def stream(self, method: str, authorization: str | None = None) -> Stream:
        stream = ClientStream(self._network, self._address, self._client_id, method, self._ended)
        stream.authorization = authorization
        self._open[stream] = None
        if self._closed:
            stream.channel_closed()
        return stream

    async def close(self) -> None:
        if self._closed or self._network.process.dead:
            return
        self._closed = True
        for call in list(self._open):
            call.channel_closed()

    def _ended(self, call: ClientCall | ClientStream) -> None:
        self._open.pop(call, None)
