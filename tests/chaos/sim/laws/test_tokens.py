"""The laws of delegation tokens."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chaos.sim.laws.held_tokens import GoneTokensServeNobody
from chaos.sim.laws.scene import Scene
from chaos.sim.laws.token_bounds import TokensKeepTheirBounds
from metadata.delegation_tokens import DelegationToken, DelegationTokens
from metadata.image import EMPTY, MetadataImage
from tests.support.tokens import token

HELD = token("id", expiry_ms=100)
NOW_S = 0.05


def image(*tokens: DelegationToken, offset: int = 10) -> MetadataImage:
    by_id = DelegationTokens({each.token_id: each for each in tokens})
    return replace(EMPTY, delegation_tokens=by_id, offset=offset)


class Bench:
    """One broker, whose metadata and clock a test sets."""

    def __init__(self) -> None:
        self.broken: list[str] = []
        self.now_ms = 50
        clock = SimpleNamespace(time_ms=lambda: self.now_ms)
        self.connections = SimpleNamespace(open=[])
        self.broker = SimpleNamespace(image=image(HELD), connections=self.connections)
        self.node: Any = SimpleNamespace(
            host="b1",
            broker=self.broker,
            running=object(),
            machine=SimpleNamespace(clock=clock),
        )
        self.simulation = SimpleNamespace(now=NOW_S)
        self.cluster = SimpleNamespace(image=image(HELD), simulation=self.simulation)
        scene = SimpleNamespace(cluster=self.cluster, report=self.broken.append)
        self.law = GoneTokensServeNobody(cast(Scene, scene))
        self.law.made("id")

    def served(self, before: MetadataImage, after: MetadataImage | None = None) -> list[str]:
        """What is reported of an answer between these two images."""
        self.broker.image = before
        asked = self.law.asks(self.node, "id")
        self.broker.image = after or before
        self.law.served(asked)
        return self.broken


def test_a_removed_token_serves_nobody() -> None:
    bench = Bench()
    assert not bench.served(image(HELD))
    assert not bench.served(image(HELD), image()), "it was there when the request was sent"
    assert bench.law.looked == 0
    (said,) = bench.served(image())
    assert "which was removed before the request" in said
    bench.law.refused(bench.law.asks(bench.node, "id"))
    assert (len(bench.broken), bench.law.looked) == (1, 2)


def test_a_broker_that_does_not_know_a_token_yet_is_not_judged() -> None:
    bench = Bench()
    assert not bench.served(image(offset=9))
    bench.node.broker = None
    assert not bench.served(image())
    assert bench.law.looked == 0


def test_another_process_is_not_judged() -> None:
    bench = Bench()
    bench.broker.image = image()
    asked = bench.law.asks(bench.node, "id")
    bench.node.running = object()
    bench.law.served(asked)
    assert not bench.broken


def test_an_expired_token_serves_nobody() -> None:
    bench = Bench()
    bench.now_ms, bench.simulation.now = 100, 0.1
    assert not bench.served(image(HELD)), "it is valid until the end of its last millisecond"
    bench.now_ms, bench.simulation.now = 101, 0.101
    assert not bench.served(image(HELD), image(token("id", expiry_ms=500))), "it was renewed"
    assert "which expired at 100" in bench.served(image(HELD))[0]


@pytest.mark.parametrize("jump_ms", [-3, 3])
def test_a_clock_that_was_set_meanwhile_says_nothing(jump_ms: int) -> None:
    bench = Bench()
    bench.now_ms = 200
    asked = bench.law.asks(bench.node, "id")
    bench.now_ms += jump_ms
    bench.law.served(asked)
    assert not bench.broken


def test_who_is_served_is_the_owner() -> None:
    bench = Bench()
    others = [("id", "User:ANONYMOUS"), ("other", "User:bob"), ("id", "User:ann")]
    bench.connections.open = [
        SimpleNamespace(client_id=name, principal=principal) for name, principal in others
    ]
    assert not bench.served(image(HELD))
    assert bench.law.looked == 1
    bench.connections.open.append(SimpleNamespace(client_id="id", principal="User:rita"))
    (said,) = bench.served(image(HELD))
    assert "of User:ann for User:rita" in said


# --------------------------------------------------------------------------- the bounds


def looks(*images: MetadataImage) -> list[str]:
    broken: list[str] = []
    law = TokensKeepTheirBounds()
    for each in images:
        running = SimpleNamespace(controller=SimpleNamespace(image=each))
        cluster = SimpleNamespace(controllers={1: SimpleNamespace(running=running)})
        law.look(cast(Any, cluster), broken.append)
    return broken


def test_a_renewal_changes_the_expiry_alone() -> None:
    renewed = HELD._replace(expiry_ms=1000)
    assert not looks(image(HELD, offset=1), image(renewed, offset=2), image(offset=3))
    (said,) = looks(image(HELD, offset=1), image(HELD._replace(expiry_ms=1001), offset=2))
    assert "beyond its longest life" in said
    for changed in ({"owner": "User:bob"}, {"requester": "User:bob"}, {"max_ms": 2000}):
        (said,) = looks(image(HELD, offset=1), image(HELD._replace(**changed), offset=2))
        assert "went from" in said


def test_a_removed_token_does_not_come_back() -> None:
    (said,) = looks(image(HELD, offset=1), image(offset=2), image(HELD, offset=3))
    assert "is there again" in said
