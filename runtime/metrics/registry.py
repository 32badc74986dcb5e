"""The node's metrics: plain numbers on the hot path, Prometheus text when somebody asks.

An increment is an attribute's addition: no lock, no clock, no label look-up. Only a scrape
goes through ``prometheus_client``. Names are Kafka's metrics with the prefix ``stele_``; the
help of each says what Kafka calls it.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from stele.world import Clock

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

SECONDS_BUCKETS = (
    0.0005,
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.5,
    1.0,
    2.0,
    5.0,
    10.0,
)
"""Upper bounds for times of requests: half a millisecond to ten seconds."""

_LAG_PROBE_INTERVAL_S = 0.5

Samples = Iterable[tuple[Sequence[str], float]]
"""The values of a metric's labels, and its value."""


class Counter:
    """A number that only grows. Add to ``value``."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Histogram:
    """How often a value fell into each bucket, their count and their sum."""

    __slots__ = ("_bounds", "_buckets", "total")

    def __init__(self, bounds: tuple[float, ...] = SECONDS_BUCKETS) -> None:
        self._bounds = bounds
        self._buckets = [0] * (len(bounds) + 1)  # the last one is above every bound
        self.total = 0.0

    def observe(self, value: float) -> None:
        self._buckets[bisect_left(self._bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        return sum(self._buckets)

    def cumulative(self) -> list[tuple[str, float]]:
        """(upper bound, observations at or below it), the last one ``+Inf``: Prometheus' form."""
        running = 0
        rows = []
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._buckets, strict=True):
            running += count
            rows.append((bound, float(running)))
        return rows


class _CounterFamily:
    """Counters of one name told apart by one label."""

    __slots__ = ("help", "label", "members", "name")

    def __init__(self, name: str, help_text: str, label: str) -> None:
        self.name, self.help, self.label = name, help_text, label
        self.members: dict[str, Counter] = {}

    def collect(self) -> Metric:
        labels = [self.label] if self.label else []
        family = CounterMetricFamily(self.name, self.help, labels=labels)
        for value, counter in sorted(self.members.items()):
            family.add_metric([value] if self.label else [], counter.value)
        return family


class _HistogramFamily:
    """Histograms of one name told apart by one label."""

    __slots__ = ("help", "label", "members", "name")

    def __init__(self, name: str, help_text: str, label: str) -> None:
        self.name, self.help, self.label = name, help_text, label
        self.members: dict[str, Histogram] = {}

    def collect(self) -> Metric:
        labels = [self.label] if self.label else []
        family = HistogramMetricFamily(self.name, self.help, labels=labels)
        for value, histogram in sorted(self.members.items()):
            family.add_metric(
                [value] if self.label else [], histogram.cumulative(), sum_value=histogram.total
            )
        return family


class _GaugeFamily:
    """A value that is read at the scrape, not kept."""

    __slots__ = ("help", "name", "read")

    def __init__(self, name: str, help_text: str, read: Callable[[], float]) -> None:
        self.name, self.help, self.read = name, help_text, read

    def collect(self) -> Metric:
        return GaugeMetricFamily(self.name, self.help, value=self.read())


class _GaugesFamily:
    """Values that are read at the scrape, told apart by one label."""

    __slots__ = ("help", "label", "name", "read")

    def __init__(
        self, name: str, help_text: str, label: str, read: Callable[[], Mapping[str, float]]
    ) -> None:
        self.name, self.help, self.label, self.read = name, help_text, label, read

    def collect(self) -> Metric:
        family = GaugeMetricFamily(self.name, self.help, labels=[self.label])
        for value, number in sorted(self.read().items()):
            family.add_metric([value], number)
        return family


class _TotalsFamily(_GaugesFamily):
    """Counters that somebody else keeps, told apart by one label."""

    __slots__ = ()

    def collect(self) -> Metric:
        family = CounterMetricFamily(self.name, self.help, labels=[self.label])
        for value, number in sorted(self.read().items()):
            family.add_metric([value], number)
        return family


class _SamplesFamily:
    """Values that are read at the scrape, told apart by several labels."""

    __slots__ = ("help", "labels", "name", "read")

    def __init__(
        self, name: str, help_text: str, labels: Sequence[str], read: Callable[[], Samples]
    ) -> None:
        self.name, self.help, self.labels, self.read = name, help_text, labels, read

    def collect(self) -> Metric:
        family = GaugeMetricFamily(self.name, self.help, labels=self.labels)
        for values, number in self.read():
            family.add_metric(values, number)
        return family


class _TotalFamily(_GaugeFamily):
    """A counter that somebody else keeps."""

    __slots__ = ()

    def collect(self) -> Metric:
        return CounterMetricFamily(self.name, self.help, value=self.read())


