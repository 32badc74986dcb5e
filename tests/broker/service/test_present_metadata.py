"""Questions that need the present metadata: how long a broker waits for them, and when it refuses
to answer."""

from __future__ import annotations

import asyncio

import pytest

from broker.service.metadata import present_image
from metadata.image import MetadataImage
from stele.errors import ApiError, ErrorCode
from stele.wire.v1.controller_pb2 import ReadIndexResponse
from tests.support.broker_apis import CONTROLLER, Edges
from tests.support.worlds import virtual
from world.network import Peer

PATIENCE_S = 4.0


def has_committed(edges: Edges, metadata_offset: int, *, after_s: float = 0.0) -> None:
    """What the active controller says, and how long its answer takes."""

    async def read_index(payload: bytes, _: Peer) -> bytes:
        await asyncio.sleep(after_s)
        return ReadIndexResponse(metadata_offset=metadata_offset).SerializeToString()

    edges.network.services[CONTROLLER].unary["/stele.v1.Controller/ReadIndex"] = read_index


async def asked(
    edges: Edges, *, min_offset: int = 0, linearizable: bool = False
) -> tuple[MetadataImage | ErrorCode, float]:
    """The image or the error, and how long that took."""
    began = asyncio.get_running_loop().time()
    found: MetadataImage | ErrorCode
    try:
        found = await present_image(
            edges.context,
            min_offset=min_offset,
            linearizable=linearizable,
            patience_s=PATIENCE_S,
        )
    except ApiError as error:
        found = error.code
    return found, asyncio.get_running_loop().time() - began


@virtual
async def test_who_is_up_to_date_answers_at_once() -> None:
    edges = Edges()
    offset = edges.publisher.offset
    has_committed(edges, offset)
    for linearizable in (False, True):
        image, took_s = await asked(edges, min_offset=offset, linearizable=linearizable)
        assert isinstance(image, MetadataImage)
        assert took_s < 0.1


@pytest.mark.parametrize("linearizable", [False, True])
@virtual
async def test_metadata_that_are_missing_are_waited_for_and_then_not_made_up(
    *, linearizable: bool
) -> None:
    edges = Edges()
    offset = edges.publisher.offset + 1
    has_committed(edges, edges.publisher.offset)  # the caller knows more than this controller
    found, took_s = await asked(edges, min_offset=offset, linearizable=linearizable)
    assert found is ErrorCode.BROKER_NOT_AVAILABLE
    assert took_s == pytest.approx(PATIENCE_S, abs=0.1)


@virtual
async def test_a_linearizable_read_needs_what_the_controller_has_committed() -> None:
    edges = Edges()
    has_committed(edges, edges.publisher.offset + 1, after_s=3.0)
    found, took_s = await asked(edges, linearizable=True)
    assert found is ErrorCode.BROKER_NOT_AVAILABLE
    assert took_s == pytest.approx(PATIENCE_S, abs=0.1), "the patience is that of both waits"


@virtual
async def test_a_broker_without_a_lease_answers_from_linearizable_reads_alone() -> None:
    edges = Edges()
    edges.lease = False
    has_committed(edges, edges.publisher.offset)
    found, _ = await asked(edges)
    assert found is ErrorCode.BROKER_NOT_AVAILABLE
    found, _ = await asked(edges, linearizable=True)
    assert isinstance(found, MetadataImage)


@virtual
async def test_a_deposed_broker_answers_linearizable_reads_when_it_knows_who_leads() -> None:
    edges = Edges()
    has_committed(edges, edges.publisher.offset)
    edges.deposed = True
    found, took_s = await asked(edges, linearizable=True)
    assert found is ErrorCode.BROKER_NOT_AVAILABLE
    assert took_s == pytest.approx(PATIENCE_S, abs=0.1)

    asking = asyncio.create_task(asked(edges, linearizable=True))
    await asyncio.sleep(PATIENCE_S / 2)
    edges.deposed = False
    edges.add_topic("orders", [[2]])  # what is applied next
    found, took_s = await asking
    assert isinstance(found, MetadataImage)
    assert took_s == pytest.approx(PATIENCE_S / 2, abs=0.1)
