"""Delegation tokens: made, renewed, expired and removed, while clients work by them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from chaos.sim.laws.held_tokens import Asked, GoneTokensServeNobody
from chaos.sim.work.access import AccessLoad
from chaos.sim.work.crowds import CrowdLoad
from chaos.sim.work.load import Load, Part
from chaos.sim.work.site import Site
from chaos.sim.work.work import Work
from chaos.sim.world.network import SimNetwork
from stele.addresses import Address, SecurityProtocol
from stele.admin.admin import Admin
from stele.admin.delegation_tokens import DelegationToken
from stele.cluster.kafka_connection import KafkaConnection
from stele.errors import SteleError
from stele.security.client_security import ClientSecurity, SaslCredentials
from stele.wire.kafka.messages import metadata
from stele.wire.v1.admin_pb2 import DescribeClusterRequest
from stele.world import RpcCode, RpcError

_KAFKA_PORT, _GRPC_PORT = 9094, 9194
_MECHANISM: Final = "SCRAM-SHA-256"
_REQUESTER, _OTHER_OWNER = "User:tess", "User:olga"
_LIFE_MS: Final = (4_000, 12_000, 40_000)
_PERIODS_MS: Final = (500, 3_000, 20_000, 2**50)

_SETTINGS: Final = (
    ("listeners", f"PLAINTEXT://{{host}}:9092,LOGINS://{{host}}:{_KAFKA_PORT}"),
    ("grpc.listeners", f"PLAINTEXT://{{host}}:9192,LOGINS://{{host}}:{_GRPC_PORT}"),
    (
        "listener.security.protocol.map",
        "PLAINTEXT:PLAINTEXT,LOGINS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    ),
    ("inter.broker.listener.name", "PLAINTEXT"),
    ("listener.name.logins.sasl.enabled.mechanisms", _MECHANISM),
    ("delegation.token.secret.key", "secret"),
    ("delegation.token.max.lifetime.ms", "30000"),
    ("delegation.token.expiry.time.ms", "8000"),
    ("delegation.token.expiry.check.interval.ms", "3000"),
)
_NAMES: Final = 3
"""So many of the newest tokens are held. Some of them are gone."""

_PATIENCE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class TokenLoad(Part):
    """Whether there are tokens, and how often they change."""

    label: ClassVar = "tokens"

    pause_s: float = 0.0  # 0: there are none
    settings: tuple[tuple[str, str], ...] = ()

    @classmethod
    def draw(cls, rng: random.Random) -> TokenLoad:
        """A quarter of the runs have them."""
        pause_s = rng.choice([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.3, 1.0])
        return cls(pause_s, _SETTINGS) if pause_s else cls()

    def change(self, load: Load) -> Load:
        """A run with a crowd has no tokens. Tokens need a second listener, for the nodes. A crowd
        does not reach the nodes' listener, and the law of crowds does not expect that."""
        if not load.part(CrowdLoad).is_there:
            return load
        parts = [TokenLoad() if isinstance(each, TokenLoad) else each for each in load.parts]
        return replace(load, parts=tuple(parts))

    @property
    def is_there(self) -> bool:
        return self.pause_s > 0


