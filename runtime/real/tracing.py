"""Spans by OpenTelemetry, sent by OTLP over HTTP. The packages are the extra ``otel``."""

from __future__ import annotations

import asyncio
import functools
import importlib
import random
import time
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from runtime.config.node import ConfigError, NodeConfig
from world.tracing import REPLICATE, Attributes, Span

P = ParamSpec("P")
T = TypeVar("T")


class OtelTracer:
    """A ``world.tracing.Tracer``."""

    def __init__(
        self, provider: Any, ratio: float, choose: Callable[[], float] = random.random
    ) -> None:
        """``provider``: a TracerProvider of the SDK. ``choose`` gives a number from 0 to below 1
        for each request, which is sampled if that is below ``ratio``."""
        self.current: OtelSpan | None = None
        self.replicating = 0
        """The spans of batches that wait for their followers."""
        self.api: Any = importlib.import_module("opentelemetry.trace")
        self._provider = provider
        self.tracer: Any = provider.get_tracer("stele")
        self._ratio = ratio
        self._choose = choose

    def begin(self, name: str, attributes: Attributes, *, of_follower: bool) -> Span | None:
        is_sampled = self.replicating > 0 if of_follower else self._choose() < self._ratio
        if not is_sampled:
            return None
        kind = self.api.SpanKind.SERVER
        return OtelSpan(self, self.tracer.start_span(name, attributes=attributes, kind=kind), None)

    async def close(self) -> None:
        """Send what was not sent yet. It takes as long as the exporter waits for its receiver."""
        await asyncio.to_thread(self._provider.shutdown)


class OtelSpan:
    """A ``world.tracing.Span``."""

    __slots__ = ("_is_replicating", "_tracer", "otel", "root")

    def __init__(self, tracer: OtelTracer, span: Any, root: OtelSpan | None) -> None:
        self._tracer = tracer
        self.otel = span
        self.root = self if root is None else root  # the span of the request
        self._is_replicating = False

    def child(self, name: str, attributes: Attributes, *, began_s_ago: float = 0.0) -> Span:
        tracer = self._tracer
        made = OtelSpan(
            tracer,
            tracer.tracer.start_span(
                name,
                context=tracer.api.set_span_in_context(self.otel),
                attributes=attributes,
                start_time=time.time_ns() - int(began_s_ago * 1e9),
            ),
            self.root,
        )
        if name == REPLICATE:
            made._is_replicating = True
            tracer.replicating += 1
        return made

    def around(self, work: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(work)
        def run(*args: P.args, **kwargs: P.kwargs) -> T:
            before, self._tracer.current = self._tracer.current, self
            try:
                return work(*args, **kwargs)
            finally:
                self._tracer.current = before

        return run

    def end(self, error: str = "") -> None:
        tracer = self._tracer
        if self._is_replicating:
            self._is_replicating = False
            tracer.replicating -= 1
        cause = tracer.current
        if cause is not None and cause.root is not self.root:
            self.otel.add_link(cause.otel.get_span_context())
        if error:
            self.otel.set_status(tracer.api.Status(tracer.api.StatusCode.ERROR, error))
        self.otel.end()


def tracer_of(config: NodeConfig) -> OtelTracer | None:
    """The tracer that the configuration asks for; None: none. Raises ConfigError."""
    ratio = config.telemetry_traces_sample
    if ratio <= 0:
        return None
    try:
        sdk: Any = importlib.import_module("opentelemetry.sdk.trace")
        export: Any = importlib.import_module("opentelemetry.sdk.trace.export")
        resources: Any = importlib.import_module("opentelemetry.sdk.resources")
        otlp: Any = importlib.import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    except ImportError as error:
        raise ConfigError(
            f"telemetry.traces.sample={ratio:g} needs OpenTelemetry, which is not installed: "
            "pip install 'stele-log[otel]', or set telemetry.traces.sample=0"
        ) from error
    resource = resources.Resource.create(
        {"service.name": "stele", "service.instance.id": str(config.node_id)}
    )
    provider = sdk.TracerProvider(resource=resource, sampler=sdk.sampling.ALWAYS_ON)
    endpoint = config.telemetry_traces_endpoint
    exporter = otlp.OTLPSpanExporter(endpoint=f"{endpoint}/v1/traces" if endpoint else None)
    provider.add_span_processor(export.BatchSpanProcessor(exporter))
    return OtelTracer(provider, ratio)
