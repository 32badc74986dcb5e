"""Pushes of metrics by many clients at once: changed, compressed by each codec, and bombs, which
are small and grow far beyond ``telemetry.max.bytes``."""

from __future__ import annotations

import asyncio
import random
import zlib
from typing import Final, NamedTuple

import zstandard

from broker.service.telemetry import ClientTelemetry
from broker.telemetry.instances import Push
from broker.telemetry.subscriptions import NOTHING, subscription_id
from runtime.authorization.caller import Caller, Plane
from stele.errors import ApiError, ErrorCode
from stele.wire.compression import Compression, compress
from stele.wire.otlp import Metric, metrics_data
from tests.fuzz.bytes import mutated
from tests.fuzz.cost import Meter
from tests.support.broker_apis import Edges
from tests.support.timing import run_virtual

_CODECS: Final = tuple(Compression)
_MAX_BYTES: Final = 1024 * 1024
_BOMB_BYTES: Final = 64 * _MAX_BYTES
_CLIENTS: Final = 20
_REFUSALS: Final = (
    ErrorCode.INVALID_RECORD,
    ErrorCode.TELEMETRY_TOO_LARGE,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
)

Input = list[tuple[int, bytes]]
"""The codec and the bytes of each client's push."""


class _Connection(NamedTuple):
    peer: str
    software_name: str = "fuzz"
    software_version: str = "1"


def _bombs() -> list[tuple[int, bytes]]:
    zeros = bytes(_BOMB_BYTES)
    dense = b"\x0a\x00" * (_MAX_BYTES // 2)  # as many resources as fit
    found: Input = [
        (codec, compress(codec, data)) for codec in _CODECS for data in (zeros[:_MAX_BYTES], dense)
    ]
    found += [(codec, compress(codec, zeros)) for codec in _CODECS if codec is not Compression.NONE]
    member = zlib.compressobj(9, zlib.DEFLATED, 31)
    empty = member.compress(b"") + member.flush()
    found.append((Compression.GZIP, empty * 20_000))  # many members of nothing
    frame = zstandard.ZstdCompressor().compress(b"")
    found.append((Compression.ZSTD, frame * 50_000))
    return found


def _metrics(rng: random.Random) -> bytes:
    metrics = [
        Metric(f"m{number}" * rng.randrange(1, 60), 1.0, {"topic": str(rng.random())}, True)
        for number in range(rng.choice((0, 5, 2000)))
    ]
    return metrics_data(metrics, resource={}, since_ns=1, now_ns=2)


class PushesTarget:
    name = "pushes"
    examples = 20

    def __init__(self, rng: random.Random) -> None:
        self._bombs = _bombs()
        self._plain = [_metrics(rng) for _ in range(10)]

    def draw(self, rng: random.Random) -> Input:
        return [self._push(rng) for _ in range(rng.choice((1, 1, _CLIENTS)))]

    def _push(self, rng: random.Random) -> tuple[int, bytes]:
        if rng.random() < 0.4:
            codec, data = rng.choice(self._bombs)
            is_changed = rng.random() < 0.5
            return codec, bytes(mutated(rng, data, [data])) if is_changed else data
        codec = rng.choice(_CODECS)
        data = compress(codec, rng.choice(self._plain))
        is_changed = rng.random() < 0.7
        told = rng.choice((codec, codec, rng.randrange(-1, 6)))
        return told, bytes(mutated(rng, data, self._plain)) if is_changed else data

    def run(self, data: Input, meter: Meter) -> str:
        return run_virtual(_serve(data, meter))


async def _serve(data: Input, meter: Meter) -> str:
    telemetry = Edges(telemetry_receiver="prometheus").telemetry
    assert telemetry is not None
    size_bytes = sum(len(each) for _, each in data)
    meter.request(size_bytes)
    told = await asyncio.gather(
        *(_push(telemetry, number, *each) for number, each in enumerate(data))
    )
    return "taken" if any(told) else "refused"


async def _push(telemetry: ClientTelemetry, number: int, codec: int, metrics: bytes) -> bool:
    instance_id = number.to_bytes(8) + b"fuzzfuzz"
    caller = Caller("User:ANONYMOUS", "fuzz", "EXTERNAL", Plane.KAFKA, "10.0.0.9")
    push = Push(instance_id, subscription_id(NOTHING, instance_id), False, codec, len(metrics))
    try:
        await telemetry.push(caller, _Connection(f"10.0.0.9:{number}"), push, metrics)
    except ApiError as error:
        if error.code not in _REFUSALS:
            raise
        return False
    return True


TARGET = PushesTarget
