"""stele.v1.Log: records for clients that have nothing but the .proto."""

from __future__ import annotations

from typing import Any

from broker.gateway.gateway import Gateway
from broker.grpc.log_publish import GrpcPublishOutlet
from broker.grpc.log_subscribe import GrpcSubscribeOutlet
from broker.grpc.messages import unary
from broker.grpc.paced_stream import PacedStream
from runtime.authorization.caller import Caller, grpc_caller
from runtime.config.in_force import in_force
from stele.wire.v1 import log_pb2 as pb
from stele.world import Stream
from world.network import Peer, Service


class LogService:
    """The service for the clients of one named listener."""

    def __init__(self, gateway: Gateway, listener: str) -> None:
        self._gateway = gateway
        self._listener = listener

    def service(self) -> Service:
        methods: dict[str, tuple[Any, Any]] = {
            "CreatePublisher": (pb.CreatePublisherRequest, self._create_publisher),
            "FindPartitions": (pb.FindPartitionsRequest, self._find_partitions),
        }
        return Service(
            unary={
                f"/stele.v1.Log/{name}": unary(self._listener, *method)
                for name, method in methods.items()
            },
            streams={
                "/stele.v1.Log/Publish": self._publish,
                "/stele.v1.Log/Subscribe": self._subscribe,
            },
        )

    async def _publish(self, stream: Stream, peer: Peer) -> None:
        caller = grpc_caller(self._listener, peer)
        quotas = self._gateway.context.quotas
        outlet = GrpcPublishOutlet(PacedStream(stream, quotas, caller, counts_sent=False))
        publication = self._gateway.publication(caller, outlet)
        outlet.serves(publication)
        with self._gateway.publications.admitted(publication):
            await publication.run()

    async def _subscribe(self, stream: Stream, peer: Peer) -> None:
        caller = grpc_caller(self._listener, peer)
        quotas = self._gateway.context.quotas
        paced = PacedStream(stream, quotas, caller, counts_sent=True)
        subscription = self._gateway.subscription(caller, GrpcSubscribeOutlet(paced))
        with self._gateway.subscriptions.admitted(subscription):
            await subscription.run()

    async def _create_publisher(
        self, caller: Caller, request: pb.CreatePublisherRequest
    ) -> pb.CreatePublisherResponse:
        publisher_id = await self._gateway.create_publisher(caller)
        context = self._gateway.context
        config = in_force(context.config, context.image(), context.broker_id)
        return pb.CreatePublisherResponse(
            publisher_id=publisher_id, expiration_ms=config.producer_id_expiration_ms
        )

    async def _find_partitions(
        self, caller: Caller, request: pb.FindPartitionsRequest
    ) -> pb.FindPartitionsResponse:
        count, partitions = await self._gateway.find_partitions(caller, request.topic, request.keys)
        return pb.FindPartitionsResponse(partition_count=count, partitions=partitions)
