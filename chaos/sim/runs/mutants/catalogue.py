"""The planted bugs. A bug that no run catches still stays in this list."""

from __future__ import annotations

from chaos.sim.runs.mutants.access_catalogue import ACCESS, QUOTAS, TELEMETRY
from chaos.sim.runs.mutants.administration_catalogue import ADMINISTRATION
from chaos.sim.runs.mutants.cleaner_catalogue import CLEANER
from chaos.sim.runs.mutants.client_catalogue import CLIENT
from chaos.sim.runs.mutants.consumer_catalogue import CONSUMERS
from chaos.sim.runs.mutants.deletion_catalogue import DELETION
from chaos.sim.runs.mutants.device_catalogue import DEVICE
from chaos.sim.runs.mutants.group_catalogue import GROUPS
from chaos.sim.runs.mutants.identity_catalogue import IDENTITY
from chaos.sim.runs.mutants.isr_catalogue import ISR
from chaos.sim.runs.mutants.listener_catalogue import LISTENERS
from chaos.sim.runs.mutants.metadata_catalogue import MAJORITIES, READS
from chaos.sim.runs.mutants.mutant import Edit, Mutant, bug
from chaos.sim.runs.mutants.nearby_catalogue import NEARBY
from chaos.sim.runs.mutants.rare_catalogue import RARE
from chaos.sim.runs.mutants.share_catalogue import SHARES
from chaos.sim.runs.mutants.token_catalogue import TOKENS
from chaos.sim.runs.mutants.transaction_catalogue import TRANSACTIONS

RAFT = [
    bug(
        "raft: vote twice in an epoch",
        "raft/election.py",
        "_vote",
        "return replica.voted == candidate",
        "replica.voted = None",
        "two_candidates",
    ),
    bug(
        "raft: forget the vote in a crash",
        "raft/core.py",
        "RaftCore.__init__",
        "RaftReplica(local, voters, log, hard_state, timing, rng)",
        "RaftReplica(local, voters, log, HardState(hard_state.epoch), timing, rng)",
        "two_candidates",
    ),
    bug(
        "raft: vote for a worse log",
        "raft/election.py",
        "_vote",
        "not replica.log.is_up_to_date(message.last_epoch, message.last_offset)",
        "False",
        "voter_with_more",
    ),
    bug(
        "raft: answer before the vote is durable",
        "raft/replica.py",
        "RaftReplica.take_ready",
        "self._promise_ticket <= self._persisted_ticket",
        "True",
    ),
    bug(
        "raft: leader counts itself before its log is durable",
        "raft/replica.py",
        "RaftReplica.durable_majority",
        "self.log.durable_end_offset",
        "self.log.end_offset",
    ),
    bug(
        "raft: follower fetches on before its log is durable",
        "raft/fetching.py",
        "fetch_at",
        "replica.log.durable_end_offset < replica.log.end_offset or not replica.promises_durable",
        "False",
    ),
    bug(
        "raft: never see that logs diverge",
        "raft/replication.py",
        "_divergence",
        "end.epoch == message.last_fetched_epoch and end.end_offset >= message.fetch_offset",
        "message.fetch_offset <= replica.log.end_offset",
        "voter_with_more",
    ),
    bug(
        "raft: half of the voters decide",
        "raft/quorum.py",
        "VoterSet.majority",
        "len(self._voters) // 2 + 1",
        "max(1, len(self._voters) // 2)",
    ),
    bug(
        "raft: commit without a majority",
        "raft/replica.py",
        "RaftReplica.commit",
        "self.durable_majority(leader)",
        "self.log.end_offset",
    ),
    bug(
        "raft: forget to write the epoch down",
        "raft/replica.py",
        "RaftReplica.enter_epoch",
        "self._promised()",
        "",
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
                "_divergence",
                "end.end_offset >= log.start_offset",
                "end.end_offset >= log.start_offset and replica.snapshot is None",
            ),
            Edit(
                "raft/snapshots.py",
                "begin",
                "snapshot.end_offset <= max(replica.high_watermark, replica.log.start_offset)",
                "False",
            ),
            Edit(
                "raft/replica.py",
                "RaftReplica.install",
                "self.leading is not None or snapshot.end_offset <= self.high_watermark",
                "False",
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
                "RaftReplica.become_leader",
                "self._enter(Leader(self.log.end_offset, progress))",
                "if self.snapshot is not None and self.log.last_epoch >= 0:\n"
                "    self.install(self.snapshot, self.history.at(self.snapshot.end_offset))\n"
                "    self._ready.install = None\n"
                "self._enter(Leader(self.log.end_offset, progress))",
            ),
            Edit(
                "raft/replica.py",
                "RaftReplica.install",
                "self.leading is not None or snapshot.end_offset <= self.high_watermark",
                "False",
            ),
        ),
        ("two_candidates",),
    ),
    bug(
        "raft: change the voters before the change before is committed",
        "raft/membership.py",
        "_refused_now",
        "replica.voters_pending",
        "False",
        "changes_at_once",
    ),
    bug(
        "raft: count for a commit by the voters before the newest",
        "raft/replica.py",
        "RaftReplica.durable_majority",
        "self.voters",
        "self.history.previous",
        "half_of_a_grown_quorum",
    ),
    bug(
        "raft: an emptied disk votes for the one before it",
        "raft/quorum.py",
        "ReplicaKey.matches",
        "self.directory_id == other.directory_id",
        "True",
        "wiped_after_its_vote",
    ),
    bug(
        "raft: answer a read without asking whether it still leads",
        "raft/read_index.py",
        "_is_confirmed",
        "sum(voter in heard for voter in replica.voters.ids) >= replica.voters.majority",
        "bool(heard)",
        "deposed_controller_answers",
    ),
    bug(
        "raft: a snapshot without its voters",
        "runtime/quorum/snapshot_writer.py",
        "SnapshotWriter.take_if_due",
        "voters if len(voters) else None",
        "None",
    ),
]

