"""OTLP as clients push it: what is read of it, and what is refused."""

from __future__ import annotations

import math
import tracemalloc
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.telemetry import otlp
from broker.telemetry.otlp import Point, points
from stele.errors import ApiError, ErrorCode
from stele.wire.otlp import Metric, metrics_data


def read(data: bytes) -> list[Point]:
    return [each for each in points(data) if each is not None]


def written(*metrics: Metric, **resource: str) -> bytes:
    return metrics_data(metrics, resource=resource, since_ns=1, now_ns=2)


TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
METRICS = st.lists(
    st.builds(
        Metric,
        TEXT,
        st.floats(allow_nan=False),
        st.dictionaries(TEXT, TEXT, max_size=3),
        st.booleans(),
    ),
    max_size=10,
)


@given(METRICS, st.dictionaries(TEXT, TEXT, max_size=3))
def test_what_a_client_writes_is_read(metrics: list[Metric], resource: dict[str, str]) -> None:
    data = metrics_data(metrics, resource=resource, since_ns=1, now_ns=2**63)
    assert read(data) == [
        Point(
            each.name,
            tuple(sorted({**resource, **each.attributes}.items())),
            each.value,
            each.is_delta,
        )
        for each in metrics
    ]


@given(METRICS, st.dictionaries(TEXT, TEXT, max_size=3))
def test_the_writer_agrees_with_the_package_of_opentelemetry(
    metrics: list[Metric], resource: dict[str, str]
) -> None:
    pb2 = pytest.importorskip("opentelemetry.proto.metrics.v1.metrics_pb2")
    message = pb2.MetricsData.FromString(
        metrics_data(metrics, resource=resource, since_ns=1, now_ns=2)
    )
    (of_resource,) = message.resource_metrics
    told = {each.key: each.value.string_value for each in of_resource.resource.attributes}
    assert told == resource
    (scope,) = of_resource.scope_metrics
    assert len(scope.metrics) == len(metrics)
    for read_back, metric in zip(scope.metrics, metrics, strict=True):
        data = read_back.sum if metric.is_delta else read_back.gauge
        (point,) = data.data_points
        assert (read_back.name, point.as_double) == (metric.name, metric.value)
        assert (point.start_time_unix_nano, point.time_unix_nano) == (1, 2)
        assert {each.key: each.value.string_value for each in point.attributes} == dict(
            metric.attributes
        )
        if metric.is_delta:
            assert (data.aggregation_temporality, data.is_monotonic) == (1, True)


def test_the_reader_agrees_with_the_package_of_opentelemetry() -> None:
    pb2 = pytest.importorskip("opentelemetry.proto.metrics.v1.metrics_pb2")
    message = pb2.MetricsData()
    of_resource = message.resource_metrics.add()
    of_resource.resource.attributes.add(key="rack").value.string_value = "r1"
    metrics = of_resource.scope_metrics.add().metrics
    whole = metrics.add(name="whole", unit="1", description="d").gauge.data_points.add(as_int=-5)
    for key, value in (("flag", True), ("count", -7), ("share", 0.5)):
        kind = {bool: "bool_value", int: "int_value", float: "double_value"}[type(value)]
        setattr(whole.attributes.add(key=key).value, kind, value)
    total = metrics.add(name="total").sum
    total.aggregation_temporality = 2
    total.data_points.add(as_double=1.5)
    total.data_points.add()  # without a value
    delta = metrics.add(name="delta").sum
    delta.aggregation_temporality = 1
    delta.data_points.add(as_double=2.5).attributes.add(key="rack").value.string_value = "r2"
    metrics.add(name="histogram").histogram.data_points.add(count=3)
    rack = (("rack", "r1"),)
    assert read(message.SerializeToString()) == [
        Point("whole", (("count", "-7"), ("flag", "true"), *rack, ("share", "0.5")), -5.0, False),
        Point("total", rack, 1.5, False),
        Point("delta", (("rack", "r2"),), 2.5, True),
    ]


def field(number: int, kind: int, content: bytes = b"") -> bytes:
    """As it is written. ``content``: of a field of bytes."""
    tag = bytes((number << 3 | kind,))
    if kind == BYTES:
        assert len(content) < 0x80
        return tag + bytes((len(content),)) + content
    return tag + {VARINT: b"\x01", FIXED64: bytes(8), FIXED32: bytes(4)}[kind]


VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def noise(known: set[tuple[int, int]], content: bytes) -> bytes:
    """Every field of a low number and of any kind, but for those that are known."""
    return b"".join(
        field(number, kind, content)
        for number in range(1, 9)
        for kind in (VARINT, FIXED64, BYTES, FIXED32)
        if (number, kind) not in known
    )


ONE = field(4, FIXED64).replace(bytes(8), b"\0\0\0\0\0\0\xf0\x3f")
LEVELS: dict[str, tuple[set[tuple[int, int]], bytes]] = {
    "attribute's value": ({(1, BYTES), (2, VARINT), (3, VARINT), (4, FIXED64)}, b"v"),
    "attribute": ({(1, BYTES), (2, BYTES)}, field(1, BYTES, b"x")),
    "point": (
        {(7, BYTES), (4, FIXED64), (6, FIXED64)},
        field(1, BYTES, b"k") + field(2, BYTES, field(1, BYTES, b"x")),
    ),
    "gauge": ({(1, BYTES)}, ONE),
    "metric": (
        {(1, BYTES), (5, BYTES), (7, BYTES)},
        field(1, BYTES, ONE),
    ),
    "scope": ({(2, BYTES)}, field(1, BYTES, b"x") + field(5, BYTES, field(1, BYTES, ONE))),
    "resource": ({(1, BYTES)}, field(1, BYTES, b"k")),
    "resource metrics": (
        {(1, BYTES), (2, BYTES)},
        field(2, BYTES, field(5, BYTES, field(1, BYTES, ONE))),
    ),
    "whole": (
        {(1, BYTES)},
        field(2, BYTES, field(2, BYTES, field(5, BYTES, field(1, BYTES, ONE)))),
    ),
}


@pytest.mark.parametrize("noisy", [None, *LEVELS])
def test_fields_that_are_not_known_change_nothing(noisy: str | None) -> None:
    """Neither those of other numbers, nor those of known numbers and other kinds."""

    def level(name: str, content: bytes) -> bytes:
        return content + (noise(*LEVELS[name]) if name == noisy else b"")

    def wrapped(number: int, content: bytes) -> bytes:
        size = len(content)
        length = bytes((size & 0x7F | 0x80, size >> 7))
        return bytes((number << 3 | BYTES,)) + length + content

    value = level("attribute's value", field(1, BYTES, b"a"))
    attribute = level("attribute", field(1, BYTES, b"k") + wrapped(2, value))
    point = level("point", wrapped(7, attribute) + ONE)
    gauge = level("gauge", wrapped(1, point))
    metric = level("metric", field(1, BYTES, b"m") + wrapped(5, gauge))
    scope = level("scope", wrapped(2, metric))
    resource = level("resource", wrapped(1, attribute.replace(b"\x0a\x01k", b"\x0a\x01r")))
    whole = level("resource metrics", wrapped(1, resource) + wrapped(2, scope))
    data = level("whole", wrapped(1, whole))
    assert read(data) == [Point("m", (("k", "a"), ("r", "a")), 1.0, False)]


def varint_of(number: int) -> bytes:
    number &= (1 << 64) - 1
    low = bytes(number >> shift & 0x7F | 0x80 for shift in range(0, 63, 7))
    return low + bytes((number >> 63,))


def within(data: bytes, *numbers: int) -> bytes:
    """As the field of a message in the field of another one, and so on."""
    for number in numbers:
        data = bytes((number << 3 | BYTES,)) + varint_of(len(data)) + data
    return data


@pytest.mark.parametrize(("temporality", "is_delta"), [(0, False), (1, True), (2, False)])
def test_a_sum_is_a_difference_only_if_it_says_so(temporality: int, is_delta: bool) -> None:
    """Whatever else it says of itself, for example that it only rises."""
    others = noise({(1, BYTES), (2, VARINT)}, ONE)
    told = field(2, VARINT)[:1] + bytes((temporality,))
    of_sum = others + field(1, BYTES, ONE) + told + others
    metric = field(1, BYTES, b"m") + within(of_sum, 7)
    assert read(within(metric, 2, 2, 1)) == [Point("m", (), 1.0, is_delta)]


@pytest.mark.parametrize("number", [0, 1, -1, 2**63 - 1, -(2**63)])
def test_whole_numbers_have_64_bits(number: int) -> None:
    told = within(field(3, VARINT)[:1] + varint_of(number), 2)
    attribute = within(field(1, BYTES, b"k") + told, 7)
    value = field(6, FIXED64)[:1] + number.to_bytes(8, "little", signed=True)
    metric = field(1, BYTES, b"m") + within(attribute + value, 1, 5)
    data = within(metric, 2, 2, 1)
    assert read(data) == [Point("m", (("k", str(number)),), float(number), False)]


