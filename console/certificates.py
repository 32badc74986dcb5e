"""The certificates that brokers have refused: each broker knows its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from stele.admin.client_connections import ListenerCertificate
from stele.aio import Admin
from stele.errors import SteleError
from stele.world import RpcError

ANSWER_S: Final = 2.0
"""A broker that hangs takes no longer from a page."""


@dataclass(slots=True)
class RefusedCertificates:
    """What the brokers said."""

    found: list[tuple[int, ListenerCertificate]] = field(default_factory=list)
    """Broker and listener."""
    untold: dict[int, str] = field(default_factory=dict)
    """Brokers that did not answer, and why."""


async def refused_certificates(admin: Admin, broker_ids: Sequence[int]) -> RefusedCertificates:
    """Ask the brokers, all at once."""
    told = RefusedCertificates()

    async def ask(broker_id: int) -> None:
        try:
            async with asyncio.timeout(ANSWER_S):
                answer = await admin.describe_certificates([broker_id])
        except TimeoutError:
            told.untold[broker_id] = f"no answer within {ANSWER_S:g} s"
        except (SteleError, RpcError) as error:
            told.untold[broker_id] = str(error)
        else:
            listeners = answer[broker_id]
            told.found += [(broker_id, each) for each in listeners if each.refusal is not None]

    await asyncio.gather(*map(ask, broker_ids))
    told.found.sort(key=lambda pair: (pair[0], pair[1].listener))
    return told
