"""Planted bugs of our own clients."""

from __future__ import annotations

from chaos.sim.runs.mutants.mutant import Edit, Mutant, bug

CLIENT = [
    bug(
        "client: repeat a batch without its producer",
        "stele/producer/idempotence.py",
        "Lane.sending",
        "entry.attempt += 1",
        "entry.attempt += 1\n"
        "if entry.attempt > 1:\n"
        "    entry.identity, entry.sequence = ANONYMOUS, -1",
    ),
    Mutant(
        # The broker refuses a batch out of sequence, and the client takes that for a consequence of
        # the failure before, so the client's bug alone does no harm. So the broker lets gaps pass,
        # except for the rude producer (chaos.sim.work.habits), which would notice that alone.
        "client: send on past a batch that failed",
        (
            Edit("stele/producer/idempotence.py", "Lane.may_admit", "not self.recovering", ""),
            Edit(
                "stele/producer/idempotence.py",
                "Lane.to_resend",
                "self.recovering",
                "",
            ),
            Edit(
                "storage/producer_state.py",
                "ProducerStates.check",
                "header.base_sequence != expected",
                "header.producer_id >= 9_000_000 and header.base_sequence != expected",
            ),
        ),
        ("shrink_under_writers", "late_high_watermark"),
    ),
    Mutant(
        # Brokers return nothing below the requested offset, and the client drops records that it
        # handed out already when it decodes a batch. So the bug makes the client ask again for a
        # batch that it has, and drop nothing.
        "client: read a batch twice",
        (
            Edit(
                "stele/consumer/positions.py",
                "PartitionPosition.take_fetched",
                "header.next_offset <= self.fetch_offset",
                "False",
            ),
            Edit(
                "stele/consumer/positions.py",
                "PartitionPosition.take_fetched",
                "self.fetch_offset = header.next_offset",
                "self.fetch_offset = header.base_offset",
            ),
            Edit(
                "stele/consumer/positions.py",
                "RawBatch._wanted",
                "record.offset >= first_offset",
                "record.offset >= 0",
            ),
        ),
    ),
    bug(
        "client: skip what follows a batch",
        "stele/consumer/positions.py",
        "PartitionPosition.take_fetched",
        "self.fetch_offset = header.next_offset",
        "self.fetch_offset = header.next_offset + 1",
    ),
    bug(
        "client: number a batch anew when it is repeated",
        "stele/producer/idempotence.py",
        "Lane.sending",
        "entry.in_flight = True",
        "entry.in_flight = True\n"
        "if entry.attempt and self.numbered:\n"
        "    entry.sequence = self.next_sequence\n"
        "    self.next_sequence = (entry.sequence + entry.record_count) & SEQUENCE_MASK",
    ),
    bug(
        # A poll that is broken off here has moved the position, and returns nothing.
        "client: wait between taking records and returning them",
        "stele/consumer/consumer.py",
        "Consumer._polled",
        "return taken",
        "await asyncio.sleep(0.02)\nreturn taken",
    ),
]
