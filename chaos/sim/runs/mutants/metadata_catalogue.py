"""Planted bugs of the quorum's majorities, and of what is read of the metadata."""

from __future__ import annotations

from chaos.sim.runs.mutants.mutant import Edit, Mutant, bug
from chaos.sim.work.load import LoadKind

MAJORITIES = [
    bug(
        "raft: established before a record of its epoch is committed",
        "raft/membership.py",
        "_is_established",
        "replica.high_watermark > state.start_offset",
        "True",
        "change_by_a_new_leader",
    ),
    bug(
        "raft: commit what earlier leaders left by counting alone",
        "raft/replica.py",
        "RaftReplica.commit",
        "offset > leader.start_offset",
        "True",
    ),
    bug(
        "raft: claim leadership before a record of its epoch is committed",
        "runtime/quorum/quorum.py",
        "Quorum._maybe_claim",
        "core.high_watermark > core.epoch_start_offset",
        "True",
    ),
    Mutant(
        # Consecutive sets differ by one voter, so their majorities share a voter. Sets with another
        # one between them need not: this bug lets their majorities decide.
        "raft: count votes by the voters before the newest",
        (
            Edit(
                "raft/replica.py",
                "RaftReplica.become_prospective",
                "VoteTally(self.voters)",
                "VoteTally(self.history.previous)",
            ),
            Edit(
                "raft/replica.py",
                "RaftReplica.become_candidate",
                "VoteTally(self.voters)",
                "VoteTally(self.history.previous)",
            ),
        ),
        ("election_of_a_grown_quorum",),
    ),
    bug(
        "raft: take what another disk of the node acknowledges for the voter's",
        "raft/replication.py",
        "progress_of",
        "{recorded, progress.directory_id} <= {NO_DIRECTORY, key.directory_id}",
        "recorded is not None",
        "wiped_after_its_vote",
    ),
    bug(
        # With this bug, a late copy of a removal removes the voter that has replaced the intended
        # one on the same node.
        "raft: remove a voter whichever of its disks is named",
        "raft/membership.py",
        "_refused_remove",
        "key not in replica.voters",
        "replica.voters.get(key.id) is None",
    )._replace(
        kinds=("voters", "wipe_disk", "isolate", "cut_one_way", "pause", "kill"),
        load=LoadKind.LIGHT,
    ),
]

READS = [
    bug(
        "controller: answer a read without asking whether it still leads",
        "controller/active.py",
        "DecisionMaker.linearizable",
        "await self._quorum.confirm_leadership(epoch=self._epoch)",
        "0",
    ),
    bug(
        "broker: answer a linearizable read from what it knows",
        "broker/service/metadata.py",
        "present_image",
        "min_offset = max(min_offset, await _read_index(context, patience_s))",
        "pass",
    ),
    bug(
        "broker: answer though what the read needs has not come",
        "broker/service/metadata.py",
        "present_image",
        "not answers(image)",
        "False",
    ),
    bug(
        "broker: a lease begins without the metadata in which it was fenced",
        "broker/membership/lease.py",
        "Lease.is_valid",
        "self._awaiting[0][0] <= applied",
        "True",
    )._replace(
        kinds=("voters", "wipe_disk", "isolate", "cut_one_way", "pause", "kill"),
        load=LoadKind.LIGHT,
    ),
    bug(
        "client: forget what it has changed",
        "stele/admin/requests.py",
        "AdminRequests._keep_asking",
        "self.changed_at = max(self.changed_at, getattr(answer, 'metadata_offset', 0))",
        "",
    ),
]
