"""What is counted of acknowledged records, and the lines of Kafka's kafka-producer-perf-test."""

from __future__ import annotations

from cli.perf.latencies import Latencies

_MB = 1024 * 1024


class _Window:
    """The records between two lines."""

    def __init__(self, began_s: float) -> None:
        self.began_s = began_s
        self.bytes = 0
        self.latencies = Latencies()

    def add(self, latency_s: float, size: int) -> None:
        self.bytes += size
        self.latencies.add(latency_s)


class SendStats:
    """Latencies are times from when a record was to be sent to its acknowledgement."""

    def __init__(self, began_s: float, *, is_steady: bool = False) -> None:
        """``is_steady``: these are the records after the warm-up."""
        self._all = _Window(began_s)
        self._window = _Window(began_s)
        self._is_steady = is_steady

    @property
    def records(self) -> int:
        return self._all.latencies.count

    def add(self, latency_s: float, size: int) -> None:
        self._all.add(latency_s, size)
        self._window.add(latency_s, size)

    def take_window(self, now_s: float) -> str | None:
        """The line for the time since the line before. None: no record was acknowledged."""
        window, self._window = self._window, _Window(now_s)
        if not window.latencies.count:
            return None
        per_s, mb_per_s = _rates(window, now_s)
        return (
            f"{window.latencies.count} records sent, {per_s:.1f} records/sec "
            f"({mb_per_s:.2f} MB/sec), {window.latencies.mean_ms:.1f} ms avg latency, "
            f"{window.latencies.max_ms:.1f} ms max latency."
        )

    def total(self, now_s: float) -> str:
        latencies = self._all.latencies
        if not latencies.count:
            return "0 records sent."
        per_s, mb_per_s = _rates(self._all, now_s)
        percentiles = ", ".join(
            f"{value:.0f} ms {each:g}th" for each, value in latencies.percentiles_ms().items()
        )
        return (
            f"{latencies.count}{' steady state' if self._is_steady else ''} records sent, "
            f"{per_s:f} records/sec ({mb_per_s:.2f} MB/sec), {latencies.mean_ms:.2f} ms avg "
            f"latency, {latencies.max_ms:.2f} ms max latency, {percentiles}."
        )

    def summary(self, now_s: float) -> dict[str, object]:
        """For JSON."""
        per_s, mb_per_s = _rates(self._all, now_s)
        return {
            "records": self.records,
            "bytes": self._all.bytes,
            "seconds": round(now_s - self._all.began_s, 3),
            "records_per_sec": round(per_s, 3),
            "mb_per_sec": round(mb_per_s, 3),
            "latency": self._all.latencies.summary(),
        }


def _rates(window: _Window, now_s: float) -> tuple[float, float]:
    """Records and MB (of 1,048,576 bytes) per second."""
    elapsed_s = max(now_s - window.began_s, 1e-6)
    return window.latencies.count / elapsed_s, window.bytes / elapsed_s / _MB
