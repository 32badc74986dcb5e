"""Metrics of the process, named as Prometheus' client libraries name them, and the version.

A node is one event loop, so ``1 - rate(process_cpu_seconds_total)`` is the part of the time in
which it is idle: what Kafka calls RequestHandlerAvgIdlePercent.
"""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path
from typing import Final

from runtime.metrics.registry import MetricsRegistry

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def declare_process_metrics(registry: MetricsRegistry, version: str) -> None:
    """Declare the kernel's figures of this process; they are read at each scrape."""
    began_s = time.time()
    registry.total(
        "process_cpu_seconds",
        "CPU time, without that of helper processes; 1 - rate of it is the idle ratio of the node"
        " (RequestHandlerAvgIdlePercent).",
        _cpu_s,
    )
    registry.gauge(
        "process_resident_memory_bytes", "Memory of this process (HeapMemoryUsage).", _memory_bytes
    )
    registry.gauge(
        "process_open_fds", "File handles in use (OpenFileDescriptorCount).", _open_handles
    )
    registry.gauge(
        "process_max_fds",
        "File handles that the process may use (MaxFileDescriptorCount).",
        lambda: float(resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
    )
    registry.gauge(
        "process_start_time_seconds",
        "When the process started, since the epoch (StartTime).",
        lambda: began_s,
    )
    registry.gauges(
        "stele_build_info",
        "1 for the version that runs (kafka.server app-info version).",
        "version",
        lambda: {version: 1.0},
    )


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _memory_bytes() -> float:
    try:
        return float(int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES)
    except OSError:  # not Linux: there is only the peak
        return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def _open_handles() -> float:
    try:
        return float(len(os.listdir("/proc/self/fd")))
    except OSError:  # not Linux
        return -1.0
