"""Planted bugs of groups of the consumer protocol (KIP-848)."""

from __future__ import annotations

from typing import Final

from chaos.sim.runs.mutants.mutant import Edit, Mutant
from chaos.sim.work.load import LoadKind

_ROOM: Final = "broker/coordinator/group/consumer"
_DRAFT: Final = f"{_ROOM}/draft.py"
_GROUP: Final = f"{_ROOM}/group.py"
_STATE: Final = f"{_ROOM}/state.py"
_HEARTBEAT: Final = f"{_ROOM}/heartbeat.py"
_RECONCILIATION: Final = f"{_ROOM}/reconciliation.py"


def _bug(name: str, path: str, function: str, old: str, new: str, *kinds: str) -> Mutant:
    """``kinds``: of the storm. None: all of them."""
    return Mutant(name, (Edit(path, function, old, new),), kinds=kinds, load=LoadKind.LIGHT)


CONSUMERS = [
    _bug(
        "consumers: assign a partition that its owner has not revoked",
        _RECONCILIATION,
        "_next",
        "frozenset(number for number in numbers if is_free(topic_id, number))",
        "numbers",
        "kill",
    ),
    _bug(
        "consumers: take partitions for revoked that the member still has",
        _RECONCILIATION,
        "_next",
        "revoking and _owns_any(owned, revoking)",
        "False",
        "kill",
    ),
    _bug(
        "consumers: never assign what was not free at first",
        _RECONCILIATION,
        "_next",
        "MemberState.STABLE if is_complete else MemberState.UNRELEASED_PARTITIONS",
        "MemberState.STABLE",
        "kill",
    ),
    _bug(
        "consumers: let members of earlier epochs commit",
        _GROUP,
        "ConsumerGroup._epoch_error",
        "member_epoch == member.current.member_epoch",
        "True",
        "kill",
    ),
    _bug(
        "consumers: let those commit who are no members",
        _GROUP,
        "ConsumerGroup.commit_errors",
        "request.generation < 0 and self.is_empty",
        "request.generation < 0 or request.member_id not in self.members",
        "kill",
    ),
    _bug(
        "consumers: never free what a member has revoked",
        _STATE,
        "ConsumerGroupState._own",
        "owners.get(number) == member.member_id",
        "False",
        "kill",
    ),
    _bug(
        "consumers: forget what members have to revoke",
        _STATE,
        "ConsumerGroupState._own",
        "for partitions in (current.assigned, current.revoking):\n"
        "    for topic_id, numbers in partitions.items():\n"
        "        owners = self._owners.setdefault(topic_id, {})\n"
        "        for number in numbers:\n"
        "            owners[number] = member.member_id",
        "for partitions in (current.assigned,):\n"
        "    for topic_id, numbers in partitions.items():\n"
        "        owners = self._owners.setdefault(topic_id, {})\n"
        "        for number in numbers:\n"
        "            owners[number] = member.member_id",
        "kill",
    ),
    _bug(
        "consumers: forget who owns what with the coordinator",
        _STATE,
        "ConsumerGroupState._set_current",
        "self._own(member, current)",
        "if self.is_loaded:\n"
        "    self._own(member, current)\n"
        "else:\n"
        "    self._own(member, current._replace(assigned={}, revoking={}))",
        "kill",
    ),
    _bug(
        "consumers: never make a new target for a member that is there",
        _DRAFT,
        "Draft.assign",
        "state.targets.get(member_id) != target",
        "member_id not in state.targets",
        "kill",
    ),
    _bug(
        "consumers: keep the epoch of the group to oneself",
        _DRAFT,
        "Draft.raise_epoch",
        "self.records.append(group_value_record(group.group_id, GroupValue(self.epoch, hashed)))",
        "",
        "kill",
    ),
    _bug(
        "consumers: keep a member whose session is over",
        _GROUP,
        "ConsumerGroup.deadline_passed",
        "remove(self, timer.member_id, now, step)",
        "self.restart_session(timer.member_id, now)",
        "kill",
    ),
    _bug(
        "consumers: end a revocation before the member has said so",
        _RECONCILIATION,
        "_owns_any",
        "owned is None or bool(intersection(owned, revoking))",
        "owned is not None and bool(intersection(owned, revoking))",
        "kill",
    ),
]
