"""A tracer whose spans stay in memory."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from runtime.real.tracing import OtelTracer


class Exported:
    """The tracer, and the spans that have ended, in the order of their ends."""

    def __init__(
        self,
        ratio: float = 1.0,
        choose: Callable[[], float] = lambda: 0.0,
        *,
        context_header: str = "",
    ) -> None:
        sdk: Any = importlib.import_module("opentelemetry.sdk.trace")
        export: Any = importlib.import_module("opentelemetry.sdk.trace.export")
        memory: Any = importlib.import_module(
            "opentelemetry.sdk.trace.export.in_memory_span_exporter"
        )
        self._exporter = memory.InMemorySpanExporter()
        provider = sdk.TracerProvider()
        provider.add_span_processor(export.SimpleSpanProcessor(self._exporter))
        self.tracer = OtelTracer(provider, ratio, choose, context_header=context_header)

    @property
    def spans(self) -> list[Any]:
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> list[Any]:
        return [each for each in self.spans if each.name == name]