_Family = _CounterFamily | _HistogramFamily | _GaugeFamily | _GaugesFamily | _SamplesFamily


class MetricsRegistry:
    """All metrics of one node. A name is declared once; declaring it again is an error."""

    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}
        self._prometheus = CollectorRegistry(auto_describe=False)
        self._prometheus.register(self)

    def counter(self, name: str, help_text: str) -> Counter:
        """A counter without labels; ``name`` without Prometheus' suffix ``_total``."""
        family = _CounterFamily(name, help_text, "")
        self._add(name, family)
        return family.members.setdefault("", Counter())

    def counters(self, name: str, help_text: str, label: str) -> Callable[[str], Counter]:
        """A function from a label's value to its counter, made at its first use."""
        family = _CounterFamily(name, help_text, label)
        self._add(name, family)
        members = family.members

        def member(value: str) -> Counter:
            counter = members.get(value)
            if counter is None:
                counter = members[value] = Counter()
            return counter

        return member

    def histograms(self, name: str, help_text: str, label: str) -> Callable[[str], Histogram]:
        """A function from a label's value to its histogram, made at its first use."""
        family = _HistogramFamily(name, help_text, label)
        self._add(name, family)
        members = family.members

        def member(value: str) -> Histogram:
            histogram = members.get(value)
            if histogram is None:
                histogram = members[value] = Histogram()
            return histogram

        return member

    def gauge(self, name: str, help_text: str, read: Callable[[], float]) -> None:
        """A value taken by calling ``read`` at every scrape."""
        self._add(name, _GaugeFamily(name, help_text, read))

    def gauges(
        self, name: str, help_text: str, label: str, read: Callable[[], Mapping[str, float]]
    ) -> None:
        """Values by a label's value, taken by calling ``read`` at every scrape."""
        self._add(name, _GaugesFamily(name, help_text, label, read))

    def samples(
        self, name: str, help_text: str, labels: Sequence[str], read: Callable[[], Samples]
    ) -> None:
        """Values by the values of several labels, taken by calling ``read`` at every scrape.

        ``read`` bounds their number: a scrape is one turn of the event loop.
        """
        self._add(name, _SamplesFamily(name, help_text, labels, read))

    def totals(
        self, name: str, help_text: str, label: str, read: Callable[[], Mapping[str, float]]
    ) -> None:
        """Counters by a label's value that are kept elsewhere, taken at every scrape."""
        self._add(name, _TotalsFamily(name, help_text, label, read))

    def total(self, name: str, help_text: str, read: Callable[[], float]) -> None:
        """A counter that is kept elsewhere, taken by calling ``read`` at every scrape."""
        self._add(name, _TotalFamily(name, help_text, read))

    def collect(self) -> Iterator[Metric]:
        """The families, sorted by name (called by ``prometheus_client``)."""
        for _, family in sorted(self._families.items()):
            yield family.collect()

    def render(self) -> bytes:
        """Prometheus' text format, version 0.0.4."""
        return generate_latest(self._prometheus)

    def values(self) -> Mapping[str, float]:
        """Every sample by ``name`` or ``name{label="value"}``: for tests and for the simulator."""
        samples = {}
        for family in self.collect():
            for sample in family.samples:
                labels = ",".join(f'{key}="{value}"' for key, value in sample.labels.items())
                samples[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
        return samples

    def _add(self, name: str, family: _Family) -> None:
        if name in self._families:
            raise ValueError(f"the metric {name} is declared already")
        self._families[name] = family


class LoopLagProbe:
    """Measures how late the event loop runs a timer that was due: its lag."""

    def __init__(self, clock: Clock, registry: MetricsRegistry) -> None:
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._last_s = 0.0
        self._max_s = 0.0
        registry.gauge(
            "stele_event_loop_lag_seconds",
            "How late the event loop ran its latest timer; the broker's one queue is this loop.",
            lambda: self._last_s,
        )
        registry.gauge(
            "stele_event_loop_lag_max_seconds",
            "The longest event loop lag since the scrape before.",
            self._take_max,
        )

    @property
    def last_s(self) -> float:
        """How late the latest timer ran."""
        return self._last_s

    def start(self) -> None:
        self._arm()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        self._due = self._clock.monotonic() + _LAG_PROBE_INTERVAL_S
        self._timer = asyncio.get_running_loop().call_later(_LAG_PROBE_INTERVAL_S, self._measure)

    def _measure(self) -> None:
        self._last_s = max(0.0, self._clock.monotonic() - self._due)
        self._max_s = max(self._max_s, self._last_s)
        self._arm()

    def _take_max(self) -> float:
        longest, self._max_s = self._max_s, 0.0
        return longest
