"""Computing in a helper process."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from collections.abc import Iterator

import pytest

from runtime.real import compute as module
from runtime.real.compute import RealCompute
from stele.wire.compression import Compression, compress
from stele.wire.recompression import recompress
from tests.support.timing import until


@pytest.fixture
def compute() -> Iterator[RealCompute]:
    compute = RealCompute()
    yield compute
    compute.close()


async def test_results_and_errors_come_back(compute: RealCompute) -> None:
    plain = b"records" * 100_000
    packed = compress(Compression.ZSTD, plain)
    call = compute.call
    zstd, none = int(Compression.ZSTD), int(Compression.NONE)
    results = await asyncio.gather(
        call(recompress, zstd, none, None, packed, 1 << 20),
        call(recompress, zstd, none, None, packed, 100),
    )
    assert list(results) == [(len(plain), plain), (len(plain), b"")]
    first = compute.process_id
    with pytest.raises(OSError, match="not zstd data"):
        await call(recompress, zstd, none, None, b"xxx", 100)
    assert (await call(recompress, zstd, none, None, packed, 1))[0] == len(plain)
    assert compute.process_id == first


async def test_another_process_takes_the_place_of_one_that_dies(
    compute: RealCompute, monkeypatch: pytest.MonkeyPatch
) -> None:
    none = int(Compression.NONE)
    arguments = (recompress, none, none, None, b"x", 9)
    waiting = asyncio.ensure_future(compute.call(*arguments))
    await until(lambda: compute.process_id is not None)
    os.kill(compute.process_id or 0, signal.SIGKILL)
    with pytest.raises(OSError, match="died") as caught:
        await waiting
    assert caught.value.errno == errno.ECHILD
    with pytest.raises(OSError, match="died again"):  # so soon
        await compute.call(*arguments)
    monkeypatch.setattr(module, "_PAUSE_S", 0.0)
    assert await compute.call(*arguments) == (1, b"x")
