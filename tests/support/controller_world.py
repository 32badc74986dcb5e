"""Controllers on a fake quorum, and brokers that only send heartbeats, simulated."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from chaos.sim.world.process import Process
from chaos.sim.world.simulation import Simulation
from controller.service import ControllerService
from metadata.features import supported_ranges
from raft.api import CommittedBatch, LeaderAndEpoch, NotLeaderError
from raft.quorum import FeatureLevels
from runtime.authorization.acl_authorizer import AclAuthorizer
from runtime.authorization.authorizer import Authorizer
from runtime.authorization.forwarding import ControllerPort
from runtime.config.node import NodeConfig, from_settings
from security.authorizer.decision import Policy
from stele.addresses import Address
from stele.wire.v1 import controller_pb2 as pb
from stele.world import RpcError, Stream
from storage.errors import StorageError
from tests.support.authorizer import FakeAuthorizer
from tests.support.controller import CLUSTER_ID, endpoints, incarnation
from world.network import Peer, Service

COMMIT_S = 0.002


class FakeQuorum:
    """A quorum without voters. It commits what is proposed a little later, unless told not to."""

    def __init__(self, node_id: int, log: list[CommittedBatch] | None = None) -> None:
        self.node_id = node_id
        self.log = [] if log is None else log
        self.leader = LeaderAndEpoch(None, 0)
        self.held = False
        self.full = False
        self.confirmed: int | None = None  # the read index, if it differs from what is delivered
        self.majority = asyncio.Event()  # whether a majority answers
        self.majority.set()
        self.service: ControllerService | None = None
        self.proposed: list[CommittedBatch] = []
        self._next = 0

    @property
    def high_watermark(self) -> int:
        return self.log[-1].last_offset + 1 if self.log else 0

    @property
    def log_end_offset(self) -> int:
        return self._next

    @property
    def controller_features(self) -> dict[int, tuple[FeatureLevels, ...]]:
        return {}

    def next_offset(self, *, epoch: int) -> int:
        if self.leader != LeaderAndEpoch(self.node_id, epoch):
            raise NotLeaderError(self.leader)
        return self._next

    async def confirm_leadership(self, *, epoch: int) -> int:
        if self.leader != LeaderAndEpoch(self.node_id, epoch):
            raise NotLeaderError(self.leader)
        await self.majority.wait()
        if self.leader != LeaderAndEpoch(self.node_id, epoch):
            raise NotLeaderError(self.leader)
        return self.high_watermark if self.confirmed is None else self.confirmed

    def propose(self, records: Sequence[bytes], *, epoch: int) -> int:
        if self.leader != LeaderAndEpoch(self.node_id, epoch):
            raise NotLeaderError(self.leader)
        if self.full:
            raise StorageError("the disk is full")
        batch = CommittedBatch(self._next, epoch, 0, tuple(records))
        self._next = batch.last_offset + 1
        self.proposed.append(batch)
        asyncio.get_running_loop().call_later(COMMIT_S, self.commit)
        return batch.base_offset

    def commit(self) -> None:
        if self.held or self.service is None:
            return
        batches, self.proposed = self.proposed, []
        self.log += batches
        if batches:
            self.service.on_commit(batches, self.high_watermark)

    def attach(self, service: ControllerService) -> None:
        self.service = service
        service.attach(self)
        service.on_commit(list(self.log), self.high_watermark)
        self._next = self.high_watermark

    def claim(self, epoch: int) -> None:
        assert self.service is not None
        self.leader = LeaderAndEpoch(self.node_id, epoch)
        self._next += 1  # the leader's own record
        self.service.on_claimed(epoch)

    def resign(self, leader_id: int | None = None) -> None:
        assert self.service is not None
        epoch = self.leader.epoch
        self.proposed = []
        self.leader = LeaderAndEpoch(leader_id, epoch + 1)
        self.service.on_resigned(epoch)
        self.service.on_leader_change(self.leader)


def config(node_id: int, **settings: str) -> NodeConfig:
    return from_settings(
        {
            "node.id": str(node_id),
            "process.roles": "controller",
            "controller.quorum.voters": "100@c100:9093,101@c101:9093",
            "inter.broker.listener.name": "PLAINTEXT",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )


class Controller:
    """A controller process with its fake quorum."""

    def __init__(
        self,
        simulation: Simulation,
        node_id: int = 100,
        log: list[CommittedBatch] | None = None,
        *,
        policy: Policy | None = None,
        **settings: str,
    ) -> None:
        """``policy``: callers have the rights of its ACLs, and ``authorizer`` is not asked."""
        self.name = f"c{node_id}"
        self.process: Process = simulation.process(self.name)
        self.quorum = FakeQuorum(node_id, log)
        self.fatal: list[BaseException] = []
        self.authorizer = FakeAuthorizer()
        self.service = ControllerService(
            config(node_id, **settings),
            CLUSTER_ID,
            self.process.world,
            port=ControllerPort(
                self.authorizer if policy is None else self._over_acls(policy), CLUSTER_ID
            ),
            on_fatal=self.fatal.append,
        )

    def _over_acls(self, policy: Policy) -> Authorizer:
        clock = self.process.world.clock
        return AclAuthorizer(policy, lambda: self.service.image.acls, clock)

    async def start(self, *, claim: int | None = 1) -> None:
        await self.process.run(self._start(claim))

    async def _start(self, claim: int | None) -> None:
        self.quorum.attach(self.service)
        await self.process.world.network.serve(
            Address(self.name, 9093), self.service.service().on_listener("CONTROLLER")
        )
        if claim is not None:
            self.quorum.claim(claim)


class StubBroker:
    """A broker process that registers, heartbeats, answers probes, and has no data."""

    def __init__(self, simulation: Simulation, broker_id: int, number: int = 0) -> None:
        self.broker_id = broker_id
        self.name = f"b{broker_id}"
        self.incarnation = incarnation(broker_id, number)
        self.process: Process = simulation.process(self.name)
        self.controller = "c100"
        self.epoch = -1
        self.answers: list[pb.HeartbeatResponse] = []
        self.want_shutdown = False
        self.metadata_offset = 1 << 60  # always caught up
        self.interval_s = 0.5
        self.stream: Stream | None = None

    async def serve(self) -> None:
        probe = Service(unary={"/stele.v1.BrokerControl/Probe": self._probe})
        port = 9192 + self.broker_id
        await self.process.run(self.process.world.network.serve(Address(self.name, port), probe))

    async def _probe(self, payload: bytes, _: Peer) -> bytes:
        return pb.ProbeResponse(
            broker_id=self.broker_id, incarnation_id=self.incarnation
        ).SerializeToString()

    async def call(self, method: str, request: Any, response_type: Any) -> Any:
        return await self.process.run(self._call(method, request, response_type))

    async def _call(self, method: str, request: Any, response_type: Any) -> Any:
        channel = self.process.world.network.channel(Address(self.controller, 9093))
        try:
            payload = await channel.call(method, request.SerializeToString(), timeout_s=5.0)
        finally:
            await channel.close()
        return response_type.FromString(payload)

    async def register(self) -> pb.RegisterBrokerResponse:
        request = pb.RegisterBrokerRequest(
            cluster_id=CLUSTER_ID,
            broker_id=self.broker_id,
            incarnation_id=self.incarnation,
            endpoints=endpoints(self.broker_id, self.name),
            features=supported_ranges(),
        )
        response: pb.RegisterBrokerResponse = await self.call(
            "/stele.v1.Controller/RegisterBroker", request, pb.RegisterBrokerResponse
        )
        if response.error == 0:
            self.epoch = response.broker_epoch
        return response

    async def join(self) -> None:
        """Serve, register, and send heartbeats from now on."""
        await self.serve()
        response = await self.register()
        assert response.error == 0, response
        self.beat()

    def heartbeat(self, sequence: int) -> bytes:
        return pb.HeartbeatRequest(
            broker_id=self.broker_id,
            broker_epoch=self.epoch,
            incarnation_id=self.incarnation,
            metadata_offset=self.metadata_offset,
            want_shutdown=self.want_shutdown,
            sequence=sequence,
        ).SerializeToString()

    def beat(self) -> None:
        """Open a stream and send heartbeats over it until it ends."""
        self.process.start(self._beat())

    async def _beat(self) -> None:
        channel = self.process.world.network.channel(Address(self.controller, 9093))
        stream = self.stream = channel.stream("/stele.v1.Controller/Heartbeat")
        try:
            while True:
                await stream.send(self.heartbeat(len(self.answers)))
                payload = await stream.receive()
                if payload is None:
                    return
                self.answers.append(pb.HeartbeatResponse.FromString(payload))
                await asyncio.sleep(self.interval_s)
        except RpcError:
            pass
        finally:
            await channel.close()
