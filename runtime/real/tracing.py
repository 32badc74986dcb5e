"""Spans by OpenTelemetry, sent by OTLP over HTTP. The packages are the extra ``otel``."""

from __future__ import annotations

import asyncio
import functools
import importlib
import random
import re
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

from runtime.config.node import ConfigError, NodeConfig
from world.tracing import REPLICATE, Attributes, Span

P = ParamSpec("P")
T = TypeVar("T")

_TRACE_PARENT: Final = re.compile(
    "(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})"
    "-(?P<flags>[0-9a-f]{2})(?P<rest>-.*)?"
)


class _Parent(NamedTuple):
    """A span of another process."""

    trace_id: int
    span_id: int
    is_sampled: bool


def _parsed(context: str) -> _Parent | None:
    """A ``traceparent``; None if the text is none. Later versions may have more behind the flags
    (W3C Trace Context, 4.3)."""
    found = _TRACE_PARENT.fullmatch(context)
    if found is None:
        return None
    version, rest = found["version"], found["rest"]
    trace_id, span_id = int(found["trace"], 16), int(found["span"], 16)
    if version == "ff" or (version == "00" and rest) or not (trace_id and span_id):
        return None
    return _Parent(trace_id, span_id, bool(int(found["flags"], 16) & 1))


class OtelTracer:
    """A ``world.tracing.Tracer``."""

    def __init__(
        self,
        provider: Any,
        ratio: float,
        choose: Callable[[], float] = random.random,
        *,
        context_header: str = "",
    ) -> None:
        """``provider``: a TracerProvider of the SDK. ``choose`` gives a number from 0 to below 1
        for each request, which is sampled if that is below ``ratio``."""
        self.context_header = context_header
        self.current: OtelSpan | None = None
        self.replicating = 0
        """The spans of batches that wait for their followers."""
        self.api: Any = importlib.import_module("opentelemetry.trace")
        self._provider = provider
        self.tracer: Any = provider.get_tracer("stele")
        self._ratio = ratio
        self._choose = choose

    def begin(
        self, name: str, attributes: Attributes, *, of_follower: bool, context: str = ""
    ) -> Span | None:
        client = _parsed(context)
        if client is not None:
            is_sampled = client.is_sampled
        elif of_follower:
            is_sampled = self.replicating > 0
        else:
            is_sampled = self._choose() < self._ratio
        return self._started(name, attributes, client) if is_sampled else None

    def join(self, name: str, attributes: Attributes, context: str) -> Span | None:
        parent = _parsed(context)
        return None if parent is None else self._started(name, attributes, parent)

    def _started(self, name: str, attributes: Attributes, parent: _Parent | None) -> OtelSpan:
        """The first span of this process in its trace."""
        api, context = self.api, None
        if parent is not None:
            flags = api.TraceFlags(api.TraceFlags.SAMPLED)
            remote = api.SpanContext(
                parent.trace_id, parent.span_id, is_remote=True, trace_flags=flags
            )
            context = api.set_span_in_context(api.NonRecordingSpan(remote))
        kind = api.SpanKind.SERVER
        span = self.tracer.start_span(name, context=context, attributes=attributes, kind=kind)
        return OtelSpan(self, span, None)

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

    @property
    def context(self) -> str:
        own = self.otel.get_span_context()
        return f"00-{own.trace_id:032x}-{own.span_id:016x}-01"

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
    ratio, header = config.telemetry_traces_sample, config.telemetry_traces_header
    if ratio <= 0 and not header:
        return None
    try:
        sdk: Any = importlib.import_module("opentelemetry.sdk.trace")
        export: Any = importlib.import_module("opentelemetry.sdk.trace.export")
        resources: Any = importlib.import_module("opentelemetry.sdk.resources")
        otlp: Any = importlib.import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    except ImportError as error:
        asked = f"telemetry.traces.sample={ratio:g}" if ratio > 0 else "telemetry.traces.header"
        unset = "telemetry.traces.sample=0" if ratio > 0 else "no telemetry.traces.header"
        raise ConfigError(
            f"{asked} needs OpenTelemetry, which is not installed: "
            f"pip install 'stele-log[otel]', or set {unset}"
        ) from error
    resource = resources.Resource.create(
        {"service.name": "stele", "service.instance.id": str(config.node_id)}
    )
    provider = sdk.TracerProvider(resource=resource, sampler=sdk.sampling.ALWAYS_ON)
    endpoint = config.telemetry_traces_endpoint
    exporter = otlp.OTLPSpanExporter(endpoint=f"{endpoint}/v1/traces" if endpoint else None)
    provider.add_span_processor(export.BatchSpanProcessor(exporter))
    return OtelTracer(provider, ratio, context_header=header)
