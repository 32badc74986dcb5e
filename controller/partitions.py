"""Changes of a partition's leader, ISR and eligible leader replicas (ELR).

All changes go through ``change``, which keeps the rules of KIP-966:

- Every member of the ISR has all committed records. While the ISR is smaller than
  min(min.insync.replicas, replicas) its leader commits nothing. A replica that leaves the ISR then,
  or makes it too small by leaving, still has every committed record: it is an eligible leader
  replica. Example: with min.insync.replicas=2 and the ISR [1, 2], broker 2 is fenced. The ISR is
  [1] and the ELR [2], until another replica joins the ISR.
- Once the ISR is large enough again, the leader commits records that eligible replicas may lack.
  So they are no longer eligible.
- A replica that lost records is in neither.
- A replica whose log directory is offline leads nothing, like that of a fenced broker (KIP-858).

The change that makes a reassignment complete also ends it (KIP-455).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from controller.assignment import Assignment, may_complete
from metadata.directories import UNASSIGNED
from metadata.effective import min_insync_replicas, unclean_election_enabled
from metadata.image import MetadataImage
from metadata.partitions import NO_LEADER, RECOVERED, RECOVERING, PartitionState
from metadata.topics import Topic
from stele.ids import PartitionId
from stele.wire.v1 import metadata_pb2 as pb

NOBODY: frozenset[int] = frozenset()


class Election(enum.Enum):
    """The kind of election. An active leader in the ISR stays, except in a preferred election."""

    CLEAN = "clean"  # from ISR and ELR, or an unclean one if the topic allows it
    PREFERRED = "preferred"  # replaces the leader by the first replica, if that is in the ISR
    UNCLEAN = "unclean"  # any active replica if ISR and ELR have none; an operator asked for it


@dataclass(frozen=True, slots=True)
class Rules:
    """Everything besides their own state that decides about the partitions of one topic."""

    is_active: Callable[[int], bool]  # whether the broker may lead
    min_insync_replicas: int
    unclean_allowed: bool
    has_room: Callable[[int], bool] = lambda broker_id: True  # whether its disks take more records
    # Whether the broker can use replicas in this log directory.
    has_online: Callable[[int, bytes], bool] = lambda broker_id, directory_id: True

    @classmethod
    def of(cls, image: MetadataImage, topic: str, static: Mapping[str, str]) -> Rules:
        return cls(
            image.is_active,
            min_insync_replicas(image, topic),
            unclean_election_enabled(image, topic, static),
            image.has_room,
            image.has_online,
        )

    def may_lead(self, state: PartitionState, broker_id: int) -> bool:
        """Whether the broker is active and its replica is in a directory that is online."""
        return self.is_active(broker_id) and self.has_online(
            broker_id, state.directory_of(broker_id)
        )


class RulesByTopic:
    """The rules of the topics of one decision, read once for each topic."""

    def __init__(self, image: MetadataImage, static: Mapping[str, str]) -> None:
        self._image = image
        self._static = static
        self._known: dict[str, Rules] = {}

    def of(self, topic: str) -> Rules:
        if topic not in self._known:
            self._known[topic] = Rules.of(self._image, topic, self._static)
        return self._known[topic]


@dataclass(frozen=True, slots=True)
class _Choice:
    leader: int
    isr: tuple[int, ...]
    unclean: bool = False


def change(
    key: PartitionId,
    state: PartitionState,
    rules: Rules,
    *,
    isr: Iterable[int] | None = None,
    leaving: frozenset[int] = NOBODY,
    lossy: frozenset[int] = NOBODY,
    election: Election = Election.CLEAN,
    recovery: pb.LeaderRecoveryState | None = None,
    assignment: Assignment | None = None,
    directories: tuple[bytes, ...] | None = None,
) -> pb.MetadataRecord | None:
    """The record that changes a partition, or None if nothing changes.

    ``isr`` replaces the ISR. ``leaving`` brokers leave it. If nobody would remain, they stay in the
    ISR without leading, since they alone have everything. ``lossy`` brokers have lost records: they
    leave the ISR in any case and are not eligible. The leader epoch then rises, because a fetch
    that such a broker sent before the loss must not count in the leader's new epoch, however late
    it arrives. ``recovery`` is the new leader recovery state.
    ``assignment`` replaces the replicas. The change that brings the last replica of a target into
    the ISR also completes the reassignment.
    ``directories`` are the new directories of the replicas, and exclude an ``assignment``.
    """
    planned = (assignment or Assignment.of(state)).applied_to(state)
    if directories is not None:
        planned = replace(planned, directories=directories)
    wanted = set(planned.isr if isr is None else isr) - lossy
    remaining = tuple(sorted(wanted - leaving)) or tuple(sorted(wanted))
    remaining = _with_room(planned, remaining, rules)
    eligible = tuple(replica for replica in planned.elr if replica not in lossy)
    choice = _choose(planned, remaining, eligible, rules, election, lossy)
    now_recovery = state.leader_recovery_state if recovery is None else recovery
    if choice.unclean:
        now_recovery = RECOVERING
    # While an unclean leader recovers, no replica is dropped: others may have records that it
    # lacks.
    completed = None
    if now_recovery == RECOVERED:
        completed = _completed(planned, choice, rules, election)
    if completed is not None:
        planned, choice = completed

    # The leader epoch rises: in the old one the leader may not know its new replicas yet. It must
    # not go on to count fetches of removed replicas, or to use the minimum of the old replicas.
    outdated = completed is not None or not set(state.replicas) <= set(planned.replicas)
    outdated = outdated or not lossy.isdisjoint(planned.replicas)
    elr, last_known_elr = _eligible(state, planned, choice, lossy, rules)
    changed = replace(planned, elr=elr, last_known_elr=last_known_elr)
    record = _difference(key, state, changed, choice, is_outdated=outdated)
    if now_recovery != state.leader_recovery_state:
        record.leader_recovery_state = now_recovery
    if directories is not None and directories != state.directories:
        told = planned.directories or (UNASSIGNED,) * len(planned.replicas)
        record.directories.CopyFrom(pb.PartitionChangeRecord.Directories(ids=told))
    unchanged = pb.PartitionChangeRecord(topic_id=key.topic_id, partition=key.partition)
    return None if record == unchanged else pb.MetadataRecord(partition_change=record)


def _difference(
    key: PartitionId,
    state: PartitionState,
    changed: PartitionState,
    choice: _Choice,
    *,
    is_outdated: bool,
) -> pb.PartitionChangeRecord:
    """The record that makes ``changed`` with this leader and ISR of a partition. ``is_outdated``:
    the leader epoch rises even if the leader stays."""
    record = pb.PartitionChangeRecord(topic_id=key.topic_id, partition=key.partition)
    if is_outdated or choice.leader != state.leader:
        record.leader = choice.leader
    record.unclean = choice.unclean
    present, replicas = Assignment.of(state), Assignment.of(changed)
    for name, before, after in (
        ("isr", state.isr, choice.isr),
        ("elr", state.elr, changed.elr),
        ("last_known_elr", state.last_known_elr, changed.last_known_elr),
        ("replicas", present.replicas, replicas.replicas),
        ("adding_replicas", present.adding, replicas.adding),
        ("removing_replicas", present.removing, replicas.removing),
        ("original_replicas", present.original, replicas.original),
    ):
        if before != after:
            getattr(record, name).CopyFrom(pb.PartitionChangeRecord.Nodes(ids=after))
    return record


def _completed(
    planned: PartitionState, choice: _Choice, rules: Rules, election: Election
) -> tuple[PartitionState, _Choice] | None:
    """The state after a reassignment that is complete now: the whole target is in the ISR, and one
    of it can lead. None if it is not complete."""
    if not may_complete(planned, choice.isr):
        return None
    target = planned.target_replicas
    finished = replace(Assignment(target).applied_to(planned), leader=choice.leader)
    last = _choose(finished, tuple(sorted(target)), (), rules, election)
    if last.leader == NO_LEADER or last.unclean:
        return None
    return finished, last


def _choose(
    state: PartitionState,
    isr: tuple[int, ...],
    eligible: tuple[int, ...],
    rules: Rules,
    election: Election,
    lossy: frozenset[int] = NOBODY,
) -> _Choice:
    def may_lead(replica: int) -> bool:
        return replica in isr and rules.may_lead(state, replica)

    able = [replica for replica in state.replicas if may_lead(replica)]
    # If no replica has room, no other leader would be better: leadership stays where it is, and
    # records can still be read.
    roomy = [replica for replica in able if rules.has_room(replica)]
    if election is Election.PREFERRED and state.preferred_leader in roomy:
        return _Choice(state.preferred_leader, isr)
    for candidates in (roomy, able):
        if state.leader in candidates:
            return _Choice(state.leader, isr)
        if candidates:
            return _Choice(candidates[0], isr)
    for replica in state.replicas:
        if replica in eligible and rules.may_lead(state, replica):
            return _Choice(replica, (replica,))
    # A preferred election is about load. It is never unclean, as in Kafka.
    if election is Election.UNCLEAN or (election is Election.CLEAN and rules.unclean_allowed):
        for replica in _unclean_candidates(state, election, lossy):
            if rules.may_lead(state, replica):
                return _Choice(replica, (replica,), unclean=True)
    return _Choice(NO_LEADER, isr)


def _with_room(state: PartitionState, isr: tuple[int, ...], rules: Rules) -> tuple[int, ...]:
    """The ISR without members that have no room, if it is large enough without them.

    Such members would fall behind and hold the high watermark back meanwhile. They stay if the ISR
    would be too small without them: then nothing more is committed, and they have every committed
    record.
    """
    roomy = tuple(replica for replica in isr if rules.has_room(replica))
    enough = max(1, min(rules.min_insync_replicas, state.replication_factor))
    able = [replica for replica in roomy if rules.may_lead(state, replica)]
    return roomy if len(able) >= enough else isr


def _unclean_candidates(
    state: PartitionState, election: Election, lossy: frozenset[int]
) -> list[int]:
    """The candidates for an unclean election, best first. Replicas that were last known to be
    eligible lack the fewest records. A replica that is being added may have no records, so it leads
    only if an operator asks for the election. A ``lossy`` replica is the last choice: its broker
    may be alive without the disk that it is on.
    """
    last_known = [replica for replica in state.last_known_elr if replica in state.replicas]
    adding = set(state.adding_replicas)
    settled = [replica for replica in state.replicas if replica not in adding]
    candidates = [*last_known, *settled]
    if election is Election.UNCLEAN:
        candidates += [replica for replica in state.replicas if replica in adding]
    return sorted(candidates, key=lossy.__contains__)


def _eligible(
    before: PartitionState,
    after: PartitionState,
    choice: _Choice,
    lossy: frozenset[int],
    rules: Rules,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(ELR, last known ELR) after the change. The second are replicas that were eligible until they
    lost records.

    ``after``: the state with the replicas after the change.
    """
    enough = min(rules.min_insync_replicas, after.replication_factor)
    if choice.unclean or len(choice.isr) >= enough:
        return (), ()
    had_everything = {*before.isr, *before.elr} & {*after.replicas}
    elr = had_everything - lossy - {*choice.isr}
    last_known = {*after.last_known_elr, *(had_everything & lossy)} - elr - {*choice.isr}
    return tuple(sorted(elr)), tuple(sorted(last_known))


