"""Planted bugs of deletions and of added partitions."""

from __future__ import annotations

from chaos.sim.runs.mutants.mutant import Edit, Mutant, bug
from chaos.sim.work.load import LoadKind

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
    Mutant(
        "controller: forget the refusal of a copy with the leadership",
        (
            Edit(
                "controller/request_ids.py",
                "once",
                "repeats and context.image.outcomes.get(request_id) is None",
                "False",
            ),
            Edit(
                "controller/request_ids.py",
                "once",
                "if repeats:\n    return _written_refusal("
                "context, refusal, result.reply, refusals)",
                "",
            ),
        ),
        load=LoadKind.LIGHT,
    ),
]
