"""The planted bugs. None leaves this list because it is not caught."""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """A change of one file's text; ``old`` stands in it exactly once."""

    name: str
    path: str
    old: str
    new: str


RAFT = [
    Mutant(
        "raft: vote twice in an epoch",
        "raft/election.py",
        "        return replica.voted == candidate\n",
        "        replica.voted = None\n",
    ),
    Mutant(
        "raft: forget the vote in a crash",
        "raft/core.py",
        "self._replica = Replica(local, voters, log, hard_state, timing, rng",
        "self._replica = Replica(local, voters, log, HardState(hard_state.epoch), timing, rng",
    ),
    Mutant(
        "raft: vote for a worse log",
        "raft/election.py",
        "    if not replica.log.is_up_to_date(message.last_epoch, message.last_offset):\n",
        "    if False:\n",
    ),
    Mutant(
        "raft: answer before the vote is durable",
        "raft/replica.py",
        "        durable = self._promise_ticket <= self._persisted_ticket\n",
        "        durable = True\n",
    ),
    Mutant(
        "raft: leader counts itself before its log is durable",
        "raft/replica.py",
        "self.log.durable_end_offset",
        "self.log.end_offset",
    ),
    Mutant(
        "raft: follower fetches on before its log is durable",
        "raft/replication.py",
        "    if replica.log.durable_end_offset < replica.log.end_offset or not "
        "replica.promises_durable:\n",
        "    if False:\n",
    ),
    Mutant(
        "raft: never see that logs diverge",
        "raft/replication.py",
        "    if end.epoch == message.last_fetched_epoch and end.end_offset >= "
        "message.fetch_offset:\n",
        "    if message.fetch_offset <= replica.log.end_offset:\n",
    ),
]

CONTROLLER = [
    Mutant(
        "controller: reply before the commit",
        "controller/active.py",
        "        if not await self._chain.settled():\n            if wrote:",
        "        if False:\n            if wrote:",
    ),
    Mutant(
        "controller: take an ISR proposed under a stale partition epoch",
        "controller/isr.py",
        "    if proposal.partition_epoch < state.partition_epoch:\n",
        "    if False:\n",
    ),
    Mutant(
        "controller: take an ISR proposed by a fenced leader",
        "controller/isr.py",
        "    if proposal.leader_epoch < state.leader_epoch:\n"
        "        return ErrorCode.FENCED_LEADER_EPOCH\n"
        "    if broker_id != state.leader:\n",
        "    if False:\n",
    ),
    Mutant(
        "controller: let a broker's earlier registration into the ISR",
        "controller/isr.py",
        "            or registration.broker_epoch != member.broker_epoch\n",
        "",
    ),
]

REPLICATION = [
    Mutant(
        "replication: high watermark over the committed ISR alone",
        "broker/partition.py",
        "            members.update(member.broker_id for member in self._proposal.isr)\n",
        "            pass\n",
    ),
    Mutant(
        "replication: leader counts itself before its log is durable",
        "broker/partition.py",
        "        least = self._log.durable_offset\n",
        "        least = self._log.end_offset\n",
    ),
    Mutant(
        "replication: high watermark without the followers",
        "broker/partition.py",
        "            if progress.end_offset < least and (\n",
        "            if progress.end_offset < -1 and (\n",
    ),
    Mutant(
        "replication: join the ISR below the high watermark",
        "broker/partition.py",
        ">= max(self.high_watermark, self.epoch_start_offset)",
        ">= 0",
    ),
    Mutant(
        "replication: join the ISR before the epoch's start",
        "broker/partition.py",
        ">= max(self.high_watermark, self.epoch_start_offset)",
        ">= self.high_watermark",
    ),
    Mutant(
        "replication: acks=1 before the sync",
        "broker/partition.py",
        "        tokens = self._durable.reach(self._log.durable_offset)\n",
        "        tokens = self._durable.reach(self._log.end_offset)\n",
    ),
    Mutant(
        "replication: acks=all below min.insync.replicas",
        "broker/partition.py",
        "        return len(self._state.isr) < self.min_insync\n",
        "        return False\n",
    ),
    Mutant(
        "replication: a leader without a lease acknowledges",
        "broker/replicas_produce.py",
        "        if self._lease_valid():\n",
        "        if True:\n",
    ),
    Mutant(
        "replication: serve requests of a stale leader epoch",
        "broker/partition.py",
        "            if current_leader_epoch < self._state.leader_epoch:\n",
        "            if False:\n",
    ),
    Mutant(
        "replication: follower fetches on before its log is durable",
        "broker/follower.py",
        "log.durable_offset == log.end_offset",
        "log.durable_offset <= log.end_offset",
    ),
    Mutant(
        "replication: consumers see what is not committed",
        "broker/replicas_fetch.py",
        "log.end_offset if query.replica_id >= 0 else machine.high_watermark",
        "log.end_offset",
    ),
    Mutant(
        "replication: truncate to the high watermark",
        "broker/follower.py",
        "        before = log.end_offset\n",
        "        before = log.end_offset\n        target = replica.machine.high_watermark\n",
    ),
    Mutant(
        "replication: never truncate",
        "broker/follower.py",
        "        log.truncate_to(target)\n",
        "",
    ),
]

STORAGE = [
    Mutant(
        "storage: durable before the sync",
        "storage/log.py",
        "        if self.config.strict_flush:\n            if not self._dirty:\n",
        "        if False:\n            if not self._dirty:\n",
    ),
    Mutant(
        "storage: forget producers after a truncation",
        "storage/log.py",
        "        replay(self.segments.all(), offset, self.producers.update_from)\n",
        "        self.producers.clear()\n",
    ),
    Mutant(
        "storage: keep producers of what was cut",
        "storage/log.py",
        "        self._unflushed_records = 0\n        self._rebuild_producers()\n",
        "        self._unflushed_records = 0\n",
    ),
    Mutant(
        "storage: epochs stay when the log is cut",
        "storage/log.py",
        "        self.epochs.truncate_from(self.end_offset)\n",
        "",
    ),
    Mutant(
        "storage: drop no duplicates",
        "storage/log.py",
        "            if original is not None:\n",
        "            if False:\n",
    ),
    Mutant(
        "storage: take batches out of sequence",
        "storage/producer_state.py",
        "        if header.base_sequence != expected:\n",
        "        if False:\n",
    ),
    Mutant(
        "storage: followers remember no producers",
        "storage/log.py",
        "                self.producers.update(header, header.base_offset)\n",
        "                pass\n",
    ),
]

CLIENT = [
    Mutant(
        "client: repeat a batch without its producer",
        "stele/idempotence.py",
        "        entry.attempt += 1\n",
        "        entry.attempt += 1\n"
        "        if entry.attempt > 1:\n"
        "            entry.identity, entry.sequence = ANONYMOUS, -1\n",
    ),
    Mutant(
        "client: send on past a batch that failed",
        "stele/idempotence.py",
        "            and not self.recovering\n",
        "",
    ),
    Mutant(
        "client: read a batch twice",
        "stele/positions.py",
        "            if header.next_offset <= self.fetch_offset:\n",
        "            if False:\n",
    ),
    Mutant(
        "client: skip what follows a batch",
        "stele/positions.py",
        "            self.fetch_offset = header.next_offset\n",
        "            self.fetch_offset = header.next_offset + 1\n",
    ),
]

MUTANTS = [*RAFT, *CONTROLLER, *REPLICATION, *STORAGE, *CLIENT]