WhoLost = Callable[[PartitionId, PartitionState], frozenset[int]]
"""The brokers that have lost records of a partition."""


def nobody_lost(key: PartitionId, state: PartitionState) -> frozenset[int]:
    return NOBODY


def changes(
    image: MetadataImage,
    static: Mapping[str, str],
    concerned: Callable[[PartitionState], bool],
    *,
    leaving: frozenset[int] = NOBODY,
    lossy: WhoLost = nobody_lost,
    directories: Callable[[PartitionId, PartitionState], tuple[bytes, ...]] | None = None,
    election: Election = Election.CLEAN,
    topics: Iterable[Topic] | None = None,
) -> list[pb.MetadataRecord]:
    """The records of ``change`` for every concerned partition of ``topics`` (of all topics by
    default), in order."""
    records = []
    for topic in image.sorted_topics() if topics is None else topics:
        rules: Rules | None = None
        for number, state in enumerate(topic.partitions):
            if not concerned(state):
                continue
            rules = rules or Rules.of(image, topic.name, static)
            key = PartitionId(topic.topic_id, number)
            record = change(
                key,
                state,
                rules,
                leaving=leaving,
                lossy=lossy(key, state),
                directories=None if directories is None else directories(key, state),
                election=election,
            )
            if record is not None:
                records.append(record)
    return records


def new_partition(
    topic_id: bytes, number: int, replicas: tuple[int, ...], rules: Rules
) -> pb.MetadataRecord | None:
    """The record of a new partition. None if none of its replicas is active.

    The first ISR has all active replicas: the log is empty, so each of them has everything.
    """
    isr = sorted(replica for replica in replicas if rules.is_active(replica))
    if not isr:
        return None
    able = [replica for replica in replicas if replica in isr]
    leader = next(filter(rules.has_room, able), able[0])
    return pb.MetadataRecord(
        partition=pb.PartitionRecord(
            topic_id=topic_id,
            partition=number,
            replicas=replicas,
            isr=isr,
            leader=leader,
            leader_recovery_state=RECOVERED,
        )
    )


def is_leaderless(state: PartitionState) -> bool:
    return state.leader == NO_LEADER


def prefers_another(state: PartitionState) -> bool:
    """Whether the preferred replica is in the ISR and does not lead."""
    return state.leader != state.preferred_leader and state.preferred_leader in state.isr
