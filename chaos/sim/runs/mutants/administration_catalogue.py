"""Planted bugs of deletions and of added partitions."""

from __future__ import annotations

from chaos.sim.runs.mutants.mutant import bug

ADMINISTRATION = [
    bug(
        "broker: answer a deletion that only the leader has made",
        "broker/partition/view.py",
        "PartitionView.low_watermark",
        "min((self._log.start_offset, *self._followers.start_offsets(may_lead)))",
        "self._log.start_offset",
    ),
    bug(
        "controller: add one partition more than was asked for",
        "controller/partition_counts.py",
        "_replicas",
        "range(added)",
        "range(added + 1)",
    ),
]
