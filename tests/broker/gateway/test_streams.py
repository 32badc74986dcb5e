"""How many streams there may be, and how they end."""

from __future__ import annotations

import asyncio

import pytest

from broker.gateway.streams import Streams
from stele.world import RpcCode, RpcError
from tests.support.worlds import virtual


class FakeStream:
    """Is busy for so long."""

    def __init__(self, busy_s: float = 0.0) -> None:
        self._busy_s = busy_s
        self.ended_by: RpcError | None = None
        self.ended_at_s = -1.0

    async def idle(self) -> None:
        await asyncio.sleep(self._busy_s)

    async def end(self, why: RpcError) -> None:
        self.ended_by = why
        self.ended_at_s = asyncio.get_running_loop().time()


def test_a_stream_too_many_is_refused_until_another_one_ends() -> None:
    streams = Streams("Publish", 2)
    with streams.admitted(FakeStream()):
        with streams.admitted(FakeStream()):
            assert len(streams) == 2
            with pytest.raises(RpcError) as caught, streams.admitted(FakeStream()):
                pass
            assert caught.value.code is RpcCode.RESOURCE_EXHAUSTED
            assert caught.value.info is not None
            assert caught.value.info.reason == "POLICY_VIOLATION"
            assert caught.value.info.retry_after_ms is not None
        with streams.admitted(FakeStream()):
            assert len(streams) == 2
    assert len(streams) == 0


def test_a_stream_that_fails_is_counted_no_more() -> None:
    streams = Streams("Publish", 1)
    with pytest.raises(ZeroDivisionError), streams.admitted(FakeStream()):
        raise ZeroDivisionError
    assert len(streams) == 0


@pytest.mark.parametrize(("busy_s", "ends_at_s"), [(0.0, 0.0), (1.0, 1.0), (9.0, 2.0)])
@virtual
async def test_a_broker_that_stops_waits_for_busy_streams_but_not_for_long(
    busy_s: float, ends_at_s: float
) -> None:
    streams = Streams("Publish", 5)
    stream, other = FakeStream(busy_s), FakeStream()
    with streams.admitted(stream), streams.admitted(other):
        began_s = asyncio.get_running_loop().time()
        await streams.close(2.0)
        for each in (stream, other):
            assert each.ended_by is not None
            assert each.ended_by.code is RpcCode.UNAVAILABLE
            assert each.ended_at_s - began_s == pytest.approx(ends_at_s)
    with pytest.raises(RpcError) as caught, streams.admitted(FakeStream()):
        pass
    assert caught.value.code is RpcCode.UNAVAILABLE
