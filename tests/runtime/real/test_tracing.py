"""Spans by OpenTelemetry, and what the configuration says of them."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import pytest

from runtime.config.node import ConfigError, from_settings
from runtime.real.tracing import OtelTracer, tracer_of
from tests.support.broker_apis import SETTINGS
from tests.support.traces import Exported
from world.tracing import REPLICATE

pytest.importorskip("opentelemetry.sdk.trace")


@pytest.fixture
def exported() -> Exported:
    return Exported()


def begun(tracer: OtelTracer, name: str = "PRODUCE", *, of_follower: bool = False) -> Any:
    return tracer.begin(name, {"stele.client_id": "c"}, of_follower=of_follower)


def test_the_steps_of_a_request_are_its_children(exported: Exported) -> None:
    request = begun(exported.tracer)
    step = request.child("append", {"stele.partition": 3}, began_s_ago=2.0)
    step.end()
    failed = request.child("sync", {})
    failed.end("KAFKA_STORAGE_ERROR")
    request.end()
    append, sync, whole = exported.spans
    assert [each.name for each in exported.spans] == ["append", "sync", "PRODUCE"]
    assert append.parent.span_id == sync.parent.span_id == whole.context.span_id
    assert append.context.trace_id == whole.context.trace_id
    assert 2.0 <= (append.end_time - append.start_time) / 1e9 < 10
    assert (append.status.is_ok, sync.status.is_ok) == (True, False)
    assert sync.status.description == "KAFKA_STORAGE_ERROR"
    assert whole.attributes["stele.client_id"] == "c"
    assert append.attributes["stele.partition"] == 3


def test_a_part_of_the_requests_is_sampled() -> None:
    chances = iter([0.0, 0.24, 0.25, 0.9])
    tracer = Exported(ratio=0.25, choose=lambda: next(chances)).tracer
    assert [begun(tracer) is not None for _ in range(4)] == [True, True, False, False]


CONTEXT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(
    ("context", "is_sampled"),
    [
        (CONTEXT, True),
        (CONTEXT.removesuffix("01") + "03", True),  # other flags say nothing about it
        (CONTEXT.removesuffix("01") + "00", False),
        ("01" + CONTEXT.removeprefix("00") + "-more", True),  # of a later version
    ],
)
def test_a_client_decides_whether_its_request_is_traced(context: str, is_sampled: bool) -> None:
    exported = Exported(ratio=0.0 if is_sampled else 1.0)
    span = exported.tracer.begin("PRODUCE", {}, of_follower=False, context=context)
    assert (span is not None) == is_sampled
    if span is not None:
        span.end()
        (ended,) = exported.spans
        assert ended.context.trace_id == int(CONTEXT[3:35], 16)
        assert ended.parent.span_id == int(CONTEXT[36:52], 16)
        assert ended.parent.is_remote


@pytest.mark.parametrize(
    "context",
    [
        "",
        "x",
        CONTEXT.upper(),
        CONTEXT + "-more",
        "ff" + CONTEXT.removeprefix("00"),
        f"00-{'0' * 32}-b7ad6b7169203331-01",
        f"00-0af7651916cd43dd8448eb211c80319c-{'0' * 16}-01",
    ],
)
def test_a_text_that_is_no_context_counts_as_none(context: str) -> None:
    exported = Exported(ratio=0.5, choose=lambda: 0.5)
    assert exported.tracer.begin("PRODUCE", {}, of_follower=False, context=context) is None
    assert exported.tracer.join("append", {}, context) is None


def test_a_step_joins_the_request_of_another_process(exported: Exported) -> None:
    request, there = begun(exported.tracer), Exported(ratio=0.0)
    step = there.tracer.join("append", {"stele.partition": 3}, request.context)
    assert step is not None
    step.end()
    request.end()
    (ended,), (whole,) = there.spans, exported.spans
    assert ended.context.trace_id == whole.context.trace_id
    assert ended.parent.span_id == whole.context.span_id
    assert dict(ended.attributes) == {"stele.partition": 3}


def test_a_followers_fetch_is_traced_while_a_batch_waits_and_linked_if_it_ends_the_wait(
    exported: Exported,
) -> None:
    tracer = exported.tracer
    assert begun(tracer, "FETCH", of_follower=True) is None
    first, second = begun(tracer), begun(tracer)
    waits = [first.child(REPLICATE, {}), second.child(REPLICATE, {})]
    fetch = begun(tracer, "FETCH", of_follower=True)
    fetch.around(waits[0].end)()
    assert tracer.replicating == 1
    waits[1].end()
    assert tracer.replicating == 0
    assert begun(tracer, "FETCH", of_follower=True) is None
    fetch.end()
    linked, alone, cause = exported.spans
    assert [each.context.span_id for each in linked.links] == [cause.context.span_id]
    assert not alone.links


def test_a_request_is_current_during_its_own_work_only(exported: Exported) -> None:
    tracer = exported.tracer
    outer, inner = begun(tracer), begun(tracer)

    def fail() -> None:
        assert tracer.current is inner
        raise ValueError("inner")

    def work() -> str:
        seen = [tracer.current]
        with pytest.raises(ValueError, match="inner"):
            inner.around(fail)()
        outer.child("append", {}).end()
        assert [*seen, tracer.current] == [outer, outer]
        return "done"

    assert outer.around(work)() == "done"
    assert tracer.current is None
    assert not exported.spans[0].links, "its own request is no cause"


@pytest.fixture
def without_opentelemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)


@pytest.mark.usefixtures("without_opentelemetry")
def test_nothing_is_traced_by_default() -> None:
    assert tracer_of(from_settings(SETTINGS)) is None


@pytest.mark.usefixtures("without_opentelemetry")
def test_without_the_packages_the_start_is_refused() -> None:
    config = from_settings(SETTINGS | {"telemetry.traces.sample": "0.01"})
    with pytest.raises(ConfigError) as caught:
        tracer_of(config)
    assert str(caught.value) == (
        "telemetry.traces.sample=0.01 needs OpenTelemetry, which is not installed: "
        "pip install 'stele-log[otel]', or set telemetry.traces.sample=0"
    )
    config = from_settings(SETTINGS | {"telemetry.traces.header": "traceparent"})
    with pytest.raises(ConfigError, match=r"traces\.header needs .* set no telemetry\.traces\.h"):
        tracer_of(config)


@pytest.mark.parametrize("ratio", ["-0.1", "1.1"])
def test_the_part_that_is_sampled_is_at_most_all(ratio: str) -> None:
    with pytest.raises(ConfigError, match=r"telemetry\.traces\.sample"):
        from_settings(SETTINGS | {"telemetry.traces.sample": ratio})


async def test_spans_are_sent_to_the_configured_place(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    module = importlib.import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    sent: list[Any] = []
    endpoints: list[Any] = []

    class Exporter:
        def __init__(self, endpoint: str | None) -> None:
            endpoints.append(endpoint)

        def export(self, spans: Any) -> None:
            sent.extend(spans)

        def shutdown(self) -> None:
            pass

    monkeypatch.setattr(module, "OTLPSpanExporter", Exporter)
    asked = {"telemetry.traces.sample": "1", "telemetry.traces.endpoint": "http://c:4318"}
    tracer = tracer_of(from_settings(SETTINGS | asked))
    assert tracer is not None
    begun(tracer).end()
    await tracer.close()
    assert endpoints == ["http://c:4318/v1/traces"]
    (span,) = sent
    assert span.resource.attributes["service.name"] == "stele"
    assert span.resource.attributes["service.instance.id"] == "1"
