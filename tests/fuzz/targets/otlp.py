"""Changed metrics of clients, as PushTelemetry carries them."""

from __future__ import annotations

import random
from collections.abc import Iterator

from broker.telemetry.otlp import Point, points
from stele.errors import ApiError, ErrorCode
from stele.wire.otlp import Metric, metrics_data
from tests.fuzz.bytes import mutated
from tests.fuzz.cost import Meter

_REFUSALS = (ErrorCode.INVALID_RECORD, ErrorCode.TELEMETRY_TOO_LARGE)


def _metrics(rng: random.Random) -> bytes:
    names = ("org.apache.kafka.producer.connection.creation.rate", "", "ü", "x" * 300)
    metrics = [
        Metric(
            rng.choice(names),
            rng.choice((0.0, -1.5, 1e300)),
            {f"k{number}": rng.choice(names) for number in range(rng.randrange(4))},
            rng.random() < 0.5,
        )
        for _ in range(rng.randrange(20))
    ]
    return metrics_data(metrics, resource={"client_rack": "r"}, since_ns=1, now_ns=2)


class OtlpTarget:
    name = "otlp"
    examples = 3000

    def __init__(self, rng: random.Random) -> None:
        self._seeds = [_metrics(rng) for _ in range(50)]
        self._seeds += [b"\x0a\x80\x80\x04" + b"\x12\x00" * 32_768, b"\x0a\x00" * 20_000]

    def draw(self, rng: random.Random) -> bytearray:
        return mutated(rng, rng.choice(self._seeds), self._seeds)

    def run(self, data: bytearray, meter: Meter) -> str:
        meter.request(len(data))
        found = points(bytes(data))
        count = 0
        try:
            while (point := self._next(found, meter)) is not _END:
                if isinstance(point, Point):
                    count += 1
                    assert len(point.name) <= 200
        except ApiError as error:
            if error.code not in _REFUSALS:
                raise
            return "refused"
        assert count <= len(data)
        return "read"

    def _next(self, found: Iterator[Point | None], meter: Meter) -> object:
        with meter.turn():
            return next(found, _END)


_END = object()
TARGET = OtlpTarget