class TokenWork(Work):
    """``chaos.sim.laws.held_tokens`` judges what holders are served, and
    ``chaos.sim.laws.token_bounds`` the tokens themselves."""

    name = "tokens"
    load = TokenLoad

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._pause_s = site.load.part(TokenLoad).pause_s
        self._has_authorizer = site.load.part(AccessLoad).is_there
        self._law = site.law(GoneTokensServeNobody)
        network = site.cluster.client_world.network
        assert isinstance(network, SimNetwork)
        self._network = network
        self._tokens: list[DelegationToken] = []

    def start(self) -> list[Coroutine[Any, Any, None]]:
        if not self.site.load.part(TokenLoad).is_there:
            return []
        return [self._administrate(), self._hold(self._over_kafka), self._hold(self._over_grpc)]

    def goes_on(self, least: int) -> Callable[[], bool]:
        """A token that is valid lets its holder in. Wall clocks that the storm has set stay wrong:
        with such a clock a broker may hold every token for expired, as it must."""
        if not self._pause_s or self._clocks_differ():
            return lambda: True
        before = self.counts["requests by tokens"]
        return lambda: self.counts["requests by tokens"] > before

    def _clocks_differ(self) -> bool:
        clocks = [each.machine.clock.time_ms() for each in self.site.cluster.nodes.values()]
        return max(clocks) - min(clocks) > max(_LIFE_MS) / 2

    # -------------------------------------------------------------------- the owner

    async def _administrate(self) -> None:
        rng = self.site.rngs.of("tokens: changes")
        async with self.site.admin(self._network.identified(_REQUESTER)) as admin:
            while not self.site.is_done():
                await self.site.pause(rng, self._pause_s)
                try:
                    await self._change(admin, rng)
                except SteleError:
                    self.counts["changes of tokens that failed"] += 1
                else:
                    self.counts["changes of tokens"] += 1

    async def _change(self, admin: Admin, rng: random.Random) -> None:
        kind = rng.choice(["create", "create", "renew", "expire", "remove"])
        if kind == "create" or not self._tokens:
            await self._create(admin, rng)
            return
        token = rng.choice(self._tokens)
        if kind == "renew":
            period_ms = rng.choice(_PERIODS_MS)
            await admin.renew_delegation_token(token.token_id, renew_period_ms=period_ms)
        elif kind == "expire":
            period_ms = rng.choice(_PERIODS_MS)
            await admin.expire_delegation_token(token.token_id, expiry_period_ms=period_ms)
        else:
            await admin.expire_delegation_token(token.token_id)

    async def _create(self, admin: Admin, rng: random.Random) -> None:
        """Rules would forbid a token of somebody else."""
        owner = _REQUESTER
        if not self._has_authorizer:
            owner = rng.choice([_REQUESTER, _OTHER_OWNER])
        token = await admin.create_delegation_token(
            owner=owner, renewers=[_REQUESTER], max_lifetime_ms=rng.choice(_LIFE_MS)
        )
        if (token.owner, token.requester) != (owner, _REQUESTER):
            self.site.report(f"a token for {owner} is {token}")
        self._law.made(token.token_id)
        self._tokens = [*self._tokens, token][-_NAMES:]

    # -------------------------------------------------------------------- the holders

    async def _hold(
        self, serve: Callable[[DelegationToken, int, random.Random], Coroutine[Any, Any, None]]
    ) -> None:
        rng = self.site.rngs.of(f"tokens: {serve.__name__}")
        while not self.site.is_done():
            await asyncio.sleep(rng.uniform(0.2, 2.0))
            if self._tokens:
                broker = rng.choice(sorted(self.site.cluster.brokers))
                await serve(rng.choice(self._tokens), broker, rng)

    def _secured(self, token: DelegationToken) -> SimNetwork:
        credentials = SaslCredentials(
            mechanism=_MECHANISM,
            username=token.token_id,
            password=token.password,
            is_delegation_token=True,
        )
        security = ClientSecurity(protocol=SecurityProtocol.SASL_PLAINTEXT, sasl=credentials)
        return self._network.secured(security)

    def _served(self, asked: Asked) -> None:
        self.counts["requests by tokens"] += 1
        self._law.served(asked)

    async def _over_kafka(self, token: DelegationToken, broker: int, rng: random.Random) -> None:
        """Log in, and ask again and again until the connection ends."""
        node = self.site.cluster.brokers[broker]
        asked = self._law.asks(node, token.token_id)
        connection = None
        try:
            async with asyncio.timeout(_PATIENCE_S):
                connection = await KafkaConnection.open(
                    self._secured(token), node.host, _KAFKA_PORT, token.token_id
                )
            self._served(asked)
            for _ in range(rng.randint(1, 20)):
                asked = self._law.asks(node, token.token_id)
                await connection.request(
                    metadata.API, 12, metadata.MetadataRequest(topics=[]), timeout_s=_PATIENCE_S
                )
                self._served(asked)
                await asyncio.sleep(rng.uniform(0.05, 0.5))
        except (SteleError, OSError):
            self._law.refused(asked)
            self.counts["connections by tokens that ended"] += 1
        finally:
            if connection is not None:
                connection.close()

    async def _over_grpc(self, token: DelegationToken, broker: int, rng: random.Random) -> None:
        node = self.site.cluster.brokers[broker]
        channel = self._secured(token).channel(Address(node.host, _GRPC_PORT))
        request = DescribeClusterRequest().SerializeToString()
        asked = self._law.asks(node, token.token_id)
        try:
            for _ in range(rng.randint(1, 20)):
                asked = self._law.asks(node, token.token_id)
                await channel.call(
                    "/stele.v1.Admin/DescribeCluster", request, timeout_s=_PATIENCE_S
                )
                self._served(asked)
                await asyncio.sleep(rng.uniform(0.05, 0.5))
        except RpcError as error:
            self._law.refused(asked)
            if error.code is RpcCode.UNAUTHENTICATED:
                self.counts["calls by tokens that were refused"] += 1
        finally:
            await channel.close()