@pytest.mark.parametrize(("content", "text"), [(b"\x10\x00", "false"), (b"\x10\x01", "true")])
def test_attributes_may_be_true_or_false(content: bytes, text: str) -> None:
    attribute = within(field(1, BYTES, b"k") + within(content, 2), 7)
    metric = field(1, BYTES, b"m") + within(attribute + ONE, 1, 5)
    assert read(within(metric, 2, 2, 1)) == [Point("m", (("k", text),), 1.0, False)]


def test_a_point_without_a_value_is_none() -> None:
    """It may say that nothing was recorded."""
    attribute = within(field(1, BYTES, b"k") + within(field(1, BYTES, b"v"), 2), 7)
    metric = field(1, BYTES, b"m") + within(within(attribute, 1) + within(ONE, 1), 5)
    assert read(within(metric, 2, 2, 1)) == [Point("m", (), 1.0, False)]


def test_an_attribute_may_be_a_fraction() -> None:
    attribute = within(field(1, BYTES, b"k") + within(ONE, 2), 7)
    metric = field(1, BYTES, b"m") + within(attribute + ONE, 1, 5)
    assert read(within(metric, 2, 2, 1)) == [Point("m", (("k", "1"),), 1.0, False)]


def test_the_most_fields_of_a_point_and_of_a_push(monkeypatch: pytest.MonkeyPatch) -> None:
    most = written(Metric("n", 1.0, {str(each): "" for each in range(125)}))
    (point,) = read(most)  # and three fields for the value and its times
    assert len(point.attributes) == 125
    small = written(Metric("n", 1.0))
    for fields in (9, 10):
        monkeypatch.setattr(otlp, "FIELDS_MAX", fields)
        if fields == 10:
            assert len(read(small)) == 1
        else:
            with pytest.raises(ApiError, match="more than 9 fields"):
                read(small)


def test_a_turn_has_500_fields() -> None:
    assert list(points(empty_elements(1_999))) == [None] * 4


def test_long_texts_are_cut() -> None:
    (point,) = read(written(Metric("n" * 300, 1.0, {"k": "v" * 300})))
    assert (len(point.name), len(dict(point.attributes)["k"])) == (200, 200)


def test_no_metrics_are_no_points() -> None:
    assert read(b"") == read(written()) == []
    assert math.isnan(read(written(Metric("n", math.nan)))[0].value)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x0a\x05\x00", "past the end"),
        (b"\x0a\xff", "without an end"),
        (b"\x0a", "without an end"),
        (b"\x0f", "field of type 7"),
        (b"\x0a\x01\x12\x08\x01", "without an end"),
        (written(Metric("n", 1.0, {str(each): "" for each in range(126)})), "more than 128"),
        (b"\x09\x00", "past the end"),
        (written(Metric("n", 1.0)).replace(b"\x01n", b"\x01\xff"), "not UTF-8"),
        (written(Metric("n", 1.0, {str(each): "" for each in range(200)})), "more than 128 fields"),
    ],
)
def test_what_is_no_otlp_is_an_invalid_record(data: bytes, words: str) -> None:
    with pytest.raises(ApiError, match=words) as error:
        read(data)
    assert error.value.code == ErrorCode.INVALID_RECORD


def empty_elements(count: int) -> bytes:
    """A resource with so many empty scopes: two bytes each."""
    size = 2 * count
    length = bytes((size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14))
    return b"\x0a" + length + b"\x12\x00" * count


def test_work_is_bounded_and_goes_in_slices() -> None:
    """The smallest elements: a push of 1 MiB has half a million of them."""
    data = empty_elements(500_000)
    found: list[Point | None] = []
    with pytest.raises(ApiError, match="more than 200000 fields") as error:
        found.extend(points(data))
    assert error.value.code == ErrorCode.TELEMETRY_TOO_LARGE
    assert set(found) == {None}
    pauses = list(islice(points(data), otlp.FIELDS_MAX // otlp.FIELDS_AT_ONCE - 2))
    assert len(pauses) > 100
    assert set(pauses) == {None}


def test_reading_takes_no_memory_for_elements_that_are_empty() -> None:
    data = empty_elements(100_000)
    tracemalloc.start()
    try:
        assert read(data) == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000, f"{peak} bytes"
