"""The records of a piece of a message, put together into runs for their partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from broker.gateway.lanes import BATCH_BYTES
from broker.gateway.publishers import Publisher
from broker.gateway.record_checks import Writable
from broker.gateway.runs import EncodedAs, Receipt, Run
from broker.gateway.shared_writers import SharedWriters, Way
from stele.producer.partitioner import partition_of_hash, remembered_partition_of

RUN_RECORDS_MAX: Final = 500


class HoldingReceipt(Receipt, Protocol):
    """Takes what became of records, and holds their bytes until then."""

    def held(self, size: int) -> None:
        """``size`` more bytes wait for their outcome."""
        ...


class PieceRuns:
    """The runs of one piece, until they are written."""

    def __init__(
        self,
        publication: HoldingReceipt,
        shared: SharedWriters,
        way: Way,
        publisher: Publisher | None,
    ) -> None:
        self._publication = publication
        self._shared = shared
        self._way = way
        self._publisher = publisher
        self._runs: dict[tuple[Writable, int], Run] = {}
        self._keyless: dict[Writable, int] = {}  # the partition that was chosen last

    def choose(
        self, topic: Writable, key: bytes | None, size: int, hashes: Mapping[bytes, int]
    ) -> int:
        """The partition of a record that names none. ``hashes``: of long keys."""
        if key is not None:
            known = hashes.get(key)
            if known is not None:
                return partition_of_hash(known, topic.partition_count)
            return remembered_partition_of(key, topic.partition_count)
        chosen = self._shared.keyless.choose(topic.topic.topic_id, topic.available, size)
        self._keyless[topic] = chosen
        return chosen

    def add(
        self,
        topic: Writable,
        partition: int,
        sequence: int | None,
        number: int,
        record: EncodedAs,
        size: int,
    ) -> None:
        run = self._runs.get((topic, partition))
        if run is not None and (
            run.size + size > topic.batch_bytes
            or len(run.records) >= RUN_RECORDS_MAX
            or (sequence is not None and sequence != run.next_sequence)
        ):
            self._write(topic, partition, self._runs.pop((topic, partition)))
            run = None
        if run is None:
            run = Run(self._publication, base_sequence=-1 if sequence is None else sequence)
            self._runs[topic, partition] = run
        run.records.append(record)
        run.numbers.append(number)
        run.size += size

    def write(self) -> None:
        """Hand all runs to their lanes. The runs of a partition keep their order."""
        runs, self._runs = self._runs, {}
        for (topic, partition), run in runs.items():
            self._write(topic, partition, run)

    def _write(self, topic: Writable, partition: int, run: Run) -> None:
        self._publication.held(run.size)
        name = topic.partitions[partition]
        if self._publisher is not None:
            self._publisher.add(name, run, topic.batch_bytes)
            return
        goes_at_once = self._shared.add(self._way, name, run, topic.batch_bytes)
        is_small = run.size < BATCH_BYTES // 2
        if goes_at_once and is_small and self._keyless.get(topic) == partition:
            self._shared.keyless.move_on(topic.topic.topic_id, topic.available)