CONTROLLER = [
    bug(
        "controller: reply before the commit",
        "controller/active.py",
        "DecisionMaker.decide",
        "if not await self._chain.settled():\n"
        "    if result.records or result.repeats:\n"
        "        raise OutcomeUnknownError.because('the controller lost its leadership "
        "before the change was committed', request_id)\n"
        "    raise ApiError(ErrorCode.NOT_CONTROLLER, 'leadership was lost')",
        "if False:\n"
        "    if result.records or result.repeats:\n"
        "        raise OutcomeUnknownError.because('the controller lost its leadership "
        "before the change was committed', request_id)\n"
        "    raise ApiError(ErrorCode.NOT_CONTROLLER, 'leadership was lost')",
    ),
    bug(
        "controller: acknowledge heartbeats without asking whether it still leads",
        "controller/heartbeats.py",
        "Heartbeats._answer",
        "await self._decisions.linearizable()",
        "self._decisions.committed",
        "deposed_controller_answers",
    ),
    bug(
        "controller: take an ISR proposed under a stale partition epoch",
        "controller/isr.py",
        "_error",
        "proposal.partition_epoch < state.partition_epoch",
        "False",
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
                "_error",
                "if proposal.leader_epoch < state.leader_epoch:\n"
                "    return ErrorCode.FENCED_LEADER_EPOCH\n"
                "if broker_id != state.leader:\n"
                "    return ErrorCode.INVALID_REQUEST",
                "if False:\n    return ErrorCode.INVALID_REQUEST",
            ),
            Edit(
                "controller/isr.py",
                "_error",
                "proposal.partition_epoch < state.partition_epoch",
                "proposal.leader_epoch == state.leader_epoch and proposal.partition_epoch < "
                "state.partition_epoch",
            ),
        ),
        ("deposed_leader_proposes",),
    ),
    bug(
        "controller: let a broker's earlier registration into the ISR",
        "controller/isr.py",
        "_eligibility",
        "registration.broker_epoch != member.broker_epoch",
        "",
        "outdated_newcomer",
    ),
    bug(
        "controller: elect whoever is there",
        "controller/partitions.py",
        "_choose.may_lead",
        "replica in isr",
        "",
    ),
    bug(
        "controller: eligible once is eligible for ever",
        "controller/partitions.py",
        "_eligible",
        "len(choice.isr) >= enough",
        "",
    ),
    bug(
        "controller: tell nobody that an election was unclean",
        "controller/partitions.py",
        "_difference",
        "record.unclean = choice.unclean",
        "",
        "unclean_election",
    ),
    bug(
        "controller: a new leader in the old leader epoch",
        "metadata/partitions.py",
        "changed_state",
        "state.leader_epoch + has_leader",
        "state.leader_epoch",
    ),
    Mutant(
        # The end of a broker's session takes its leaderships away before it registers again, unless
        # the controller is new as well. So in this bug neither of the two takes them away.
        "controller: a broker that starts anew goes on leading",
        (
            Edit(
                "controller/cluster.py",
                "register",
                "_leave(decision, request.broker_id, leaving=frozenset({request.broker_id}), "
                "lost=lost)",
                "",
            ),
            Edit(
                "controller/cluster.py",
                "_fence",
                "_leave(decision, registration.broker_id, "
                "leaving=frozenset({registration.broker_id}))",
                "",
            ),
        ),
    ),
    bug(
        "controller: a request that comes again takes effect again",
        "controller/request_ids.py",
        "_known",
        "context.image.outcomes.get(request_id)",
        "None if request_id else context.image.outcomes.get(request_id)",
    ),
    bug(
        "controller: end a move before its target is in sync",
        "controller/assignment.py",
        "may_complete",
        "set(state.target_replicas) <= set(isr)",
        "",
    ),
    bug(
        "controller: a snapshot forgets who is fenced",
        "metadata/brokers.py",
        "_records_of",
        "state_record(registration)",
        "state_record(replace(registration, fenced=False))",
    ),
]

