"""An administrator who allows and denies, and a client that tries what it may do."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from chaos.sim.cluster.cluster import GRPC_PORT
from chaos.sim.laws.access import PREFIX
from chaos.sim.work.load import Part
from chaos.sim.work.site import Site
from chaos.sim.work.work import Work
from chaos.sim.world.network import SimNetwork
from stele.addresses import Address
from stele.admin.acls import Acl
from stele.admin.admin import Admin
from stele.errors import ErrorCode, SteleError
from stele.wire.v1.groups_pb2 import DescribeGroupsRequest, DescribeGroupsResponse
from stele.world import RpcError

PRINCIPAL: Final = "User:ann"

_SETTINGS: Final = (
    ("authorizer.class.name", "stele"),
    ("super.users", "User:ANONYMOUS;User:node"),  # the nodes, and all other work
)
_NAMES: Final = 3
"""So many of the newest names are asked about."""


@dataclass(frozen=True, slots=True)
class AccessLoad(Part):
    """Whether the cluster has an authorizer, and how often its rules change."""

    label: ClassVar = "access"

    pause_s: float = 0.0  # 0: there is no authorizer
    settings: tuple[tuple[str, str], ...] = ()

    @classmethod
    def draw(cls, rng: random.Random) -> AccessLoad:
        pause_s = rng.choice([0.0, 0.0, 0.3, 1.0])
        return cls(pause_s, _SETTINGS) if pause_s else cls()

    @property
    def is_there(self) -> bool:
        return self.pause_s > 0


class AccessWork(Work):
    """Rules change under load. ``chaos.sim.laws.access`` judges who may describe which group."""

    name = "access"
    load = AccessLoad

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._load = site.load.part(AccessLoad)
        self._rng = site.rngs.of("access: rules")
        self._names: list[str] = []

    def start(self) -> list[Coroutine[Any, Any, None]]:
        return [self._administrate(), self._try()] if self._load.is_there else []

    async def _administrate(self) -> None:
        async with self.site.admin() as admin:
            number = 0
            while not self.site.is_calm():
                number += 1
                await self._allow_and_deny(admin, f"{PREFIX}{number}")

    async def _allow_and_deny(self, admin: Admin, name: str) -> None:
        """Nothing is denied of which it is unknown whether it was allowed: the law goes by the
        order."""
        self._names = [*self._names, name][-_NAMES:]
        for permission in ("ALLOW", "DENY"):
            await self.site.pause(self._rng, self._load.pause_s)
            rule = Acl(PRINCIPAL, "DESCRIBE", "GROUP", name, permission=permission)
            try:
                await admin.create_acls([rule])
            except SteleError:
                self.counts["changes of rules that failed"] += 1
                return
            self.counts["changes of rules"] += 1

    async def _try(self) -> None:
        rng = self.site.rngs.of("access: tries")
        network = self.site.cluster.client_world.network
        assert isinstance(network, SimNetwork)
        ann = network.identified(PRINCIPAL)
        hosts = [node.host for node in self.site.cluster.brokers.values()]
        number = 0
        while not self.site.is_done():
            await asyncio.sleep(rng.uniform(0.0, self._load.pause_s / 4))
            if not self._names:
                continue
            number += 1
            # The law tells requests apart by their content.
            request = DescribeGroupsRequest(groups=[rng.choice(self._names), f"try-{number}"])
            channel = ann.channel(Address(rng.choice(hosts), GRPC_PORT))
            try:
                told = await channel.call(
                    "/stele.v1.Groups/DescribeGroups", request.SerializeToString(), timeout_s=5.0
                )
            except RpcError:
                self.counts["tries without an answer"] += 1
                continue
            finally:
                await channel.close()
            group, _ = DescribeGroupsResponse.FromString(told).groups
            is_denied = group.error == ErrorCode.GROUP_AUTHORIZATION_FAILED
            self.counts["tries denied" if is_denied else "tries allowed"] += 1
