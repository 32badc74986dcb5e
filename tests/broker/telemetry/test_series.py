"""The newest values of clients: which are kept, and for how long."""

from __future__ import annotations

import math

import pytest

from broker.telemetry.otlp import Point
from broker.telemetry.series import ClientLabels, Figures, Series, SeriesStore, figures_of


def labels(instance: str, client_id: str = "c") -> ClientLabels:
    return ClientLabels("ann", client_id, instance, "java 4")


def push(store: SeriesStore, instance: str, *found: Point, now_s: float = 0.0) -> None:
    store.begin(labels(instance), now_s, 60.0)
    for each in found:
        store.take(instance, each)


def point(name: str, value: float = 1.0, *, is_delta: bool = False) -> Point:
    return Point(name, (("topic", "t"),), value, is_delta)


def shown(store: SeriesStore, now_s: float = 0.0) -> list[tuple[str, str, float]]:
    found = list(store.all(now_s))
    assert len(found) == len(store)
    return [(each.client.client_instance_id, each.name, each.value) for each in found]


def test_gauges_are_replaced_and_differences_added_up() -> None:
    store = SeriesStore(100)
    push(store, "a", point("g", 5.0), point("d", 2.0, is_delta=True))
    push(store, "a", point("g", 4.0), point("d", 3.0, is_delta=True))
    assert list(store.all(0.0)) == [
        Series(labels("a"), "g", (("topic", "t"),), 4.0),
        Series(labels("a"), "d", (("topic", "t"),), 5.0),
    ]


def test_the_series_of_a_silent_client_expire() -> None:
    store = SeriesStore(100)
    push(store, "a", point("g"))
    push(store, "b", point("g"), now_s=30.0)
    assert [each for each, _, _ in shown(store, 59.9)] == ["a", "b"]
    assert [each for each, _, _ in shown(store, 60.0)] == ["b"]
    assert shown(store, 90.0) == []


def test_one_client_has_a_quarter_of_the_series_at_most() -> None:
    store = SeriesStore(8)
    push(store, "a", point("1"), point("2"), point("3"), point("1", 7.0))
    assert shown(store) == [("a", "1", 7.0), ("a", "2", 1.0)]
    assert store.left_out == 1


def test_the_client_that_was_silent_longest_goes_first() -> None:
    store = SeriesStore(4)
    for instance in ("a", "b", "c", "d"):
        push(store, instance, point("1"))
    push(store, "a", point("1", 2.0))
    push(store, "e", point("1"))
    assert [each for each, _, _ in shown(store)] == ["c", "d", "a", "e"]
    assert store.left_out == 0


def test_a_full_store_makes_room_for_each_new_series() -> None:
    store = SeriesStore(8)
    for instance in ("a", "b", "c", "d", "e"):
        push(store, instance, point("1"), point("2"))
        assert len(store) <= 8
    assert [each for each, _, _ in shown(store)] == ["b", "b", "c", "c", "d", "d", "e", "e"]


def test_clients_without_values_are_bounded_too() -> None:
    store = SeriesStore(4)
    for number in range(100):
        push(store, str(number))
    assert len(vars(store)["_clients"]) <= 4


@pytest.mark.parametrize("most", [0, 1])
def test_the_smallest_stores(most: int) -> None:
    store = SeriesStore(most)
    push(store, "a", point("1"), point("2"))
    assert len(shown(store)) == most
    assert store.left_out == 2 - most
    push(store, "b", point("1"))
    assert [each for each, _, _ in shown(store)] == ["b"] * most


def test_a_client_of_another_name_begins_anew() -> None:
    store = SeriesStore(100)
    push(store, "a", point("d", 2.0, is_delta=True))
    store.begin(labels("a", "other"), 0.0, 60.0)
    store.take("a", point("d", 3.0, is_delta=True))
    assert shown(store) == [("a", "d", 3.0)]


def test_a_push_of_a_client_that_was_forgotten_meanwhile_is_left_out() -> None:
    store = SeriesStore(4)
    push(store, "a", point("1"))
    store.forget("a")
    store.take("a", point("2"))
    assert (shown(store), store.left_out) == ([], 1)


LAG = "org.apache.kafka.consumer.fetch.manager.partition.records.lag.max"
FETCH = "org.apache.kafka.consumer.fetch.manager.fetch.latency.avg"
REQUEST = "org.apache.kafka.producer.node.request.latency.avg"


def of(name: str, value: float, client_id: str = "c") -> Series:
    return Series(labels("a", client_id), name, (), value)


@pytest.mark.parametrize("is_reversed", [False, True])
def test_the_worst_of_a_client_id_is_shown(is_reversed: bool) -> None:
    series = [
        of(LAG, 3.0), of(LAG, 7.0), of(LAG, 5.0), of(LAG, -1.0, "other"), of(FETCH, 2.0),
        of(REQUEST, 4.0), of(FETCH, 1.0), of(REQUEST, 9.0, "producer"), of("lag", 100.0),
    ]  # fmt: skip
    assert figures_of(reversed(series) if is_reversed else series) == {
        ("ann", "c"): Figures(7.0, 4.0),
        ("ann", "other"): Figures(-1.0, None),
        ("ann", "producer"): Figures(None, 9.0),
    }


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", [LAG, FETCH])
def test_a_value_that_is_no_number_is_no_figure(name: str, value: float) -> None:
    assert figures_of([of(name, value)]) == {}
    assert figures_of([of(name, 1.0), of(name, value)]) == figures_of([of(name, 1.0)])


def test_a_store_of_any_size_leaves_each_client_room_for_one_series() -> None:
    store = SeriesStore(3)
    push(store, "a", point("1"), point("2"))
    assert (shown(store), store.left_out) == ([("a", "1", 1.0)], 1)
