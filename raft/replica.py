"""A replica's state, and the steps from one role to the next.

``raft.election`` and ``raft.membership`` decide when to step; ``raft.core`` is the way in.
"""

from __future__ import annotations

from collections.abc import Sequence

from raft.log_view import LogView
from raft.messages import Batch, FetchResponse, LeaderChange, Request, Response, SnapshotId
from raft.progress import ParkedFetch, Progress
from raft.quorum import NO_DIRECTORY, ReplicaKey, VoterSet, VoteTally, majority_value
from raft.ready import (
    Call,
    HardState,
    Outbound,
    ReadRange,
    Ready,
    Reply,
    Role,
    SnapshotPiece,
    Status,
)
from raft.roles import (
    NEVER,
    Asking,
    Candidate,
    Fetcher,
    Fetching,
    Follower,
    Leader,
    Observer,
    Prospective,
    Resigned,
    RoleState,
    Unattached,
)
from raft.timing import Timing
from raft.voter_history import NO_RECORD, VoterHistory
from stele.errors import ErrorCode, SteleError
from stele.world import Rng


class InvariantError(SteleError):
    """An event that Raft rules out. The replica must stop: going on may lose data."""


class RaftReplica:
    """The state that all roles share, the role's own, and the work that has piled up."""

    def __init__(
        self,
        local: ReplicaKey,
        voters: VoterHistory,
        log: LogView,
        hard_state: HardState,
        timing: Timing,
        rng: Rng,
    ) -> None:
        self.local = local
        self.history = voters  # of the log, to its end: appended and truncated with it
        self.log = log
        self.timing = timing
        self.rng = rng
        self.epoch = hard_state.epoch  # never goes back; >= the epoch of every record in the log
        self.leader_id = hard_state.leader_id  # of this epoch; once known it never changes
        self.leader_gone = False  # the epoch's leader has given up, or fell silent
        self.voted: ReplicaKey | None = None  # in this epoch; once given it never changes
        if hard_state.voted_id is not None:
            self.voted = ReplicaKey(hard_state.voted_id, hard_state.voted_directory_id or bytes(16))
        self.bootstrap: tuple[int, ...] = ()  # nodes to ask besides the voters
        self.is_founder = True  # may be meant where voters are known by their nodes only
        self.has_room = False  # room for a change of the voters: valid for this event only
        self.snapshot: SnapshotId | None = None  # the newest here; everything in it is committed
        # Everything in a snapshot is committed.
        self.high_watermark = (
            log.start_offset or -1
        )  # never goes back; <= log.end_offset; nothing below is truncated
        self.losses = 0  # elections lost in a row
        self.outstanding: dict[int, Call] = {}  # of the present role in the present epoch only
        self.state: RoleState = Unattached(NEVER)
        self._last_request_id = 0
        self._ready = Ready()
        self._outbound: list[Outbound] = []
        self._status: Status | None = None  # as the last Ready that told of it
        self._voters: VoterSet | None = None  # likewise
        self._hard_state_changed = False
        self._promise_changed = False
        self._ticket = 0
        self._promise_ticket = 0  # messages wait until it is persisted: epoch or vote changed in it
        self.sync_took_s = 0.0  # the last one, from the asking on
        self._persisted_ticket = 0
        # (ticket, log end offset, when it was asked for), all ascending.
        self._unpersisted: list[tuple[int, int, float]] = []

    # -------------------------------------------------------------------------- facts

    @property
    def role(self) -> Role:
        return self.state.role

    @property
    def leading(self) -> Leader | None:
        """The leader's state; None in every other role."""
        return self.state if isinstance(self.state, Leader) else None

    @property
    def voters(self) -> VoterSet:
        """The latest in the log, committed or not."""
        return self.history.latest

    @property
    def is_voter(self) -> bool:
        return self.is_in(self.voters)

    def is_in(self, voters: VoterSet) -> bool:
        """Whether this replica is one of these voters, as far as it can know."""
        voter = voters.get(self.local.id)
        if voter is None:
            return False
        known = voter.key.directory_id != NO_DIRECTORY
        return voter.key.matches(self.local) if known else self.is_founder

    @property
    def voters_pending(self) -> bool:
        """Whether the latest voters are not known to be committed."""
        return self.history.latest_offset >= max(self.high_watermark, 0)

    @property
    def may_stand(self) -> bool:
        """Whether this replica may ask for votes: as one of the voters, or of the earlier voters
        while their change is not known to be committed.

        Example of an earlier voter: a leader of two voters removes itself and then falls. The other
        voter may lack the record and need a vote. The former leader has the record, and by it is no
        voter. If it could not stand for election, no leader could be elected (Ongaro, §4.2.2). It
        does not count its own vote then, and it resigns once the change is committed.
        """
        return self.is_voter or (self.voters_pending and self.is_in(self.history.previous))

    @property
    def whom_to_ask(self) -> tuple[int, ...]:
        """The nodes that may know the leader, one of them at least."""
        return (*self.voters.others(self.local.id), *self.others_to_ask)

    @property
    def others_to_ask(self) -> list[int]:
        """The nodes that may know the leader and are no voters by this log."""
        known = (*self.voters.ids, self.local.id)
        return [node for node in self.bootstrap if node not in known]

    @property
    def known_leader(self) -> int | None:
        """The leader to name to others; None once this replica knows that it has given up."""
        return None if self.leader_gone else self.leader_id

    @property
    def fetching(self) -> Fetching | None:
        """The fetch loop of a follower or an observer."""
        return self.state.fetching if isinstance(self.state, Fetcher) else None

    @property
    def status(self) -> Status:
        return Status(self.role, self.epoch, self.known_leader)

    @property
    def hard_state(self) -> HardState:
        voted = self.voted
        return HardState(
            self.epoch,
            self.leader_id,
            voted.id if voted else None,
            voted.directory_id if voted else None,
        )

    # --------------------------------------------------------------------- work going out

    def call(self, to: int, message: Request) -> int:
        self._last_request_id += 1
        call = Call(self._last_request_id, to, message)
        self.outstanding[call.request_id] = call
        self._outbound.append(call)
        return call.request_id

    def reply(self, request_id: int, message: Response, read: ReadRange | None = None) -> None:
        self._outbound.append(Reply(request_id, message, read))

    def refuse_fetch(self, request_id: int, error: ErrorCode) -> None:
        self.reply(request_id, FetchResponse(error, self.known_leader, self.epoch))

    def append(self, batches: Sequence[Batch]) -> None:
        for batch in batches:
            if batch.epoch > self.epoch:
                raise InvariantError(f"{batch} is of an epoch that this replica is not in")
            self.log.append(batch.base_offset, batch.count, batch.epoch)
            if batch.new_voters is not None:
                self.history.append(batch.base_offset, batch.new_voters)
        self._ready.append.extend(batches)

    def truncate_to(self, offset: int) -> None:
        if offset < self.high_watermark:
            raise InvariantError(
                f"the leader {self.leader_id} of epoch {self.epoch} asks for a truncation to"
                f" {offset}, below the high watermark {self.high_watermark}"
            )
        if self._ready.append:
            raise InvariantError("a Ready truncates first: it has appended already")
        self.log.truncate_to(offset)
        self.history.truncate_to(offset)
        self._unpersisted = [
            (ticket, min(end, offset), at) for ticket, end, at in self._unpersisted
        ]
        self._ready.truncate_to = offset

    def take_piece(self, piece: SnapshotPiece) -> None:
        self._ready.pieces.append(piece)

    def install(self, snapshot: SnapshotId, voters: VoterSet | None) -> None:
        """Put a checked snapshot in the place of the log, which it supersedes."""
        if self.leading is not None or snapshot.end_offset <= self.high_watermark:
            raise InvariantError(f"a {self.role.value} must not load {snapshot}")
        if self._ready.append or self._ready.truncate_to is not None:
            raise InvariantError("a Ready installs first: it has touched the log already")
        self.log.reset_to(snapshot)
        self._install_voters(snapshot, voters)
        self._unpersisted = [
            (ticket, snapshot.end_offset, at) for ticket, _, at in self._unpersisted
        ]
        self.snapshot = snapshot
        self.high_watermark = snapshot.end_offset
        self._ready.install = snapshot

    def _install_voters(self, snapshot: SnapshotId, voters: VoterSet | None) -> None:
        if voters is not None:
            self.history.reset(voters, snapshot.end_offset - 1)
            return
        self.history.truncate_to(0)
        if self.history.latest_offset != NO_RECORD:
            raise InvariantError(f"{snapshot} has no voters, but what is committed before it has")

    def advance_high_watermark(self, offset: int) -> bool:
        """Everything below ``offset`` is committed; lower news than known is no news."""
        if offset <= self.high_watermark:
            return False
        if offset > self.log.end_offset:
            raise InvariantError(f"high watermark {offset} is past the end {self.log.end_offset}")
        known = max(self.high_watermark, self.log.start_offset)
        start = self._ready.committed[0] if self._ready.committed else known
        self._ready.committed = (start, offset)
        self.high_watermark = offset
        return True

    def take_ready(self, now: float, deadline: float) -> Ready:
        """Return the collected work as a Ready, and begin anew."""
        ready, self._ready = self._ready, Ready()
        self.has_room = False
        ready.deadline = deadline
        if self._hard_state_changed:
            ready.hard_state = self.hard_state
        if ready.hard_state or ready.append or ready.truncate_to is not None:
            self._ticket += 1
            ready.ticket = self._ticket
            self._unpersisted.append((self._ticket, self.log.end_offset, now))
        if self._promise_changed:
            self._promise_ticket = self._ticket
        self._hard_state_changed = self._promise_changed = False
        durable = self._promise_ticket <= self._persisted_ticket
        (ready.send if durable else ready.send_after_persist).extend(self._outbound)
        self._outbound = []
        if self._status != (self.state.role, self.epoch, self.known_leader):
            self._status = ready.status = self.status
        voters = self.history.latest
        if voters != self._voters:
            self._voters = ready.voters = voters
        return ready

    def persisted(self, ticket: int, now: float) -> bool:
        """Everything up to this ticket is durable. Whether the last promise has become so."""
        was_durable = self.promises_durable
        if not self._persisted_ticket <= ticket <= self._ticket:
            raise ValueError(f"ticket {ticket} is not in {self._persisted_ticket}..{self._ticket}")
        self._persisted_ticket = ticket
        while self._unpersisted and self._unpersisted[0][0] <= ticket:
            _, end_offset, asked_at = self._unpersisted.pop(0)
            self.log.durable_to(end_offset)
            self.sync_took_s = now - asked_at
        return self.promises_durable and not was_durable

    @property
    def promises_durable(self) -> bool:
        """Whether the epoch and the vote would survive a crash."""
        return not self._promise_changed and self._promise_ticket <= self._persisted_ticket

    # ------------------------------------------------------------------- epoch and vote

    def enter_epoch(self, epoch: int, *, vote: ReplicaKey | None = None) -> None:
        if epoch <= self.epoch:
            raise InvariantError(f"epoch {epoch} does not follow {self.epoch}")
        self.epoch = epoch
        self.leader_id = None
        self.leader_gone = False
        self.voted = vote
        self._promised()

    def give_vote(self, candidate: ReplicaKey) -> None:
        if self.voted is not None or self.leader_id is not None:
            raise InvariantError(f"a second vote in epoch {self.epoch}: {self.voted}, {candidate}")
        self.voted = candidate
        self._promised()

    def learn_leader(self, leader_id: int) -> None:
        if self.leader_id not in (None, leader_id):
            raise InvariantError(
                f"epoch {self.epoch} has two leaders: {self.leader_id} and {leader_id}"
            )
        self._hard_state_changed |= self.leader_id != leader_id
        self.leader_id = leader_id

    def _promised(self) -> None:
        self._hard_state_changed = self._promise_changed = True

    # ------------------------------------------------------------------------- transitions

    def _enter(self, state: RoleState) -> None:
        """Leave the present role: its calls are void, and its parked fetches are refused."""
        left, self.state = self.leading, state
        self._ready.cancel.extend(self.outstanding)
        self.outstanding.clear()
        if left is not None:
            for fetch in left.parking.take_all():
                self.refuse_fetch(fetch.request_id, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def become_unattached(self, now: float, delay: float) -> None:
        self._enter(Unattached(now + delay))

    def become_follower(
        self, now: float, leader_id: int, last_contact: float = float("-inf")
    ) -> None:
        self.learn_leader(leader_id)
        self.losses = 0
        stand_at = now + self.timing.fetch_timeout_s
        self._enter(Follower(Fetching(leader_id), stand_at, last_contact))

    def return_to_leader(self, now: float, last_contact: float) -> None:
        """Follow again after a lost pre-vote: the others still hear the leader."""
        if self.leader_id is None:
            raise InvariantError("there is no leader to return to")
        stand_at = now + self.timing.election_timeout(self.rng)
        self._enter(Follower(Fetching(self.leader_id), stand_at, last_contact))

    def become_observer(self, now: float, last_contact: float = float("-inf")) -> None:
        """Fetch from the leader, which is another replica, or ask around for it."""
        leads = self.known_leader
        target = self.whom_to_ask[0] if leads is None else leads
        doubt_at = now + self.timing.fetch_timeout_s
        self._enter(Observer(Fetching(target), doubt_at, last_contact))

    def become_prospective(self, now: float) -> None:
        state = self.state
        last_contact = state.last_contact if isinstance(state, Follower) else float("-inf")
        tally = VoteTally(self.voters)
        tally.record(self.local.id, granted=True)
        asking = Asking.all(self.voters.others(self.local.id), now)
        give_up_at = now + self.timing.election_timeout(self.rng)
        self._enter(Prospective(tally, asking, give_up_at, last_contact))

    def become_candidate(self, now: float) -> None:
        self.enter_epoch(self.epoch + 1, vote=self.local)
        asking = Asking.all(self.voters.others(self.local.id), now)
        stand_again_at = now + self.timing.election_timeout(self.rng)
        self._enter(Candidate(VoteTally(self.voters), asking, stand_again_at))

    def become_leader(self, now: float, granting: Sequence[int]) -> None:
        self.learn_leader(self.local.id)
        self.losses = 0
        others = self.voters.others(self.local.id)
        progress = {voter: Progress(now, begin_at=now) for voter in others}
        self._enter(Leader(self.log.end_offset, progress))
        change = LeaderChange(self.local.id, self.voters.ids, tuple(sorted(granting)))
        self.append([Batch(self.log.end_offset, 1, self.epoch, change)])

    def become_resigned(self, now: float, *, preferred: int | None = None) -> None:
        """End the leadership and announce it to the voters, in the order of their logs.

        ``preferred`` is named as the first successor, whatever the others have.
        """
        successors: tuple[int, ...] = ()
        if (state := self.leading) is not None:
            by_end = sorted(
                state.progress.items(),
                key=lambda item: (item[0] != preferred, -item[1].end_offset, item[0]),
            )
            successors = tuple(voter for voter, _ in by_end)
        self.leader_gone = True
        asking = Asking.all(self.voters.others(self.local.id) if successors else (), now)
        stand_at = now + self.timing.election_timeout(self.rng)
        self._enter(Resigned(asking, successors, stand_at))

    # ----------------------------------------------------------------- news of other epochs

    def observe(self, now: float, epoch: int, leader_id: int | None) -> bool:
        """Take over epoch and leader from a message; return whether they were news.

        The leader need not be one of the voters known here: this log may be behind (Ongaro, §4.1).
        """
        if leader_id == self.local.id:
            leader_id = None  # an epoch led before a restart: not to follow
        if epoch > self.epoch:
            self.enter_epoch(epoch)
            self.losses = 0
        elif epoch < self.epoch or self.leader_id is not None or leader_id is None:
            return False
        self._settle(now, leader_id)
        return True

    def _settle(self, now: float, leader_id: int | None) -> None:
        if not self.may_stand:
            if leader_id is not None:
                self.learn_leader(leader_id)
            if leader_id is not None or not isinstance(self.state, Observer):
                self.become_observer(now)
        elif leader_id is not None:
            self.become_follower(now, leader_id)
        else:
            self.become_unattached(now, self.timing.election_timeout(self.rng))

    # --------------------------------------------------------------------------- commitment

    def durable_majority(self, leader: Leader) -> int:
        ends = {voter: progress.end_offset for voter, progress in leader.progress.items()}
        return majority_value(self.voters, ends | {self.local.id: self.log.durable_end_offset})

    def commit(self, leader: Leader) -> list[ParkedFetch]:
        """Advance the high watermark if it may; return the parked fetches to answer.

        Records of earlier epochs are committed only by way of one of this epoch (Raft §5.4.2).
        """
        offset = self.durable_majority(leader)
        if offset > leader.start_offset:
            self.advance_high_watermark(offset)
        return leader.parking.take_answerable(self.log.end_offset, self.high_watermark)
