"""stele.v1.Log: records for clients that have nothing but the .proto."""

from __future__ import annotations

from broker.gateway.gateway import Gateway
from broker.grpc.log_publish import PublishOutlet
from broker.grpc.log_subscribe import SubscribeOutlet
from runtime.authorization.caller import grpc_caller
from stele.world import Stream
from world.network import Peer, Service


class LogService:
    """The service as it is given to those who came in over one named listener."""

    def __init__(self, gateway: Gateway, listener: str) -> None:
        self._gateway = gateway
        self._listener = listener

    def service(self) -> Service:
        return Service(
            streams={
                "/stele.v1.Log/Publish": self._publish,
                "/stele.v1.Log/Subscribe": self._subscribe,
            }
        )

    async def _publish(self, stream: Stream, peer: Peer) -> None:
        outlet = PublishOutlet(stream)
        publication = self._gateway.publication(grpc_caller(self._listener, peer), outlet)
        outlet.serves(publication)
        with self._gateway.publications.admitted(publication):
            await publication.run()

    async def _subscribe(self, stream: Stream, peer: Peer) -> None:
        caller = grpc_caller(self._listener, peer)
        subscription = self._gateway.subscription(caller, SubscribeOutlet(stream))
        with self._gateway.subscriptions.admitted(subscription):
            await subscription.run()
