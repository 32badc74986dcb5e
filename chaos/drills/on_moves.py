"""A drill on a cluster that changes while it serves: plaintext becomes TLS, users and rules."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from chaos.drills.drill import Drill
from chaos.drills.history import Expectations
from chaos.drills.needs import Need
from chaos.drills.stage import Stage
from chaos.security_move import MoveStep
from stele.aio import Admin
from stele.errors import SteleError
from stele.security.options import SecurityOptions

_REFUSED_MS: Final = 3_000


def _nodes(stage: Stage) -> tuple[int, ...]:
    return (*stage.cluster.controller_ids, *stage.cluster.broker_ids)


async def _roll(stage: Stage, nodes: Sequence[int], step: MoveStep) -> None:
    for node in nodes:
        await stage.take(node, step)


async def plaintext_to_tls(stage: Stage) -> None:
    await stage.steady()
    await _roll(stage, _nodes(stage), MoveStep.OPEN)
    stage.step("note", "make users and access rules")
    await stage.administer(stage.cluster.move.secrets.introduce_users)
    await stage.move_clients()
    await _roll(stage, stage.cluster.broker_ids, MoveStep.USE)
    await _roll(stage, _nodes(stage), MoveStep.CLOSE)
    await _nothing_is_left(stage)


async def _nothing_is_left(stage: Stage) -> None:
    """Raises SteleError if somebody comes in without TLS, or without a user."""
    for node in _nodes(stage):
        for port in stage.cluster.move.old_ports(node):
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                continue
            writer.close()
            raise SteleError(f"{stage.name(node)} still listens on port {port}")
    trusted = str(stage.cluster.secrets.certificates.truststore)
    servers = stage.cluster.bootstrap_servers
    strangers: tuple[SecurityOptions, ...] = (
        {},
        {"security_protocol": "SSL", "ssl_truststore_location": trusted},
    )
    for how in strangers:
        admin = Admin(servers, default_api_timeout_ms=_REFUSED_MS, on_wait=lambda _: None, **how)
        try:
            await admin.list_topics()
        except SteleError as error:
            stage.step("note", f"a client without a user is refused: {error}")
        else:
            raise SteleError("a client came in without a user")
        finally:
            await admin.close()


DRILLS: Final = (
    Drill(
        name="plaintext-to-tls",
        title="A plaintext cluster moves to TLS",
        what="Node by node: TLS, users and access rules come, plaintext goes. Nobody waits long.",
        course=plaintext_to_tls,
        expectations=Expectations(
            write_outage_ms=3_000, read_outage_ms=4_000, recovery_ms=20_000, elections=3
        ),
        needs=frozenset({Need.MOVE}),
    ),
)
