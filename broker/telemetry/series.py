"""The newest values that clients have pushed: time series, as many as may be shown."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from broker.telemetry.otlp import Attributes, Point

_CLIENT_SHARE: Final = 4
"""One client has a quarter of all series at most."""


class ClientLabels(NamedTuple):
    """The client that pushes, as the broker knows it."""

    user: str
    client_id: str
    client_instance_id: str
    software: str


class Series(NamedTuple):
    """One time series, with its newest value."""

    client: ClientLabels
    name: str
    attributes: Attributes
    value: float


_Key = tuple[str, Attributes]


class _Client:
    """The series of one client."""

    __slots__ = ("expires_s", "labels", "values")

    def __init__(self, labels: ClientLabels) -> None:
        self.labels = labels
        self.expires_s = 0.0
        self.values: OrderedDict[_Key, float] = OrderedDict()


class SeriesStore:
    """A bounded number of series. The clients that were silent longest go first."""

    def __init__(self, most: int) -> None:
        self._most: Final = most
        self._most_of_client: Final = max(1, most // _CLIENT_SHARE)
        self._clients: OrderedDict[str, _Client] = OrderedDict()  # silent longest first
        self._count = 0
        self.left_out = 0  # points for which there was no room

    def __len__(self) -> int:
        return self._count

    def begin(self, labels: ClientLabels, now_s: float, lives_s: float) -> None:
        """A push of this client comes. Its series live for so long if no other push comes."""
        client = self._clients.get(labels.client_instance_id)
        if client is None or client.labels != labels:
            self.forget(labels.client_instance_id)
            client = self._clients[labels.client_instance_id] = _Client(labels)
        client.expires_s = now_s + lives_s
        self._clients.move_to_end(labels.client_instance_id)
        if len(self._clients) > self._most:
            self._forget_oldest()

    def take(self, client_instance_id: str, point: Point) -> None:
        """A point of a push that began. A delta is added to what the client has pushed before."""
        client = self._clients.get(client_instance_id)
        if client is None:
            self.left_out += 1
            return
        key = point.name, point.attributes
        before = client.values.get(key)
        if before is None:
            if len(client.values) >= self._most_of_client:
                self.left_out += 1
                return
            while self._count >= self._most:
                self._forget_oldest()
            if client_instance_id not in self._clients:  # it was the only one
                self.left_out += 1
                return
            self._count += 1
        client.values[key] = point.value + (before or 0.0) if point.is_delta else point.value

    def forget(self, client_instance_id: str) -> None:
        """The client has gone, or is another one now."""
        client = self._clients.pop(client_instance_id, None)
        if client is not None:
            self._count -= len(client.values)

    def _forget_oldest(self) -> None:
        self.forget(next(iter(self._clients)))

    def all(self, now_s: float) -> Iterator[Series]:
        """The series that have not expired."""
        for instance_id, client in list(self._clients.items()):
            if client.expires_s <= now_s:
                self.forget(instance_id)
                continue
            for (name, attributes), value in client.values.items():
                yield Series(client.labels, name, attributes, value)


class Figures(NamedTuple):
    """The worst that the clients of a user and client id have pushed. None: they push none."""

    lag: float | None = None
    """Records that a consumer is behind the end of a partition."""
    latency_ms: float | None = None
    """The average time of a request."""


_LAG: Final = ".records.lag.max"
_LATENCIES: Final = (".request.latency.avg", ".fetch.latency.avg")


def figures_of(series: Iterable[Series]) -> dict[tuple[str, str], Figures]:
    """By user and client id. A value that is no number, which Java's client pushes while it has
    measured nothing, counts as none."""
    found: dict[tuple[str, str], Figures] = {}
    for each in series:
        is_lag = each.name.endswith(_LAG)
        if (not is_lag and not each.name.endswith(_LATENCIES)) or not math.isfinite(each.value):
            continue
        key = each.client.user, each.client.client_id
        lag, latency_ms = found.get(key, _NO_FIGURES)
        if is_lag:
            lag = each.value if lag is None else max(lag, each.value)
        else:
            latency_ms = each.value if latency_ms is None else max(latency_ms, each.value)
        found[key] = Figures(lag, latency_ms)
    return found


_NO_FIGURES: Final = Figures()
