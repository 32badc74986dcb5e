"""A principal loses a right, and uses it at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from chaos.sim.cluster.cluster import GRPC_PORT
from chaos.sim.laws.own_denials import USURPER
from chaos.sim.work.access import AccessLoad
from chaos.sim.work.site import Site
from chaos.sim.work.work import Work
from chaos.sim.world.network import SimNetwork
from metadata.acl import Operation, PatternType, Permission, ResourceType
from runtime.administration.acls import filter_message
from stele.addresses import Address
from stele.admin.acls import CLUSTER_NAME, Acl, AclFilter
from stele.admin.admin import Admin
from stele.errors import ErrorCode, SteleError
from stele.wire.v1.admin_pb2 import DeleteAclsRequest, DeleteAclsResponse
from stele.world import Channel, RpcError

_ALLOWED: Final = Acl(USURPER, "ALTER", "CLUSTER", CLUSTER_NAME)
_DENIED: Final = Acl(USURPER, "ALTER", "CLUSTER", CLUSTER_NAME, permission="DENY")
_DENIALS: Final = AclFilter(principal=USURPER, permission="DENY")
_TRIES: Final = 3
_WITHIN_S: Final = 0.03  # some times what a change takes


class Usurpers(Work):
    """``chaos.sim.laws.own_denials`` judges what the principal achieves."""

    name = "usurper"

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._pause_s = site.load.part(AccessLoad).pause_s
        self._rng = site.rngs.of("usurper")
        self._hosts = [node.host for node in site.cluster.brokers.values()]

    def start(self) -> list[Coroutine[Any, Any, None]]:
        return [self._race()] if self._pause_s else []

    async def _race(self) -> None:
        network = self.site.cluster.client_world.network
        assert isinstance(network, SimNetwork)
        una = network.identified(USURPER)
        async with self.site.admin() as admin:
            while not self.site.is_calm():
                await self.site.pause(self._rng, self._pause_s)
                channel = una.channel(Address(self._rng.choice(self._hosts), GRPC_PORT))
                try:
                    await admin.create_acls([_ALLOWED])
                    tries = [self._try(channel) for _ in range(_TRIES)]
                    await asyncio.gather(self._deny(admin), *tries)
                    await admin.delete_acls([_DENIALS])
                except SteleError:
                    self.counts["rights that were not given"] += 1
                finally:
                    await channel.close()

    async def _deny(self, admin: Admin) -> None:
        await asyncio.sleep(self._rng.uniform(0.0, _WITHIN_S / 2))
        try:
            await admin.create_acls([_DENIED])
        except SteleError:
            self.counts["removals of a right that failed"] += 1
        else:
            self.counts["removals of a right"] += 1

    async def _try(self, channel: Channel) -> None:
        await asyncio.sleep(self._rng.uniform(0.0, _WITHIN_S))
        denials = filter_message(
            ResourceType.ANY, None, PatternType.ANY, USURPER, None, Operation.ANY, Permission.DENY
        )
        request = DeleteAclsRequest(filters=[denials])
        try:
            told = await channel.call(
                "/stele.v1.Admin/DeleteAcls", request.SerializeToString(), timeout_s=5.0
            )
        except RpcError:
            self.counts["uses of a right without an answer"] += 1
            return
        answer = DeleteAclsResponse.FromString(told)
        is_denied = answer.error == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        self.counts["uses of a right denied" if is_denied else "uses of a right"] += 1
