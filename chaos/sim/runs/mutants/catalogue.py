"""The planted bugs. A bug that no run catches still stays in this list."""

from __future__ import annotations

from chaos.sim.runs.mutants.administration_catalogue import ADMINISTRATION
from chaos.sim.runs.mutants.answers_catalogue import ANSWERS
from chaos.sim.runs.mutants.deletion_catalogue import DELETION
from chaos.sim.runs.mutants.device_catalogue import DEVICE
from chaos.sim.runs.mutants.identity_catalogue import IDENTITY
from chaos.sim.runs.mutants.isr_catalogue import ISR
from chaos.sim.runs.mutants.metadata_catalogue import MAJORITIES, READS
from chaos.sim.runs.mutants.mutant import Edit, Mutant, bug

RAFT = [
    bug(
        "raft: vote twice in an epoch",
        "raft/election.py",
        "        return replica.voted == candidate\n",
        "        replica.voted = None\n",
        "two_candidates",
    ),
    bug(
        "raft: forget the vote in a crash",
        "raft/core.py",
        "self._replica = Replica(local, voters, log, hard_state, timing, rng",
        "self._replica = Replica(local, voters, log, HardState(hard_state.epoch), timing, rng",
        "two_candidates",
    ),
    bug(
        "raft: vote for a worse log",
        "raft/election.py",
        "    if not replica.log.is_up_to_date(message.last_epoch, message.last_offset):\n",
        "    if False:\n",
        "voter_with_more",
    ),
    bug(
        "raft: answer before the vote is durable",
        "raft/replica.py",
        "        durable = self._promise_ticket <= self._persisted_ticket\n",
        "        durable = True\n",
    ),
    bug(
        "raft: leader counts itself before its log is durable",
        "raft/replica.py",
        "self.log.durable_end_offset",
        "self.log.end_offset",
    ),
    bug(
        "raft: follower fetches on before its log is durable",
        "raft/fetching.py",
        "    if replica.log.durable_end_offset < replica.log.end_offset or not "
        "replica.promises_durable:\n",
        "    if False:\n",
    ),
    bug(
        "raft: never see that logs diverge",
        "raft/replication.py",
        "    if end.epoch == message.last_fetched_epoch and end.end_offset >= "
        "message.fetch_offset:\n",
        "    if message.fetch_offset <= replica.log.end_offset:\n",
        "voter_with_more",
    ),
    bug(
        "raft: half of the voters decide",
        "raft/quorum.py",
        "        return len(self._voters) // 2 + 1\n",
        "        return max(1, len(self._voters) // 2)\n",
    ),
    bug(
        "raft: commit without a majority",
        "raft/replica.py",
        "        offset = self.durable_majority(leader)\n",
        "        offset = self.log.end_offset\n",
    ),
    bug(
        "raft: forget to write the epoch down",
        "raft/replica.py",
        "        self.voted = vote\n        self._promised()\n",
        "        self.voted = vote\n",
    ),
]

