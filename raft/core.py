"""The way into the consensus core: one event in, the resulting work out.

Pull-based Raft in the shape of KRaft: KIP-595 (the protocol), KIP-996 (pre-vote), and Ongaro's
dissertation for the rules of votes and commitment. No IO, no clock, no threads: the driver says
what time it is, hands in messages and news of the disk, and carries out every ``Ready`` as
``raft.ready`` lays down. A call may raise ``InvariantError``: then the replica has to stop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from raft import (
    election,
    fetch_source,
    fetching,
    membership,
    read_index,
    replication,
    snapshots,
    transfer,
)
from raft.log_view import LogView
from raft.membership import Refusal, VoterChange
from raft.messages import (
    Batch,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Inbound,
    RequestReceived,
    ResponseReceived,
    SnapshotId,
    VoteRequest,
    VoteResponse,
)
from raft.progress import Progress
from raft.quorum import ReplicaKey, Voter, VoterSet
from raft.ready import Call, HardState, Ready, Role, Status
from raft.replica import InvariantError, RaftReplica
from raft.roles import (
    NEVER,
    Candidate,
    Follower,
    Leader,
    Observer,
    Prospective,
    Resigned,
    Unattached,
)
from raft.timing import Timing
from raft.voter_history import VoterHistory
from stele.errors import ErrorCode
from stele.world import Rng

__all__ = ["InvariantError", "RaftCore", "ReplicaView"]


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """One replica as the leader sees it; times are monotonic seconds, None for never."""

    key: ReplicaKey
    is_voter: bool
    end_offset: int  # -1: unknown
    last_fetch_at: float | None
    caught_up_at: float | None


class RaftCore:
    """One replica of the quorum's log: a voter, or an observer when ``local`` is no voter.

    ``voters``, ``log``, ``hard_state`` and ``snapshot`` (the newest; the log begins at its end or
    earlier) are what recovery found, all durable. ``bootstrap`` are further nodes to ask
    for the leader: controllers by their ids, or under ids that the driver can call and that no
    replica has (negative).
    ``is_founder``: when this disk was formatted, its node was to be one of the first voters. Only
    then does a voter with this node and an unknown directory mean this replica: an emptied disk
    must not vote in the name of the disk that was there before.
    Begin with ``start``. Before each event a core that ``minds_room`` is told of it: ``tell_room``.
    """

    def __init__(
        self,
        local: ReplicaKey,
        voters: VoterHistory,
        log: LogView,
        hard_state: HardState,
        timing: Timing,
        rng: Rng,
        *,
        snapshot: SnapshotId | None = None,
        bootstrap: Sequence[int] = (),
        is_founder: bool = True,
    ) -> None:
        if log.last_epoch > hard_state.epoch:
            # Records of an epoch can be durable before the epoch itself; no vote can.
            hard_state = HardState(log.last_epoch)
        self._replica = RaftReplica(local, voters, log, hard_state, timing, rng)
        self._replica.snapshot = snapshot
        self._replica.bootstrap = tuple(bootstrap)
        self._replica.is_founder = is_founder

    # ------------------------------------------------------------------------------- facts

    @property
    def local(self) -> ReplicaKey:
        """This replica: node and disk."""
        return self._replica.local

    @property
    def role(self) -> Role:
        return self._replica.state.role

    @property
    def status(self) -> Status:
        return self._replica.status

    @property
    def epoch(self) -> int:
        return self._replica.epoch

    @property
    def vote(self) -> ReplicaKey | None:
        """The candidate that this replica voted for in this epoch; a vote never changes."""
        return self._replica.voted

    @property
    def outstanding(self) -> Mapping[int, Call]:
        """The calls without an answer, by request id. Callers must not change it."""
        return self._replica.outstanding

    @property
    def promises_durable(self) -> bool:
        """Whether the epoch and the vote would survive a crash."""
        return self._replica.promises_durable

    @property
    def timing(self) -> Timing:
        return self._replica.timing

    @property
    def log(self) -> LogView:
        """For reading only."""
        return self._replica.log

    @property
    def high_watermark(self) -> int:
        return self._replica.high_watermark

    @property
    def epoch_start_offset(self) -> int | None:
        """Where this replica's own epoch begins in the log, while it leads."""
        leading = self._replica.leading
        return None if leading is None else leading.start_offset

    @property
    def transferring_to(self) -> int | None:
        """The voter to which leadership is being handed; meanwhile nothing may be proposed."""
        leading = self._replica.leading
        pending = None if leading is None else leading.transfer
        return None if pending is None else pending.to

    @property
    def voters(self) -> VoterSet:
        """The latest voters in the log, committed or not: this replica uses them."""
        return self._replica.voters

    @property
    def voter_history(self) -> VoterHistory:
        """All sets of voters that the log holds. Callers must not change it."""
        return self._replica.history

    @property
    def voters_offset(self) -> int:
        """The offset of the batch that made them voters; -1: the configuration names them."""
        return self._replica.history.latest_offset

    def voters_at(self, end_offset: int) -> VoterSet:
        """The voters as of everything below ``end_offset``, for a snapshot that ends there."""
        return self._replica.history.at(end_offset)

    @property
    def adding(self) -> Voter | None:
        """The observer that becomes a voter once it has caught up. If this changes to None and the
        observer is not in ``voters``, it was given up."""
        leading = self._replica.leading
        adding = None if leading is None else leading.adding
        return None if adding is None else adding.voter

    @property
    def voters_to_be(self) -> VoterSet:
        """The latest voters, and the observer that is about to become one."""
        return self.voters if self.adding is None else self.voters.with_voter(self.adding)

    @property
    def change_pending(self) -> bool:
        """Whether the latest voters are not known to be committed, or one is about to be added.

        A leader makes no other change meanwhile.
        """
        return self.adding is not None or self._replica.voters_pending

    def in_touch(self, now: float) -> bool:
        """Whether this replica leads, or has heard from its leader within the fetch timeout."""
        state = self._replica.state
        if isinstance(state, Follower | Prospective | Observer):
            return now - state.last_contact <= self._replica.timing.fetch_timeout_s
        return isinstance(state, Leader)

    def describe(self, now: float) -> list[ReplicaView]:
        """All replicas as this leader knows them, voters first; nothing while not leading."""
        replica, state = self._replica, self._replica.leading
        if state is None:
            return []
        itself = ReplicaView(replica.local, replica.is_voter, replica.log.end_offset, now, now)
        views = [itself] + [
            _view(ReplicaKey(voter, progress.directory_id), progress, is_voter=True)
            for voter, progress in state.progress.items()
        ]
        views += [_view(key, progress, is_voter=False) for key, progress in state.observers.items()]
        return sorted(
            views, key=lambda view: (not view.is_voter, view.key.id, view.key.directory_id)
        )

    # ------------------------------------------------------------------------------ events

    def start(self, now: float) -> Ready:
        """Take up the role that the hard state implies. Never resumes a leadership or candidacy:
        what was not durable of that epoch is lost, and another may hold it.

        Raises ValueError when neither voters nor bootstrap nodes are known.
        """
        replica, leader_id = self._replica, self._replica.leader_id
        replica.leader_gone = leader_id == replica.local.id
        if not replica.whom_to_ask and not replica.may_stand:
            raise ValueError("no voters and no bootstrap nodes: nobody to ask for the log")
        if not replica.may_stand:
            replica.become_observer(now)
        elif leader_id == replica.local.id:
            replica.become_resigned(now)
        elif leader_id is not None:
            replica.become_follower(now, leader_id)
        else:
            replica.become_unattached(now, replica.timing.suspicion(replica.rng))
        return self._finish(now)

    def step(self, inbound: Inbound, now: float) -> Ready:
        """Take in a peer's request, an answer, or the failure of a call."""
        replica = self._replica
        if isinstance(inbound, RequestReceived):
            self._on_request(inbound, now)
        elif (call := replica.outstanding.pop(inbound.request_id, None)) is not None:
            if isinstance(inbound, ResponseReceived):
                self._on_response(call, inbound, now)
            else:
                self._on_failure(call, now)
        return self._finish(now)

    def tick(self, now: float) -> Ready:
        """Do everything due by now. Call it at ``Ready.deadline`` at the latest; earlier calls do
        no harm."""
        election.tick(self._replica, now)
        replication.tick(self._replica, now)
        fetch_source.tick(self._replica, now)
        return self._finish(now)

    def propose(self, payload: bytes, count: int, now: float) -> Ready:
        """Append one batch of ``count`` records as leader, at ``log.end_offset``.

        The driver has checked that the disk has room for it: from here on it cannot be refused.
        """
        replica, state = self._replica, self._replica.leading
        if state is None:
            raise ValueError(f"only a leader proposes, not a {replica.role.value}")
        if state.transfer is not None:
            raise ValueError(f"leadership is being handed to {state.transfer.to}")
        replica.append([Batch(replica.log.end_offset, count, replica.epoch, payload)])
        replication.answer_parked(replica, state)
        return self._finish(now)

    def persisted(self, ticket: int, now: float) -> Ready:
        """Everything that Readys up to this ticket asked to persist is durable."""
        replica = self._replica
        if replica.persisted(ticket, now):
            election.promise_kept(replica)
        election.count_own_vote(replica, now)
        if replica.leading is not None:
            replication.answer_parked(replica, replica.leading)
        return self._finish(now)

    def snapshot_taken(self, snapshot: SnapshotId, start_offset: int) -> None:
        """This replica has written a snapshot of its committed records, and cut its log before
        ``start_offset``."""
        replica = self._replica
        if not start_offset <= snapshot.end_offset <= replica.high_watermark:
            raise InvariantError(f"{snapshot} holds more than {replica.high_watermark}, committed")
        replica.snapshot = snapshot
        replica.log.cut_before(start_offset)
        replica.history.cut_before(start_offset)

    def snapshot_checked(
        self,
        snapshot: SnapshotId,
        now: float,
        *,
        sound: bool,
        voters: VoterSet | None = None,
    ) -> Ready:
        """A fetched snapshot is complete on disk. ``sound``: its contents are right.

        ``voters`` are those in it; None: its log had no voters record then.
        """
        snapshots.checked(self._replica, now, snapshot, sound=sound, voters=voters)
        return self._finish(now)

    def leader_unreachable(self, now: float) -> Ready:
        """The connection to the leader broke or was refused. A follower soon asks for pre-votes."""
        election.leader_unreachable(self._replica, now)
        return self._finish(now)

    def resign(self, now: float) -> Ready:
        """Give up leadership in good order, as before a shutdown; nothing unless leading."""
        if self._replica.leading is not None:
            self._replica.become_resigned(now)
        return self._finish(now)

    def transfer_refusal(self, to: int, now: float) -> ErrorCode:
        """Why leadership cannot be handed to voter ``to`` now; NONE when it can."""
        return transfer.refusal(self._replica, now, to)

    def transfer(self, to: int, now: float) -> Ready:
        """Hand leadership to voter ``to``, as far as it catches up within an election timeout.

        Allowed when ``transfer_refusal`` is NONE; watch ``transferring_to`` and the status.
        """
        transfer.begin(self._replica, now, to)
        return self._finish(now)

    @property
    def reads_confirmed(self) -> int:
        """How many rounds of confirmation a majority has answered in this leadership."""
        leading = self._replica.leading
        return 0 if leading is None else leading.reads.confirmed

    def confirm_leadership(self, now: float) -> tuple[int, Ready]:
        """Ask a majority whether this replica, a leader, still leads.

        It did when this was called, if ``reads_confirmed`` reaches the number returned before
        the leadership ends: then the high watermark of now is the newest there was.
        """
        replica, state = self._replica, self._replica.leading
        if state is None:
            raise ValueError(f"only a leader can be confirmed, not a {replica.role.value}")
        number = read_index.begin(replica, now, state)
        return number, self._finish(now)

    @property
    def minds_room(self) -> bool:
        """Whether ``tell_room`` has to come before the next event."""
        return membership.minds_room(self._replica)

    def tell_room(self, has_room: bool) -> None:
        """Whether the disk takes a small batch while the next event, and no other, is taken in.

        Without room a leader changes no voters by itself, since its appends cannot be refused.
        """
        self._replica.has_room = has_room

    def change_refusal(self, change: VoterChange, now: float, *, has_room: bool) -> Refusal | None:
        """Why the voters cannot be changed so now; None when they can.

        ``has_room``: as in ``tell_room``.
        """
        return membership.refusal(self._replica, now, change, has_room=has_room)

    def change_voters(self, change: VoterChange, now: float, *, has_room: bool) -> Ready:
        """Add, remove or update a voter. Allowed when ``change_refusal`` is None.

        The change is certain once ``high_watermark`` passes its ``voters_offset``. ``AddVoter``
        appends its record later: watch ``adding``. If the leadership ends before, the outcome is
        open, as with ``propose``. A leader that removes itself leads until the removal is
        committed, and then resigns.
        """
        membership.begin(self._replica, now, change, has_room=has_room)
        return self._finish(now)

    # ---------------------------------------------------------------------------- dispatch

    def _on_request(self, inbound: RequestReceived, now: float) -> None:
        replica, request_id, message = self._replica, inbound.request_id, inbound.message
        match message:
            case FetchRequest():
                replication.on_fetch_request(replica, now, request_id, message)
            case FetchSnapshotRequest():
                snapshots.on_request(replica, now, request_id, message)
            case VoteRequest():
                election.on_vote_request(replica, now, request_id, message)
            case BeginQuorumEpochRequest():
                election.on_begin_epoch_request(replica, now, request_id, message)
            case EndQuorumEpochRequest():
                election.on_end_epoch_request(replica, now, request_id, message)

    def _on_response(self, call: Call, inbound: ResponseReceived, now: float) -> None:
        replica, message = self._replica, inbound.message
        match message:
            case FetchResponse():
                fetching.on_response(replica, now, call.to, message)
            case FetchSnapshotResponse():
                snapshots.on_response(replica, now, call.to, message)
            case VoteResponse():
                election.on_vote_response(replica, now, call.to, message)
            case BeginQuorumEpochResponse() | EndQuorumEpochResponse():
                election.on_announced(replica, now, call.to, message)
                if isinstance(message, BeginQuorumEpochResponse):
                    read_index.on_answer(replica, now, inbound.request_id, message)

    def _on_failure(self, call: Call, now: float) -> None:
        replica = self._replica
        match call.message:
            case FetchRequest() | FetchSnapshotRequest():
                fetch_source.unreachable(replica, now, call.to)
            case VoteRequest():
                election.on_vote_failed(replica, now, call.to)
            case BeginQuorumEpochRequest() | EndQuorumEpochRequest():
                election.on_announced(replica, now, call.to, None)
                read_index.on_answer(replica, now, call.request_id, None)

    def _finish(self, now: float) -> Ready:
        """Send the messages that the new state requires, and hand out the work."""
        replica = self._replica
        membership.settle_role(replica, now)
        if isinstance(replica.state, Leader):
            transfer.advance(replica, now, replica.state)
        if isinstance(replica.state, Leader):  # it leads on
            membership.advance(replica, now, replica.state)
        match replica.state:
            case Leader() as state:
                election.announce_begin(replica, now, state)
                read_index.advance(replica, now, state)
            case Follower() | Observer() as state:
                fetching.fetch(replica, now, state.fetching)
            case Unattached() as state:
                fetching.ask_for_leader(replica, state)
            case Prospective() | Candidate() as state:
                election.ask_for_votes(replica, now, state)
            case Resigned() as state:
                election.announce_end(replica, now, state)
        return replica.take_ready(now, self._deadline())

    def _deadline(self) -> float:
        replica, state = self._replica, self._replica.state
        match state:
            case Unattached():
                return election.stand_at(replica, state.stand_at)
            case Follower():
                stand_at = election.stand_at(replica, state.stand_at)
                return min(stand_at, fetching.fetch_at(replica, state.fetching))
            case Prospective():
                return min(state.give_up_at, state.asking.deadline)
            case Candidate():
                stand_at = election.stand_at(replica, state.stand_again_at)
                return min(stand_at, state.asking.deadline)
            case Resigned():
                stand_at = election.stand_at(replica, state.stand_at)
                return min(stand_at, state.asking.deadline)
            case Observer():
                return min(state.doubt_at, fetching.fetch_at(replica, state.fetching))
            case Leader():
                begin_at = min([p.begin_at for p in state.progress.values()], default=NEVER)
                check_at = election.check_quorum_at(replica, state)
                return min(
                    begin_at,
                    check_at,
                    state.parking.deadline,
                    transfer.give_up_at(state),
                    membership.give_up_at(state),
                    read_index.ask_at(state),
                )


def _view(key: ReplicaKey, progress: Progress, *, is_voter: bool) -> ReplicaView:
    last_fetch_at = progress.last_contact if progress.has_fetched else None
    return ReplicaView(key, is_voter, progress.end_offset, last_fetch_at, progress.caught_up_at)
