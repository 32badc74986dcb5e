"""The clients with a Kafka connection to this broker, and what each connection has done."""

from __future__ import annotations

import asyncio
import heapq
from typing import Final, NamedTuple

from broker.service.context import BrokerContext
from runtime.authorization.authorizer import CLUSTER, Operation, refusal
from runtime.authorization.caller import NODE_ITSELF, Caller
from runtime.kafka.connection import KafkaServerProtocol
from stele.errors import ApiError, ErrorCode
from storage.turns import in_slices

PAGE_MAX: Final = 1_000


class Page(NamedTuple):
    """Some connections, in the order of their coming."""

    connections: list[KafkaServerProtocol]
    next: str
    """Where the next page begins; empty: this is the last one."""


async def describe(
    context: BrokerContext, caller: Caller, *, after: str, client_id: str | None
) -> Page:
    """The connections after a place that a page has named (empty: from the first on), with this
    client id (None: with any). Those of this broker to itself are left out.

    Raises ApiError CLUSTER_AUTHORIZATION_FAILED, and INVALID_REQUEST for a place that none named.
    """
    why = refusal(context.authorizer, caller, Operation.DESCRIBE, CLUSTER)
    if why is not None:
        raise why
    place = _place(after)

    def wanted(each: KafkaServerProtocol) -> KafkaServerProtocol | None:
        is_wanted = (
            each.principal != NODE_ITSELF
            and (client_id is None or each.client_id == client_id)
            and _key(each) > place
        )
        return each if is_wanted else None

    found = [each for each in await in_slices(wanted, context.connections()) if each is not None]
    page = heapq.nsmallest(PAGE_MAX, found, key=_key)
    is_last = len(found) <= PAGE_MAX
    return Page(page, "" if is_last else _text(page[-1]))


def now_s() -> float:
    """By the clock of the connections."""
    return asyncio.get_running_loop().time()


def _key(connection: KafkaServerProtocol) -> tuple[float, str]:
    return connection.opened_s, connection.peer


def _text(connection: KafkaServerProtocol) -> str:
    return f"{connection.opened_s!r} {connection.peer}"


def _place(text: str) -> tuple[float, str]:
    if not text:
        return -1.0, ""
    opened_s, _, peer = text.partition(" ")
    try:
        return float(opened_s), peer
    except ValueError:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"no page of connections begins at {text!r}"
        ) from None