# Bugs of the quorum's voters, snapshots and answers.
QUORUM = [
    Mutant(
        # Three checks cover each other: a leader offers no snapshot to a follower whose log it can
        # continue, and the follower refuses one that ends below what it has committed, both at the
        # offer and before it loads it. The bug: a leader with a snapshot offers it to any follower
        # whose log diverges, and the follower trusts it.
        "raft: load a snapshot over what is committed beyond it",
        (
            Edit(
                "raft/replication.py",
                "        if end.end_offset >= log.start_offset:\n",
                "        if end.end_offset >= log.start_offset and replica.snapshot is None:\n",
            ),
            Edit(
                "raft/snapshots.py",
                "    if snapshot.end_offset <= max(replica.high_watermark, "
                "replica.log.start_offset):\n",
                "    if False:\n",
            ),
            Edit(
                "raft/replica.py",
                "        if self.leading is not None or snapshot.end_offset <= "
                "self.high_watermark:\n",
                "        if False:\n",
            ),
        ),
        ("voter_with_more",),
    ),
    Mutant(
        # A replica that needs a snapshot lacks committed records and cannot be elected, and its
        # download ends with its role. So the bug lets every new leader load its own newest
        # snapshot, which drops the log behind it.
        "raft: load a snapshot as leader",
        (
            Edit(
                "raft/replica.py",
                "        self._enter(Leader(self.log.end_offset, progress))\n",
                "        if self.snapshot is not None and self.log.last_epoch >= 0:\n"
                "            self.install(self.snapshot, self.history.at(self.snapshot.end_offset))"
                "\n"
                "            self._ready.install = None\n"
                "        self._enter(Leader(self.log.end_offset, progress))\n",
            ),
            Edit(
                "raft/replica.py",
                "        if self.leading is not None or snapshot.end_offset <= "
                "self.high_watermark:\n",
                "        if False:\n",
            ),
        ),
        ("two_candidates",),
    ),
    bug(
        "raft: change the voters before the change before is committed",
        "raft/membership.py",
        "    if replica.voters_pending:\n        message",
        "    if False:\n        message",
        "changes_at_once",
    ),
    bug(
        "raft: count for a commit by the voters before the newest",
        "raft/replica.py",
        "        return majority_value(self.voters, ends",
        "        return majority_value(self.history.previous, ends",
        "half_of_a_grown_quorum",
    ),
    bug(
        "raft: an emptied disk votes for the one before it",
        "raft/quorum.py",
        "        return not known or self.directory_id == other.directory_id\n",
        "        return not known or True\n",
        "wiped_after_its_vote",
    ),
    bug(
        "raft: answer a read without asking whether it still leads",
        "raft/read_index.py",
        "    return sum(voter in heard for voter in replica.voters.ids) >= "
        "replica.voters.majority\n",
        "    return bool(heard)\n",
        "deposed_controller_answers",
    ),
    bug(
        "raft: a snapshot without its voters",
        "runtime/quorum/snapshot_writer.py",
        "voters if len(voters) else None",
        "None",
    ),
]

CONTROLLER = [
    bug(
        "controller: reply before the commit",
        "controller/active.py",
        "        if not await self._chain.settled():\n            if result.records",
        "        if False:\n            if result.records",
    ),
    bug(
        "controller: take an ISR proposed under a stale partition epoch",
        "controller/isr.py",
        "    if proposal.partition_epoch < state.partition_epoch:\n",
        "    if False:\n",
        "repeated_proposals",
        "deposed_leader_proposes",
    ),
    Mutant(
        # Every change of leader raises the partition epoch, too, so a fenced leader's proposal is
        # stale in both epochs. The bug also skips the check of the partition epoch, but only for
        # proposals of other leader epochs.
        "controller: take an ISR proposed by a fenced leader",
        (
            Edit(
                "controller/isr.py",
                "    if proposal.leader_epoch < state.leader_epoch:\n"
                "        return ErrorCode.FENCED_LEADER_EPOCH\n"
                "    if broker_id != state.leader:\n",
                "    if False:\n",
            ),
            Edit(
                "controller/isr.py",
                "    if proposal.partition_epoch < state.partition_epoch:\n",
                "    if proposal.leader_epoch == state.leader_epoch and (\n"
                "        proposal.partition_epoch < state.partition_epoch\n"
                "    ):\n",
            ),
        ),
        ("deposed_leader_proposes",),
    ),
    bug(
        "controller: let a broker's earlier registration into the ISR",
        "controller/isr.py",
        "            or registration.broker_epoch != member.broker_epoch\n",
        "",
        "outdated_newcomer",
    ),
    bug(
        "controller: elect whoever is there",
        "controller/partitions.py",
        "        return replica in isr and rules.is_active(replica)\n",
        "        return rules.is_active(replica)\n",
    ),
    bug(
        "controller: eligible once is eligible for ever",
        "controller/partitions.py",
        "    if choice.unclean or len(choice.isr) >= enough:\n",
        "    if choice.unclean:\n",
    ),
    bug(
        "controller: tell nobody that an election was unclean",
        "controller/partitions.py",
        "    record.unclean = choice.unclean\n",
        "",
        "unclean_election",
    ),
    bug(
        "controller: a new leader in the old leader epoch",
        "metadata/partitions.py",
        "        leader_epoch=state.leader_epoch + has_leader,\n",
        "        leader_epoch=state.leader_epoch,\n",
    ),
    Mutant(
        # The end of a broker's session takes its leaderships away before it registers again, unless
        # the controller is new as well. So in this bug neither of the two takes them away.
        "controller: a broker that starts anew goes on leading",
        (
            Edit(
                "controller/cluster.py",
                "    _leave(decision, request.broker_id, leaving=frozenset({request.broker_id})"
                ", lost=lost)\n",
                "",
            ),
            Edit(
                "controller/cluster.py",
                "            in_controlled_shutdown=registration.in_controlled_shutdown,\n"
                "        )\n    )\n"
                "    _leave(decision, registration.broker_id, "
                "leaving=frozenset({registration.broker_id}))\n",
                "            in_controlled_shutdown=registration.in_controlled_shutdown,\n"
                "        )\n    )\n",
            ),
        ),
    ),
    bug(
        "controller: a request that comes again takes effect again",
        "controller/request_ids.py",
        "    known = context.image.outcomes.get(request_id)\n",
        "    known = None if request_id else context.image.outcomes.get(request_id)\n",
    ),
    bug(
        "controller: end a move before its target is in sync",
        "controller/assignment.py",
        "    return state.is_reassigning and set(state.target_replicas) <= set(isr)\n",
        "    return state.is_reassigning\n",
    ),
    bug(
        "controller: a snapshot forgets who is fenced",
        "metadata/brokers.py",
        "        fenced=registration.fenced,\n",
        "        fenced=False,\n",
    ),
]

