"""``stele size``: how many brokers, how much disk and network a load needs, from measured costs."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Annotated, Final

import typer

from cli.group.times import length_ms
from cli.options import Json
from cli.output import print_json, print_table

# What docs/benchmarks.md measured with RF 3 and acks=all, all brokers together.
_WRITE_MS_PER_REQUEST: Final = 1.2
_WRITE_MS_PER_MB: Final = 5.7
_READ_MS_PER_ANSWER: Final = 0.12
_READ_MS_PER_MB: Final = 0.42
_MEASURED_RF: Final = 3

_BUSY: Final = 0.5
"""A broker is one core. Beyond half of it the time to an acknowledgement grows."""

_BUSY_WITHOUT_ONE: Final = 0.7
"""The same while one broker is down."""

_DISK_FULL: Final = 0.75
"""How full disks may be: segments that are about to be deleted, compaction, moves."""

_NODE_MIB: Final = 128
_CACHED_S: Final = 600
"""Consumers that are so far behind still read from memory."""


@dataclass(frozen=True, slots=True)
class Load:
    """``mb_per_s``: what producers send, compressed as it is. ``batch_kib``: of one partition in a
    request. ``groups``: each reads everything once."""

    mb_per_s: float
    retention_s: float
    replication_factor: int = 3
    batch_kib: float = 64
    groups: int = 1


@dataclass(frozen=True, slots=True)
class Size:
    """What a load needs. MB and GB are powers of ten."""

    cores: float
    brokers: int
    disk_gb_per_broker: float
    disk_write_mb_per_s_per_broker: float
    network_in_mb_per_s_per_broker: float
    network_out_mb_per_s_per_broker: float
    memory_gib_per_broker: float


def size_of(load: Load) -> Size:
    """The least that serves the load, also while one broker is down."""
    batches_per_s = load.mb_per_s * 1e6 / (load.batch_kib * 1024)
    write_ms = batches_per_s * _WRITE_MS_PER_REQUEST + load.mb_per_s * _WRITE_MS_PER_MB
    read_ms = batches_per_s * _READ_MS_PER_ANSWER + load.mb_per_s * _READ_MS_PER_MB
    copies = load.replication_factor / _MEASURED_RF
    cores = (write_ms * copies + read_ms * load.groups) / 1000
    brokers = max(
        load.replication_factor,
        math.ceil(cores / _BUSY),
        math.ceil(cores / _BUSY_WITHOUT_ONE) + 1,
    )
    stored_mb_per_s = load.mb_per_s * load.replication_factor / brokers
    sent = load.replication_factor - 1 + load.groups
    return Size(
        cores=cores,
        brokers=brokers,
        disk_gb_per_broker=stored_mb_per_s * load.retention_s / 1000 / _DISK_FULL,
        disk_write_mb_per_s_per_broker=stored_mb_per_s,
        network_in_mb_per_s_per_broker=stored_mb_per_s,
        network_out_mb_per_s_per_broker=load.mb_per_s * sent / brokers,
        memory_gib_per_broker=_NODE_MIB / 1024 + stored_mb_per_s * _CACHED_S * 1e6 / 2**30,
    )


def size(
    mb_per_s: Annotated[
        float, typer.Option("--mb-per-s", min=0.001, help="MB per second that producers send.")
    ],
    retention: Annotated[
        str, typer.Option("--retention", metavar="TIME", help="How long it is kept: 3d, 12h.")
    ] = "7d",
    replication_factor: Annotated[
        int, typer.Option("--replication-factor", min=1, help="Copies of each partition.")
    ] = 3,
    batch_kib: Annotated[
        float, typer.Option("--batch-kib", min=0.1, max=1024, help="KiB of a producer's batch.")
    ] = 64,
    groups: Annotated[
        int, typer.Option("--groups", min=0, help="Consumer groups that read everything.")
    ] = 1,
    as_json: Json = False,
) -> None:
    """Say how many brokers a load needs, and how much disk, network and memory each of them.

    The costs were measured on one class of machine (docs/benchmarks.md): measure on yours.
    """
    retention_s = length_ms(retention) / 1000
    found = size_of(Load(mb_per_s, retention_s, replication_factor, batch_kib, groups))
    if as_json:
        print_json(asdict(found))
        return
    print_table(("WHAT", "NEEDED"), _rows(found))


def _rows(found: Size) -> list[tuple[str, str]]:
    return [
        ("brokers (one core each)", f"{found.brokers}"),
        ("CPU of all brokers", f"{found.cores:.1f} cores"),
        ("disk of each broker", f"{_rounded(found.disk_gb_per_broker)} GB"),
        ("written to it", f"{_rounded(found.disk_write_mb_per_s_per_broker)} MB/s"),
        ("network into each broker", f"{_rounded(found.network_in_mb_per_s_per_broker)} MB/s"),
        ("network out of it", f"{_rounded(found.network_out_mb_per_s_per_broker)} MB/s"),
        ("memory, 10 minutes of records cached", f"{_rounded(found.memory_gib_per_broker)} GiB"),
        ("controllers", "3, with 10 GB of disk and 1 GiB of memory each"),
    ]


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
