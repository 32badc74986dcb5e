"""The way to the active controller."""

from __future__ import annotations

import asyncio

import pytest

from broker.membership.controller_client import ControllerClient
from raft.api import LeaderAndEpoch
from stele.errors import ApiError, ErrorCode
from stele.wire.v1.controller_pb2 import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from stele.world import RpcCode, RpcError
from tests.support.broker_edges import FakeNetwork
from tests.support.timing import LoopClock, run_virtual
from world.network import Peer, Service

METHOD = "/stele.v1.Controller/AllocateProducerIds"
VOTERS = {1: ("c1", 9093), 2: ("c2", 9093), 3: ("c3", 9093)}


class _Controllers:
    """Three controllers on one network; ``active`` answers, the others name it."""

    def __init__(self) -> None:
        self.network = FakeNetwork()
        self.active: int | None = 1
        self.known = LeaderAndEpoch(1, 1)
        self.asked: list[int] = []
        for voter_id in VOTERS:
            self.start(voter_id)
        self.client = ControllerClient(
            network=self.network, clock=LoopClock(), endpoint=VOTERS.get, leader=lambda: self.known
        )

    def start(self, voter_id: int) -> None:
        async def allocate(payload: bytes, _: Peer) -> bytes:
            self.asked.append(voter_id)
            if voter_id != self.active:
                return AllocateProducerIdsResponse(
                    error=ErrorCode.NOT_CONTROLLER,
                    leader_id=-1 if self.active is None else self.active,
                ).SerializeToString()
            return AllocateProducerIdsResponse(first=1000, count=1000).SerializeToString()

        self.network.services[VOTERS[voter_id]] = Service(unary={METHOD: allocate})

    async def ask(self, timeout_s: float = 10.0) -> AllocateProducerIdsResponse:
        return await self.client.allocate_producer_ids(
            AllocateProducerIdsRequest(broker_id=4), timeout_s=timeout_s
        )


def test_asks_the_leader_of_the_quorum() -> None:
    async def main() -> None:
        controllers = _Controllers()
        assert (await controllers.ask()).first == 1000
        assert controllers.asked == [1]

    run_virtual(main())


def test_follows_the_leader_that_a_refusal_names() -> None:
    async def main() -> None:
        controllers = _Controllers()
        controllers.active = 3
        before = asyncio.get_running_loop().time()
        assert (await controllers.ask()).first == 1000
        assert controllers.asked == [1, 3]
        assert asyncio.get_running_loop().time() == before

    run_virtual(main())


def test_waits_for_an_election_and_tries_again_at_once_when_it_is_over() -> None:
    async def main() -> None:
        controllers = _Controllers()
        controllers.known = LeaderAndEpoch(None, 1)
        loop = asyncio.get_running_loop()

        def elect() -> None:
            controllers.active, controllers.known = 2, LeaderAndEpoch(2, 2)
            controllers.client.on_leader_change()

        loop.call_later(0.7, elect)
        assert (await controllers.ask()).count == 1000
        assert controllers.asked == [2]
        assert loop.time() == pytest.approx(0.7)

    run_virtual(main())


def test_a_controller_that_comes_back_is_found() -> None:
    async def main() -> None:
        controllers = _Controllers()
        del controllers.network.services[VOTERS[1]]
        asyncio.get_running_loop().call_later(1.0, controllers.start, 1)
        assert (await controllers.ask()).count == 1000
        assert asyncio.get_running_loop().time() < 1.3

    run_virtual(main())


def test_gives_up_at_the_deadline_saying_why() -> None:
    async def main() -> None:
        controllers = _Controllers()
        controllers.network.services.clear()
        with pytest.raises(ApiError, match="controller 1 is unavailable") as caught:
            await controllers.ask(timeout_s=3.0)
        assert caught.value.code == ErrorCode.REQUEST_TIMED_OUT
        assert asyncio.get_running_loop().time() == pytest.approx(3.0)

    run_virtual(main())


def test_two_that_name_each_other_are_no_busy_loop() -> None:
    async def main() -> None:
        controllers = _Controllers()
        controllers.active = None

        async def blame_two(payload: bytes, _: Peer) -> bytes:
            controllers.asked.append(1)
            return AllocateProducerIdsResponse(
                error=ErrorCode.NOT_CONTROLLER, leader_id=2
            ).SerializeToString()

        async def blame_one(payload: bytes, _: Peer) -> bytes:
            controllers.asked.append(2)
            return AllocateProducerIdsResponse(
                error=ErrorCode.NOT_CONTROLLER, leader_id=1
            ).SerializeToString()

        controllers.network.services[VOTERS[1]].unary[METHOD] = blame_two
        controllers.network.services[VOTERS[2]].unary[METHOD] = blame_one
        with pytest.raises(ApiError):
            await controllers.ask(timeout_s=1.0)
        assert len(controllers.asked) < 20

    run_virtual(main())


def test_a_silent_controller_does_not_cost_the_whole_deadline() -> None:
    async def main() -> None:
        controllers = _Controllers()

        async def silent(payload: bytes, _: Peer) -> bytes:
            await asyncio.sleep(1000)
            return b""

        controllers.network.services[VOTERS[1]].unary[METHOD] = silent
        controllers.active = 2
        loop = asyncio.get_running_loop()
        loop.call_later(1.0, lambda: setattr(controllers, "known", LeaderAndEpoch(2, 2)))
        assert (await controllers.ask(timeout_s=30.0)).count == 1000
        assert loop.time() < 6

    run_virtual(main())


def test_a_call_refused_as_such_is_not_retried() -> None:
    async def main() -> None:
        controllers = _Controllers()
        controllers.network.services[VOTERS[1]].unary.clear()
        with pytest.raises(RpcError) as caught:
            await controllers.ask()
        assert caught.value.code == RpcCode.UNIMPLEMENTED

        async def garbage(payload: bytes, _: Peer) -> bytes:
            return b"\xff\xff"

        controllers.network.services[VOTERS[1]].unary[METHOD] = garbage
        with pytest.raises(RpcError, match="garbage"):
            await controllers.ask()

    run_virtual(main())