REPLICATION = [
    bug(
        "replication: high watermark over the committed ISR alone",
        "broker/partition/machine.py",
        "            members.update(member.broker_id for member in self._proposal.isr)\n",
        "            pass\n",
        "leader_in_the_dark",
    ),
    bug(
        "replication: leader counts itself before its log is durable",
        "broker/partition/machine.py",
        "        least = self._log.durable_offset\n",
        "        least = self._log.end_offset\n",
    ),
    bug(
        "replication: high watermark without the followers",
        "broker/partition/machine.py",
        "            if progress.end_offset < least and (\n",
        "            if progress.end_offset < -1 and (\n",
    ),
    bug(
        "replication: join the ISR below the high watermark",
        "broker/partition/machine.py",
        ">= max(self.high_watermark, self.epoch_start_offset)",
        ">= 0",
    ),
    bug(
        "replication: join the ISR before the epoch's start",
        "broker/partition/machine.py",
        ">= max(self.high_watermark, self.epoch_start_offset)",
        ">= self.high_watermark",
        "late_high_watermark",
    ),
    bug(
        "replication: acks=1 before the sync",
        "broker/partition/machine.py",
        "        tokens = self._durable.reach(self._log.durable_offset)\n",
        "        tokens = self._durable.reach(self._log.end_offset)\n",
    ),
    bug(
        "replication: acks=all below min.insync.replicas",
        "broker/partition/machine.py",
        "        return len(self._state.isr) < self.min_insync\n",
        "        return False\n",
    ),
    bug(
        "replication: a leader without a lease acknowledges",
        "broker/replication/produce.py",
        "        if self._lease_valid():\n",
        "        if True:\n",
        "part_planes",
    ),
    bug(
        "replication: serve requests of a stale leader epoch",
        "broker/partition/machine.py",
        "            if current_leader_epoch < self._state.leader_epoch:\n",
        "            if False:\n",
        "follower_in_the_dark",
    ),
    bug(
        "replication: follower fetches on before its log is durable",
        "broker/replication/follower.py",
        "replica.log.durable_offset == replica.log.end_offset",
        "replica.log.durable_offset <= replica.log.end_offset",
    ),
    bug(
        "replication: consumers see what is not committed",
        "broker/partition/machine.py",
        "log.end_offset if is_follower else self.high_watermark",
        "log.end_offset",
    ),
    bug(
        "replication: truncate to the high watermark",
        "broker/replication/follower.py",
        "        before = log.end_offset\n",
        "        before = log.end_offset\n        target = replica.machine.high_watermark\n",
        "diverge",
    ),
    bug(
        "replication: never truncate",
        "broker/replication/follower.py",
        "        replica.truncate_to(target)\n",
        "",
    ),
    bug(
        "replication: acknowledge what waits when the ISR becomes too small",
        "broker/partition/machine.py",
        "        if self.is_under_min_isr:\n            tokens = self._replicated.drain()\n",
        "        if False:\n            tokens = self._replicated.drain()\n",
    ),
    bug(
        "replication: acknowledge what waits when leadership is lost",
        "broker/partition/machine.py",
        "            effects.append(Refused(tokens, ErrorCode.NOT_LEADER_OR_FOLLOWER))\n"
        "        effects.append(Followed(",
        "            effects.append(Acknowledged(tokens))\n        effects.append(Followed(",
    ),
    bug(
        "replication: never see that logs diverge",
        "broker/replication/fetch.py",
        "            result.diverging = _divergence(log, entry)\n",
        "            _divergence(log, entry)\n",
    ),
]