REPLICATION = [
    bug(
        "replication: high watermark over the committed ISR alone",
        "broker/partition/maximal_isr.py",
        "MaximalIsr._refresh",
        "members.update(member.broker_id for member in self.proposal.isr)",
        "pass",
        "leader_in_the_dark",
    ),
    bug(
        "replication: leader counts itself before its log is durable",
        "broker/partition/machine.py",
        "PartitionMachine._committable",
        "self._log.durable_offset",
        "self._log.end_offset",
    ),
    bug(
        "replication: high watermark without the followers",
        "broker/partition/machine.py",
        "PartitionMachine._committable",
        "progress.end_offset < least",
        "progress.end_offset < -1",
    ),
    bug(
        "replication: join the ISR below the high watermark",
        "broker/partition/machine.py",
        "PartitionMachine._grow",
        "max(self.high_watermark, self.epoch_start_offset)",
        "0",
    ),
    bug(
        "replication: join the ISR before the epoch's start",
        "broker/partition/machine.py",
        "PartitionMachine._grow",
        "max(self.high_watermark, self.epoch_start_offset)",
        "self.high_watermark",
        "late_high_watermark",
    ),
    bug(
        "replication: acks=1 before the sync",
        "broker/partition/machine.py",
        "PartitionMachine._acknowledge_durable",
        "self._log.durable_offset",
        "self._log.end_offset",
    ),
    bug(
        "replication: acks=all below min.insync.replicas",
        "broker/partition/view.py",
        "PartitionView.is_under_min_isr",
        "len(self._state.isr) < self.min_insync",
        "False",
    ),
    bug(
        "replication: a leader without a lease acknowledges",
        "broker/replication/produce.py",
        "_WaitingProduce.acknowledged",
        "self._lease_valid()",
        "True",
        "part_planes",
    ),
    bug(
        "replication: serve requests of a stale leader epoch",
        "broker/partition/view.py",
        "PartitionView.fence",
        "current_leader_epoch < self._state.leader_epoch",
        "False",
        "follower_in_the_dark",
    ),
    bug(
        "replication: follower fetches on before its log is durable",
        "broker/replication/follower.py",
        "Following.is_durable",
        "log.durability.durable_offset == log.end_offset",
        "log.durability.durable_offset <= log.end_offset",
    ),
    bug(
        "replication: consumers see what is not committed",
        "broker/partition/view.py",
        "PartitionView.readable_end",
        "log.end_offset if is_follower else self.high_watermark",
        "log.end_offset",
    ),
    bug(
        "replication: truncate to the high watermark",
        "broker/replication/follower.py",
        "Following._truncate",
        "before = log.end_offset",
        "before = log.end_offset\ntarget = replica.machine.high_watermark",
        "diverge",
    ),
    bug(
        "replication: never truncate",
        "broker/replication/follower.py",
        "Following._truncate",
        "replica.truncate_to(target)",
        "",
    ),
    bug(
        "replication: acknowledge what waits when the ISR becomes too small",
        "broker/partition/machine.py",
        "PartitionMachine._settle",
        "len(self._state.isr) < self.min_insync",
        "False",
    ),
    bug(
        "replication: acknowledge what waits when leadership is lost",
        "broker/partition/machine.py",
        "PartitionMachine._follow",
        "Refused(tokens, ErrorCode.NOT_LEADER_OR_FOLLOWER)",
        "Acknowledged(tokens)",
    ),
    bug(
        "replication: never see that logs diverge",
        "broker/replication/fetch_reader.py",
        "FetchReader._read_entry",
        "result.diverging = _divergence(machine, log, entry)",
        "_divergence(machine, log, entry)",
    ),
]

