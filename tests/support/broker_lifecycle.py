"""A broker's lifecycle with controllers that behave as a test says, in virtual time."""

from __future__ import annotations

import asyncio

from broker.membership.controller_client import ControllerClient
from broker.membership.identity import BrokerIdentity, DirectoryHistory
from broker.membership.lifecycle import BrokerLifecycle, OwnState, Timing
from broker.membership.room import Room
from raft.api import LeaderAndEpoch
from runtime.config.addresses import CONTROLLER, NamedAddress
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from stele.wire.v1.controller_pb2 import (
    HeartbeatRequest,
    HeartbeatResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
)
from stele.wire.v1.metadata_pb2 import Endpoint
from stele.world import Stream
from tests.support.broker_edges import FakeNetwork
from tests.support.timing import LoopClock, run_virtual
from tests.support.worlds import Scenario, gives
from world.network import Peer, Service

INCARNATION = b"i" * 16
VOTERS = {1: ("c1", 9093), 2: ("c2", 9093)}


def address_of(controller_id: int) -> NamedAddress | None:
    assert isinstance(controller_id, int)
    address = VOTERS.get(controller_id)
    return None if address is None else NamedAddress(CONTROLLER, *address)


class Controller:
    """One controller. It registers brokers, and answers heartbeats as the test says."""

    def __init__(self) -> None:
        self.registrations: list[RegisterBrokerRequest] = []
        self.heartbeats: list[tuple[float, HeartbeatRequest]] = []
        self.streams: list[Stream] = []
        self.open = 0  # how many of the streams have not ended
        self.registration = RegisterBrokerResponse(broker_epoch=10)
        self.error = ErrorCode.NONE
        self.mute = False
        self.hangs_up = False  # ends each stream at the next heartbeat
        self.acknowledges = True  # else its answers are to no heartbeat
        self.extra: list[HeartbeatResponse] = []  # sent before the next answer
        self.may_shut_down = False
        self.leads_nothing_at = 0
        self.committed_offset = 12
        # The broker is unfenced once a heartbeat has at least this metadata offset.
        self.unfence_at = 10
        self.fenced = True

    def service(self) -> Service:
        return Service(
            unary={"/stele.v1.Controller/RegisterBroker": self._register},
            streams={"/stele.v1.Controller/Heartbeat": self._heartbeat},
        )

    async def _register(self, payload: bytes, _: Peer) -> bytes:
        self.registrations.append(RegisterBrokerRequest.FromString(payload))
        return self.registration.SerializeToString()

    async def _heartbeat(self, stream: Stream, _: Peer) -> None:
        self.streams.append(stream)
        self.open += 1
        try:
            await self._converse(stream)
        finally:
            self.open -= 1

    async def _converse(self, stream: Stream) -> None:
        while (raw := await stream.receive()) is not None:
            request = HeartbeatRequest.FromString(raw)
            self.heartbeats.append((asyncio.get_running_loop().time(), request))
            if self.hangs_up:
                return
            if request.metadata_offset >= self.unfence_at:
                self.fenced = False
            while self.extra:
                await stream.send(self.extra.pop(0).SerializeToString())
            if not self.mute:
                await stream.send(
                    HeartbeatResponse(
                        error=self.error,
                        sequence=request.sequence if self.acknowledges else 0,
                        fenced=self.fenced,
                        may_shut_down=self.may_shut_down and request.want_shutdown,
                        leads_nothing_at=self.leads_nothing_at,
                        committed_offset=self.committed_offset,
                    ).SerializeToString()
                )


class Cluster:
    """Two controllers, and the lifecycle of broker 4."""

    def __init__(self) -> None:
        self.network = FakeNetwork()
        self.clock = LoopClock()
        self.controllers = {1: Controller(), 2: Controller()}
        for voter_id, controller in self.controllers.items():
            self.network.services[VOTERS[voter_id]] = controller.service()
        self.leader = LeaderAndEpoch(1, 1)
        self.offset = 12
        self.room = Room.ENOUGH
        self.corrupt = [PartitionId(b"t" * 16, 3)]
        self.failures: list[ApiError] = []
        self.client = ControllerClient(
            cluster_id="cluster",
            connectors={CONTROLLER: self.network},
            clock=self.clock,
            endpoint=address_of,
            leader=lambda: self.leader,
        )
        self.lifecycle = BrokerLifecycle(
            BrokerIdentity(
                cluster_id="cluster",
                broker_id=4,
                incarnation_id=INCARNATION,
                rack="r1",
                histories=(DirectoryHistory(b"d" * 16, 7, (b"e" * 16,)),),
                directories_marked=True,
            ),
            clock=self.clock,
            controller=self.client,
            timing=Timing(
                heartbeat_interval_ms=2000,
                session_timeout_ms=9000,
                registration_timeout_ms=20_000,
            ),
            own=OwnState(
                endpoints=lambda: [
                    Endpoint(listener="PLAINTEXT", host="b4", port=9092, protocol="PLAINTEXT")
                ],
                metadata_offset=lambda: self.offset,
                corrupt=lambda: self.corrupt,
                held=lambda: {b"d" * 16: [PartitionId(b"t" * 16, 5)]},
                room=lambda: self.room,
            ),
            on_failure=self.failures.append,
        )

    def elect(self, leader_id: int) -> None:
        self.leader = LeaderAndEpoch(leader_id, self.leader.epoch + 1)
        self.lifecycle.on_leader_change()


@gives("cluster")
def with_cluster(scenario: Scenario) -> None:
    """Two controllers and the lifecycle of broker 4."""

    async def main() -> None:
        cluster = Cluster()
        try:
            await scenario(cluster)
        finally:
            await cluster.lifecycle.stop()

    run_virtual(main())


def now() -> float:
    return asyncio.get_running_loop().time()