STORAGE = [
    bug(
        "storage: durable before the sync",
        "storage/durability.py",
        "        if config.strict_flush:\n            if not self._dirty:\n",
        "        if False:\n            if not self._dirty:\n",
    ),
    bug(
        "storage: forget producers after a truncation",
        "storage/log.py",
        "        replayed = finish(self._disk, replay(self.segments.all(), offset, take))\n",
        "        replayed = finish(self._disk, replay([], offset, take))\n"
        "        self.producers.clear()\n",
        "diverge",
    ),
    bug(
        "storage: keep producers of what was cut",
        "storage/log.py",
        "        self._durability.end_cut(self.end_offset)\n        self._rebuild_producers()\n",
        "        self._durability.end_cut(self.end_offset)\n",
        "diverge",
    ),
    bug(
        "storage: epochs stay when the log is cut",
        "storage/log.py",
        "        self.epochs.truncate_from(self.end_offset)\n",
        "",
        "diverge",
    ),
    bug(
        "storage: drop no duplicates",
        "storage/log.py",
        "            if original is not None:\n",
        "            if False:\n",
    ),
    bug(
        "storage: take batches out of sequence",
        "storage/producer_state.py",
        "        if header.base_sequence != expected:\n",
        "        if False:\n",
    ),
    bug(
        "storage: followers remember no producers",
        "storage/log.py",
        "                self.producers.update(header, header.base_offset, now_ms)\n",
        "                pass\n",
    ),
    bug(
        "storage: recovery believes what was torn",
        "storage/recovery.py",
        "    if at + header.size_bytes <= len(chunk) and not check_crc(chunk, at, header):\n",
        "    if False:\n",
    ),
]

CLIENT = [
    bug(
        "client: repeat a batch without its producer",
        "stele/producer/idempotence.py",
        "        entry.attempt += 1\n",
        "        entry.attempt += 1\n"
        "        if entry.attempt > 1:\n"
        "            entry.identity, entry.sequence = ANONYMOUS, -1\n",
    ),
    Mutant(
        # The broker refuses a batch out of sequence, and the client takes that for a consequence of
        # the failure before, so the client's bug alone does no harm. So the broker lets gaps pass,
        # except for the rude producer (chaos.sim.work.habits), which would notice that alone.
        "client: send on past a batch that failed",
        (
            Edit("stele/producer/idempotence.py", "            and not self.recovering\n", ""),
            Edit(
                "stele/producer/idempotence.py",
                "        if self.recovering or not self.begun:\n",
                "        if not self.begun:\n",
            ),
            Edit(
                "storage/producer_state.py",
                "        if header.base_sequence != expected:\n",
                "        if header.producer_id >= 9_000_000 and "
                "header.base_sequence != expected:\n",
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
                "            if header.next_offset <= self.fetch_offset:\n",
                "            if False:\n",
            ),
            Edit(
                "stele/consumer/positions.py",
                "            self.fetch_offset = header.next_offset\n",
                "            self.fetch_offset = header.base_offset\n",
            ),
            Edit(
                "stele/consumer/positions.py",
                "            if offset >= position\n",
                "            if offset >= 0\n",
            ),
        ),
    ),
    bug(
        "client: skip what follows a batch",
        "stele/consumer/positions.py",
        "            self.fetch_offset = header.next_offset\n",
        "            self.fetch_offset = header.next_offset + 1\n",
    ),
    bug(
        "client: number a batch anew when it is repeated",
        "stele/producer/idempotence.py",
        "        entry.in_flight = True\n",
        "        entry.in_flight = True\n"
        "        if entry.attempt and self.numbered:\n"
        "            entry.sequence = self.next_sequence\n"
        "            self.next_sequence = (entry.sequence + entry.record_count) & SEQUENCE_MASK\n",
    ),
]

MUTANTS = [
    *RAFT,
    *QUORUM,
    *MAJORITIES,
    *READS,
    *CONTROLLER,
    *ISR,
    *ADMINISTRATION,
    *REPLICATION,
    *STORAGE,
    *DEVICE,
    *ANSWERS,
    *IDENTITY,
    *DELETION,
    *CLIENT,
]
