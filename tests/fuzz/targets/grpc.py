"""Changed calls of gRPC to a broker without logs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from broker.grpc.admin import AdminService
from broker.grpc.groups import GroupsService
from broker.grpc.transactions import TransactionsService
from stele.world import RpcError
from tests.fuzz.brokers import AT_ONCE, PATIENCE_S, Said, broker, check_alive
from tests.fuzz.cost import Meter
from tests.fuzz.grpc_methods import METHODS, Payloads
from tests.support.broker_edges import PEER
from tests.support.timing import run_virtual

Call = tuple[str, bytes]


def check_over_grpc(calls: Sequence[Call], meter: Meter) -> int:
    """Returns how many were answered."""

    async def main() -> int:
        edges = await broker()
        handlers: dict[str, Callable[..., Awaitable[Any]]] = {}
        for made in (
            AdminService(edges.context, "EXTERNAL"),
            GroupsService(edges.context, "EXTERNAL"),
            TransactionsService(edges.context, "EXTERNAL"),
        ):
            handlers |= made.service().unary
        answered = 0
        for path, payload in calls:
            if path not in handlers:
                continue  # a whole node serves it
            meter.request(len(payload))
            try:
                async with asyncio.timeout(PATIENCE_S):
                    assert isinstance(await handlers[path](payload, PEER), bytes)
                answered += 1
            except (RpcError, TimeoutError):
                pass
        await check_alive(edges)
        return answered

    with Said() as said:
        count = run_virtual(main())
    said.check(3 * len(calls))
    return count


class GrpcTarget:
    name = "grpc"
    examples = 60

    def __init__(self, rng: random.Random) -> None:
        self._payloads = Payloads(rng, METHODS)

    def draw(self, rng: random.Random) -> list[Call]:
        paths = [rng.choice(self._payloads.paths) for _ in range(AT_ONCE)]
        return [(path, self._payloads.draw(rng, path)) for path in paths]

    def run(self, data: list[Call], meter: Meter) -> str:
        return "answered" if check_over_grpc(data, meter) else "nothing answered"


TARGET = GrpcTarget
