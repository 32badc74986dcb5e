"""Planted bugs of coordinators, groups and committed offsets."""

from __future__ import annotations

from typing import Final

from chaos.sim.runs.mutants.mutant import Edit, Mutant
from chaos.sim.work.load import LoadKind

_SHARD: Final = "broker/coordinator/shard.py"
_HOSTED: Final = "broker/replication/hosted.py"
_CLASSIC: Final = "broker/coordinator/group/classic/group.py"
_GENERATIONS: Final = "broker/coordinator/group/classic/generations.py"
_COMMITTING: Final = "broker/coordinator/group/committing.py"
_OFFSETS: Final = "broker/coordinator/group/offsets.py"
_MACHINE: Final = "broker/coordinator/group/machine.py"


def _bug(name: str, path: str, function: str, old: str, new: str, *kinds: str) -> Mutant:
    """``kinds``: of the storm. None: all of them."""
    return Mutant(name, (Edit(path, function, old, new),), kinds=kinds)


def _light_bug(name: str, path: str, function: str, old: str, new: str, *kinds: str) -> Mutant:
    """The same. It shows under light load."""
    return _bug(name, path, function, old, new, *kinds)._replace(load=LoadKind.LIGHT)


GROUPS = [
    # Coordinators.
    _bug(
        "coordinator: answer before the records are committed",
        _SHARD,
        "Shard._give",
        "after <= self._committed",
        "True",
    ),
    _bug(
        "coordinator: load only the first record of a batch",
        _HOSTED,
        "HostedPartition.records",
        "yield loaded",
        "yield loaded._replace(records=loaded.records[:1])",
    ),
    # Groups.
    _bug(
        "group: let members of earlier generations commit",
        _CLASSIC,
        "ClassicGroup._commit_error",
        "generation != self.generation",
        "False",
    ),
    _bug(
        "group: rebalance within a generation",
        _GENERATIONS,
        "Generations._begin_generation",
        "self.generation += 1",
        "",
    ),
    _bug(
        "group: tell all members the leader's assignment",
        _CLASSIC,
        "ClassicGroup._assign",
        "assignments.get(member.member_id, b'')",
        "assignments.get(self.leader or '', b'')",
    ),
    _bug(
        "group: tell who asks again the assignment of the first member",
        _CLASSIC,
        "ClassicGroup.sync",
        "self._assigned(member.assignment)",
        "self._assigned(next(iter(self.members)).assignment)",
    ),
    _bug(
        "group: forget the generation with the coordinator",
        _GENERATIONS,
        "Generations.replay",
        "self.generation = value.generation",
        "self.generation = max(self.generation, 1)",
    ),
    _bug(
        "group: forget assignments with the coordinator",
        _GENERATIONS,
        "Generations._replayed",
        "member.assignment = recorded.assignment",
        "member.assignment = b''",
    ),
    # Offsets.
    _bug(
        "offsets: commit only the first of a request",
        _COMMITTING,
        "commit",
        "step.records.append(offset_record(key, _committed(each, request.retention_ms, now)))",
        "step.records[:] = step.records[:1] or "
        "[offset_record(key, _committed(each, request.retention_ms, now))]",
    ),
    _bug(
        "offsets: keep what was removed",
        _MACHINE,
        "GroupMachine._replay_offset",
        "self._offsets.replay(offset, key, value)",
        "value is None or self._offsets.replay(offset, key, value)",
    ),
    _bug(
        "offsets: delete nothing and say so",
        _COMMITTING,
        "delete",
        "step.records.append(offset_record(OffsetKey(group.group_id, partition), None))",
        "",
    ),
    _bug(
        "offsets: delete a group and leave its offsets",
        "broker/coordinator/group/administration.py",
        "AdministrationRequests._delete",
        "chain(offsets, ends)",
        "chain(ends)",
    ),
    _bug(
        "offsets: write the key of another partition",
        "broker/coordinator/group/records.py",
        "offset_record",
        "_INT32.pack(partition)",
        "_INT32.pack(partition // 2)",
    ),
]
