"""Planted bugs of the quorum's majorities, and of what is read of the metadata."""

from __future__ import annotations

from chaos.sim.runs.mutants.mutant import Edit, Mutant, bug

MAJORITIES = [
    bug(
        "raft: established before a record of its epoch is committed",
        "raft/membership.py",
        "    return replica.high_watermark > state.start_offset\n",
        "    return True\n",
        "change_by_a_new_leader",
    ),
    bug(
        "raft: commit what earlier leaders left by counting alone",
        "raft/replica.py",
        "        if offset > leader.start_offset:\n",
        "        if True:\n",
    ),
    bug(
        "raft: claim leadership before a record of its epoch is committed",
        "runtime/quorum/quorum.py",
        "        if core.high_watermark > core.epoch_start_offset:\n",
        "        if True:\n",
    ),
    Mutant(
        # Consecutive sets differ by one voter, so their majorities share a voter. Sets with another
        # one between them need not: this bug lets their majorities decide.
        "raft: count votes by the voters before the newest",
        (
            Edit(
                "raft/replica.py",
                "        tally = VoteTally(self.voters)\n",
                "        tally = VoteTally(self.history.previous)\n",
            ),
            Edit(
                "raft/replica.py",
                "Candidate(VoteTally(self.voters), asking",
                "Candidate(VoteTally(self.history.previous), asking",
            ),
        ),
        ("election_of_a_grown_quorum",),
    ),
    bug(
        "raft: take what another disk of the node acknowledges for the voter's",
        "raft/replication.py",
        "        if {recorded, progress.directory_id} <= {NO_DIRECTORY, key.directory_id}:\n",
        "        if recorded is not None:\n",
        "wiped_after_its_vote",
    ),
    bug(
        # With this bug, a late copy of a removal removes the voter that has replaced the intended
        # one on the same node.
        "raft: remove a voter whichever of its disks is named",
        "raft/membership.py",
        "    if key not in replica.voters:\n",
        "    if replica.voters.get(key.id) is None:\n",
    ),
]

READS = [
    bug(
        "controller: answer a read without asking whether it still leads",
        "controller/active.py",
        "        read_index = await self._quorum.confirm_leadership(epoch=self._epoch)\n",
        "        read_index = 0\n",
    ),
    bug(
        "broker: answer a linearizable read from what it knows",
        "broker/service/metadata.py",
        "        min_offset = max(min_offset, await _read_index(context, patience_s))\n",
        "        pass\n",
    ),
    bug(
        "broker: answer though what the read needs has not come",
        "broker/service/metadata.py",
        "    image = context.image()\n    if image.offset < min_offset:\n",
        "    image = context.image()\n    if False:\n",
    ),
    bug(
        "client: forget what it has changed",
        "stele/admin/requests.py",
        '        self.changed_at = max(self.changed_at, getattr(answer, "metadata_offset", 0))\n',
        "",
    ),
]
