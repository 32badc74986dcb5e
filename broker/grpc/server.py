"""The broker's gRPC listeners: what is served on each of them, bound late, closed at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from broker.gateway.gateway import Gateway
from broker.grpc.admin import AdminService
from broker.grpc.groups import GroupsService
from broker.grpc.log import LogService
from broker.grpc.transactions import TransactionsService
from broker.service.context import BrokerContext
from runtime.authorization.nodes import for_nodes, when_loaded
from runtime.config.bind_error import bind_error
from runtime.logins.grpc import GrpcLogins
from runtime.logins.listener import ListenerLogins
from runtime.metrics.health import ServingStatus
from runtime.tls.listeners import TlsListeners
from stele.addresses import Address
from world.network import Listener, Service
from world.world import World

_FOR_CLIENTS: Final = ("stele.v1.Admin", "stele.v1.Groups", "stele.v1.Log", "stele.v1.Transactions")
_FOR_NODES: Final = ("stele.v1.BrokerControl",)

DRAIN_S: Final = 1.0
"""A broker that stops waits this long for calls that it has taken."""


class GrpcServer:
    """All gRPC listeners of one broker."""

    def __init__(self, world: World, tls: TlsListeners) -> None:
        self._world = world
        self._tls = tls
        self._listeners: dict[str, Listener] = {}
        self._ports: dict[str, int] = {}

    @property
    def ports(self) -> dict[str, int]:
        """The bound port of each listener, by its name. They stay known after the end."""
        return dict(self._ports)

    async def bind(
        self,
        context: BrokerContext,
        gateway: Gateway,
        of_nodes: Service,
        logins: Mapping[str, ListenerLogins],
        *,
        is_serving: Callable[[], bool],
        is_safe_to_restart: Callable[[], bool],
    ) -> None:
        """Listen on all of ``grpc.listeners``. ``of_nodes``: what nodes of the cluster may call.
        The functions are what gRPC's health service tells. Raises ConfigError in one line naming
        the key."""
        config = context.config
        health = ServingStatus(_FOR_CLIENTS, _FOR_NODES, is_serving, is_safe_to_restart)
        for address in config.grpc_listeners:
            service = self._service(context, gateway, of_nodes, logins, address.name)
            try:
                listener = await self._world.network.serve(
                    Address(address.host, address.port),
                    service,
                    health=health,
                    tls=self._tls.of(address.name),
                    max_connections=config.connections.listener_max.get(address.name),
                )
            except OSError as error:
                raise bind_error("grpc.listeners", address, error) from error
            self._listeners[address.name] = listener
            self._ports[address.name] = listener.port

    async def close(self, grace_s: float) -> None:
        """Take no more calls, and give those under way this time."""
        listeners, self._listeners = self._listeners, {}
        await asyncio.gather(*(each.close(grace_s=grace_s) for each in listeners.values()))

    def _service(
        self,
        context: BrokerContext,
        gateway: Gateway,
        of_nodes: Service,
        logins: Mapping[str, ListenerLogins],
        name: str,
    ) -> Service:
        """The services of a listener. They tell clients the addresses of this listener."""
        of_clients = Service()
        of_clients.include(AdminService(context, name).service())
        of_clients.include(GroupsService(context, name).service())
        of_clients.include(TransactionsService(context, name).service())
        of_clients.include(LogService(gateway, name).service())
        service = when_loaded(of_clients, context.authorizer)
        service.include(for_nodes(of_nodes, context.authorizer, name))
        if name not in logins:
            return service
        world = self._world
        return GrpcLogins(name, logins[name], world.clock, world.rng).protect(service)