STORAGE = [
    bug(
        "storage: durable before the sync",
        "storage/durability.py",
        "Durability.appended",
        "config.strict_flush",
        "False",
    ),
    bug(
        "storage: forget producers after a truncation",
        "storage/cutting.py",
        "LogCuts._rebuild_producers",
        "log.producers = rebuilt.states",
        "log.producers.clear()",
        "diverge",
    ),
    bug(
        "storage: keep producers of what was cut",
        "storage/cutting.py",
        "LogCuts._settle",
        "self._rebuild_producers()",
        "",
        "diverge",
    ),
    bug(
        "storage: epochs stay when the log is cut",
        "storage/cutting.py",
        "LogCuts._settle",
        "log.epochs.truncate_from(log.end_offset)",
        "",
        "diverge",
    ),
    bug(
        "storage: drop no duplicates",
        "storage/appending.py",
        "LogAppends.as_leader",
        "original is not None",
        "False",
    ),
    bug(
        "storage: take batches out of sequence",
        "storage/producer_state.py",
        "ProducerStates.check",
        "header.base_sequence != expected",
        "False",
    ),
    bug(
        "storage: followers remember no producers",
        "storage/appending.py",
        "LogAppends._append_run",
        "header.producer_id >= 0",
        "header.producer_id >= 0 and header.attributes & CONTROL",
    ),
]

MUTANTS = [
    *RAFT,
    *QUORUM,
    *MAJORITIES,
    *READS,
    *CONTROLLER,
    *ISR,
    *ACCESS,
    *QUOTAS,
    *TOKENS,
    *LISTENERS,
    *TELEMETRY,
    *ADMINISTRATION,
    *REPLICATION,
    *STORAGE,
    *DEVICE,
    *IDENTITY,
    *DELETION,
    *GROUPS,
    *CONSUMERS,
    *SHARES,
    *CLEANER,
    *NEARBY,
    *RARE,
    *TRANSACTIONS,
    *CLIENT,
]
