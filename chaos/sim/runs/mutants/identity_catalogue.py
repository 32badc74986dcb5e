"""Planted bugs of logs that are taken for others of their name, and of what time does to logs."""

from __future__ import annotations

from chaos.sim.runs.mutants.mutant import bug

IDENTITY = [
    bug(
        "storage: go by a log's name while a checkpoint is under way",
        "storage/offset_checkpoints.py",
        "OffsetCheckpoints._entry",
        "file.claims.get(log)",
        "next((each for other, each in file.claims.items() if other.key == key), None)",
    ),
    bug(
        "storage: take a requirement away with a sync that began before it",
        "storage/durability.py",
        "Durability.finish",
        "self._unsynced_paths.get(path, ticket.requirements) <= ticket.requirements",
        "True",
    ),
    bug(
        "storage: forget producers by the time of their records",
        "storage/producer_state.py",
        "ProducerStates.update",
        "header.max_timestamp_ms if header.is_log_append_time else now_ms",
        "header.max_timestamp_ms",
    ),
    bug(
        "storage: let retention take what is not committed",
        "storage/retention.py",
        "retained_from",
        "segment.end_offset > stable_offset",
        "segment.end_offset > log.end_offset",
    ),
    bug(
        "replication: believe the greatest timestamp that a producer claims",
        "broker/replication/produce.py",
        "_corrected",
        "newest_ms == header.max_timestamp_ms",
        "True",
    ),
    bug(
        "replication: keep the CRC of a batch that is compressed anew",
        "stele/wire/batch.py",
        "stamp_body",
        "seal(batch, 0, len(batch))",
        "",
    ),
]
