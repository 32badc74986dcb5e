"""What the holders of delegation tokens are served."""

from __future__ import annotations

from typing import Final, NamedTuple, Self

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Report, Scene
from metadata.delegation_tokens import DelegationToken
from node.node import Node
from world.network import ANONYMOUS

_CLOCK_MS: Final = 2
"""Two readings of a clock that nobody has set differ so much at most from the virtual time."""


class Asked(NamedTuple):
    """A request by a token, when it was sent."""

    broker: SimNode
    token_id: str
    process: Node | None  # of the broker; None: it is not to be judged
    gone: DelegationToken | str | None
    """That its token had expired, or was removed, for this broker. None: neither."""
    clock_ms: int
    """How far the broker's clock is ahead of the virtual time."""


class GoneTokensServeNobody(Law):
    """Nothing succeeds with a token that is gone in every image of the request's lifetime. A
    request by a token counts as a request of the token's owner.

    An image goes by the clock of its broker. If that was set meanwhile, nothing is said about an
    expiry.
    """

    name = "gone tokens serve nobody"
    cadence = Cadence.TOLD
    proof = Proof.CAMPAIGN

    def __init__(self, scene: Scene) -> None:
        self._cluster: SimCluster = scene.cluster
        self._report: Report = scene.report
        self._made_at: dict[str, int] = {}  # the offset of an image that has the token, by its id

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene)

    def made(self, token_id: str) -> None:
        """The creation of a token was answered."""
        self._made_at[token_id] = self._cluster.image.offset

    def asks(self, broker: SimNode, token_id: str) -> Asked:
        """A request by this token is about to be sent to the broker."""
        process = broker.running if broker.broker is not None else None
        clock_ms = broker.machine.clock.time_ms() - round(self._cluster.simulation.now * 1000)
        return Asked(broker, token_id, process, self._gone(broker, token_id), clock_ms)

    def served(self, asked: Asked) -> None:
        """The request was answered, and not by a refusal of the login."""
        self._check_owner(asked)
        if (gone := self._still_gone(asked)) is not None:
            why = gone if isinstance(gone, str) else f"expired at {gone.expiry_ms}"
            self._report(
                f"{asked.broker.host} serves a holder of the token {asked.token_id}, which {why} "
                "before the request"
            )

    def refused(self, asked: Asked) -> None:
        """The request was refused, or had no answer."""
        self._still_gone(asked)

    def _still_gone(self, asked: Asked) -> DelegationToken | str | None:
        if asked.gone is None or asked.process is None or asked.broker.running is not asked.process:
            return None
        now = self.asks(asked.broker, asked.token_id)
        if now.gone != asked.gone:
            return None
        if not isinstance(now.gone, str) and abs(now.clock_ms - asked.clock_ms) > _CLOCK_MS:
            return None
        self.looked += 1
        return now.gone

    def _gone(self, node: SimNode, token_id: str) -> DelegationToken | str | None:
        made_at, broker = self._made_at.get(token_id), node.broker
        if made_at is None or broker is None or broker.image.offset < made_at:
            return None  # the broker may not know it yet
        token = broker.image.delegation_tokens.get(token_id)
        if token is None:
            return "was removed"
        return token if token.is_expired(node.machine.clock.time_ms()) else None

    def _check_owner(self, asked: Asked) -> None:
        broker = asked.broker.broker
        token = self._cluster.image.delegation_tokens.get(asked.token_id)
        if broker is None or token is None:
            return
        for connection in broker.connections.open:
            if connection.client_id != asked.token_id or connection.principal == ANONYMOUS:
                continue
            self.looked += 1
            if connection.principal != token.owner:
                self._report(
                    f"{asked.broker.host} takes a holder of the token {asked.token_id} of "
                    f"{token.owner} for {connection.principal}"
                )
