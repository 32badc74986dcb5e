"""An operator who changes the voters of a simulated quorum and takes disks away, and the
invariants."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

from raft.membership import AddVoter, RemoveVoter, UpdateVoter, VoterChange
from raft.messages import Batch, LeaderChange
from raft.quorum import NO_DIRECTORY, Voter, VoterSet
from raft.ready import Outbound, Ready, Role
from tests.support.raft_node import FakeNode
from tests.support.raft_simulation import CommittedPrefix, Simulation, directory_id

VOTERS_MAX = 5


class Operator:
    """Asks the leader for random changes, and repairs what it has broken.

    It does nothing that no consensus survives: a majority of every set that may be in force keeps
    its disks.
    """

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.truth = next(i for i in simulation.invariants if isinstance(i, CommittedPrefix))
        self.active = True
        self._disks = Counter(dict.fromkeys(simulation.nodes, 1))
        simulation.invariants += [NeighbouringSets(self.truth), ElectedByItsVoters()]

    def begin(self) -> None:
        self._later(self.simulation.faults.change_every_s, self.change)
        self._later(self.simulation.faults.wipe_every_s, self.wipe)

    def _later(self, mean_s: float, act: object) -> None:
        assert callable(act)
        self.simulation.at(self.simulation.rng.uniform(0.0, 2 * mean_s), act)

    # ---------------------------------------------------------------------------- changing

    def change(self) -> None:
        if not self.active:
            return
        simulation = self.simulation
        for node in simulation.leaders():
            change = self._draw(node.running.voters)
            refused = node.running.change_refusal(change, simulation.now, has_room=True)
            if refused is None:
                simulation.counts[f"begun {type(change).__name__}"] += 1
                ready = node.running.change_voters(change, simulation.now, has_room=True)
                simulation.done(node, ready)
            else:
                simulation.counts[f"refused {refused.error.name}"] += 1
        self._later(simulation.faults.change_every_s, self.change)

    def _draw(self, voters: VoterSet) -> VoterChange:
        rng = self.simulation.rng
        lost = [voter for voter in voters.voters if not self._has_disk(voter)]
        if lost:
            gone = rng.choice(lost).key
            if rng.random() < 0.5:
                return RemoveVoter(gone)
            # The voter under its old id with another disk: this is refused.
            return AddVoter(Voter(self.simulation.nodes[gone.id].key, "new"), 1.0)
        others = [node for node in self.simulation.nodes.values() if voters.get(node.id) is None]
        kind = rng.choice(["add", "add", "remove", "remove", "move"])
        if kind == "add" and others and len(voters) < VOTERS_MAX:
            return AddVoter(Voter(rng.choice(others).key, "new"), rng.uniform(0.1, 2.0))
        voter = rng.choice(voters.voters)
        if kind == "move":
            features = (("f", 1, rng.randrange(1, 4)),)
            key = self.simulation.nodes[voter.id].key
            return UpdateVoter(Voter(key, str(rng.random()), features))
        return RemoveVoter(voter.key)

    def _has_disk(self, voter: Voter) -> bool:
        if voter.key.directory_id == NO_DIRECTORY:
            return self._disks[voter.id] == 1
        return voter.key == self.simulation.nodes[voter.id].key

    # ------------------------------------------------------------------------------- disks

    def wipe(self) -> None:
        """Give some node an empty disk, formatted to join."""
        if not self.active:
            return
        simulation = self.simulation
        node = simulation.rng.choice(list(simulation.nodes.values()))
        if self._may_lose(node):
            simulation.counts["wiped"] += 1
            if node.core is not None:
                node.crash(simulation.rng)
            simulation.lost_disks[node.key] = node.durable_history
            self._disks[node.id] += 1
            node.wipe(directory_id(node.id, self._disks[node.id]))
            simulation.at(simulation.rng.uniform(0.0, 2.0), lambda: simulation.start(node))
        self._later(simulation.faults.wipe_every_s, self.wipe)

    def _may_lose(self, node: FakeNode) -> bool:
        for voters in self._sets_in_force():
            left = [v for v in voters.voters if self._has_disk(v) and v.id != node.id]
            if voters.get(node.id) is not None and len(left) < voters.majority:
                return False
        return True

    def _sets_in_force(self) -> Iterator[VoterSet]:
        for node in self.simulation.nodes.values():
            for log in (node.history, node.durable_history, self.truth.truth):
                yield from _sets(node, log)[-2:]
            if node.core is not None and (adding := node.core.adding) is not None:
                yield node.core.voters.with_voter(adding)

    def committed(self) -> Counter[str]:
        """The number of committed changes of voters, by kind."""
        found: Counter[str] = Counter()
        sets = [batch.new_voters for batch in self.truth.truth if batch.new_voters is not None]
        for before, after in itertools.pairwise(sets):
            if len(after) != len(before):
                found["added" if len(after) > len(before) else "removed"] += 1
            elif [v.key for v in after.voters] == [v.key for v in before.voters]:
                found["moved"] += 1
            else:
                found["learned"] += 1
        return found


def _sets(node: FakeNode, log: list[Batch]) -> list[VoterSet]:
    """The sets of voters that a replica with this log has used, oldest first."""
    first = [node.voters] if len(node.voters) else []
    return first + [batch.new_voters for batch in log if batch.new_voters is not None]


# ------------------------------------------------------------------------------------ laws


class NeighbouringSets:
    """Every replica uses the last set in its log, and at most that one is uncommitted. Each set has
    one voter more or less than the one before, or the same voters, on the same disks."""

    def __init__(self, truth: CommittedPrefix) -> None:
        self._truth = truth

    def after(self, simulation: Simulation, node: FakeNode, ready: Ready) -> None:
        touched = ready.install is not None or ready.truncate_to is not None
        if not touched and all(batch.new_voters is None for batch in ready.append):
            return
        sets = _sets(node, node.history)
        assert node.running.voters == (sets[-1] if sets else VoterSet([])), f"node {node.id}"
        for before, after in itertools.pairwise(sets):
            gone = [voter for voter in before.voters if voter.key not in after]
            come = [voter for voter in after.voters if voter.key not in before]
            assert len(gone) + len(come) <= 1, f"{before} then {after}"
        changes = [batch for batch in node.history if batch.new_voters is not None]
        committed = self._truth.truth[-1].end_offset if self._truth.truth else 0
        for change in changes[:-1]:
            assert change.end_offset <= committed, f"{changes[-2:]}, {committed} committed"

    def sending(self, simulation: Simulation, node: FakeNode, item: Outbound) -> None:
        """Nothing to check."""


class ElectedByItsVoters:
    """A leader was elected by a majority of the voters in its log. It need not be one of them."""

    def after(self, simulation: Simulation, node: FakeNode, ready: Ready) -> None:
        if ready.status is None or ready.status.role is not Role.LEADER:
            return
        change = next(b.payload for b in ready.append if isinstance(b.payload, LeaderChange))
        voters = _sets(node, node.history[: -len(ready.append)])[-1]
        assert change.voters == voters.ids
        assert set(change.granting_voters) <= set(voters.ids)
        assert len(change.granting_voters) >= voters.majority
        simulation.counts["led by no voter"] += node.id not in voters.ids

    def sending(self, simulation: Simulation, node: FakeNode, item: Outbound) -> None:
        """Nothing to check."""
