"""Interaction scripts for the Raft core: text commands in, a printed transcript out.

A script is a list of blocks: command lines, a line ``----``, the lines that they print, an empty
line. Nothing is random and nothing happens by itself: messages wait until they are delivered, syncs
until they are done. ``COMMANDS`` below is the list of commands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from raft.membership import AddVoter, RemoveVoter, UpdateVoter, VoterChange
from raft.messages import (
    Batch,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    CallFailed,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LeaderChange,
    Request,
    RequestReceived,
    Response,
    ResponseReceived,
    SnapshotId,
    VoteRequest,
    VoteResponse,
    VotersChange,
)
from raft.quorum import NO_DIRECTORY, ReplicaKey, Voter, VoterSet
from raft.ready import Call, Outbound, Ready
from raft.timing import Timing
from stele.errors import ErrorCode
from tests.support.raft_node import FakeNode


class LeastRng:
    """Draws the least number of every range plus a little per node: timeouts differ predictably."""

    def __init__(self, node_id: int) -> None:
        self._share = node_id * 0.1

    def random(self) -> float:
        return self._share

    def uniform(self, a: float, b: float, /) -> float:
        return a + (b - a) * self._share

    def randrange(self, start: int, stop: int, /) -> int:
        return start

    def randbytes(self, n: int, /) -> bytes:
        return bytes(n)


@dataclass(slots=True)
class Packet:
    source: int
    target: int
    request_id: int  # the caller's id of the request
    request: Request | None
    response: Response | None = None


class Script:
    """The nodes of one script, the messages between them, and the transcript."""

    def __init__(self) -> None:
        self.now = 0.0
        self.nodes: dict[int, FakeNode] = {}
        self.packets: list[Packet] = []
        self.cuts: set[tuple[int, int]] = set()
        # By the server's id of a received request: its caller and the caller's id.
        self._served: list[tuple[int, int]] = []
        self._lines: list[str] = []
        self._snapshots: dict[SnapshotId, list[Batch]] = {}

    # ---------------------------------------------------------------------------- running

    def run(self, text: str) -> str:
        """Run a whole script. Returns it with the lines that were printed in place of the earlier
        ones."""
        out = []
        for block in text.strip("\n").split("\n\n"):
            commands, _, _ = block.partition("\n----")
            out.append(commands)
            if any(line and not line.startswith("#") for line in commands.splitlines()):
                out[-1] += "\n----\n" + self._run_block(commands)
        return "\n\n".join(out) + "\n"

    def _run_block(self, commands: str) -> str:
        self._lines = []
        for line in commands.splitlines():
            if line and not line.startswith("#"):
                name, *arguments = line.split()
                COMMANDS[name](self, *arguments)
        return "\n".join(self._lines) or "(nothing)"

    def say(self, line: str) -> None:
        self._lines.append(line)

    # --------------------------------------------------------------------------- commands

    def voters(self, *ids: str) -> None:
        """voters 1 2 3: make these voters, all down, with empty disks"""
        voters = VoterSet.of_ids(*map(int, ids))
        for node in map(int, ids):
            self._make(node, voters)

    def observer(self, node: str) -> None:
        """observer 4: make a node that does not vote"""
        self._make(int(node), next(iter(self.nodes.values())).voters)

    def joining(self, *ids: str) -> None:
        """joining 4 5: make nodes that know nobody, and ask voter 1 for the leader"""
        for node in map(int, ids):
            self._make(node, VoterSet([]))
            self.nodes[node].bootstrap = (-1,)

    def directories(self, *ids: str) -> None:
        """directories 1 2 3: give these nodes directory ids (a)"""
        for node in map(int, ids):
            self.nodes[node].directory_id = b"a" * 16

    def _make(self, node: int, voters: VoterSet) -> None:
        self.nodes[node] = FakeNode(
            node, voters, Timing(), LeastRng(node), contents=self._snapshots
        )

    def disk(self, node: str, epoch: str, *epochs: str) -> None:
        """disk 1 3 1 1 2: node 1, down, was last in epoch 3; its log has records of these epochs"""
        owner = self.nodes[int(node)]
        owner.durable_hard_state = type(owner.durable_hard_state)(int(epoch))
        owner.durable_log = [
            Batch(offset, 1, int(of), f"{of}.{offset}".encode()) for offset, of in enumerate(epochs)
        ]

    def batches(self, node: str, count: str) -> None:
        """batches 1 1: node 1 answers a fetch with one batch at most"""
        self.nodes[int(node)].max_batches_per_fetch = int(count)

    def start(self, *ids: str) -> None:
        """start 1 2: start nodes from what their disks hold"""
        for node in map(int, ids):
            self._carry_out(node, *self.nodes[node].start(self.now))

    def crash(self, node: str) -> None:
        """crash 1: the node loses what is not synced; calls to and from it are gone"""
        self.nodes[int(node)].crash()
        self.packets = [p for p in self.packets if int(node) not in (p.source, p.target)]

    def wipe(self, node: str) -> None:
        """wipe 3: node 3, which is down, gets an empty disk (the next letter), made to join"""
        owner = self.nodes[int(node)]
        owner.wipe(bytes([owner.directory_id[0] + 1]) * 16)
        owner.bootstrap = tuple(-other for other in self.nodes if other != owner.id)

    def advance(self, milliseconds: str) -> None:
        """advance 100: let time pass; ticks nodes that are due, delivers nothing"""
        self._advance(float(milliseconds) / 1000, lambda: None)

    def run_for(self, milliseconds: str) -> None:
        """run 100: settle, then let time pass, settling after every tick"""
        self.settle()
        self._advance(float(milliseconds) / 1000, self.settle)

    def _advance(self, seconds: float, then: Callable[[], None]) -> None:
        end = self.now + seconds
        for _ in range(10_000):
            due = min(self.nodes.values(), key=lambda node: (node.deadline, node.id))
            if due.deadline > end:
                break
            self.now = max(self.now, due.deadline)
            ready = due.running.tick(self.now)
            self._carry_out(due.id, ready, due.apply(ready))
            then()
        else:
            raise AssertionError("some node is due again and again")
        self.now = end

    def deliver(self, *pair: str) -> None:
        """deliver [1 2]: hand over what is under way (from 1 to 2), and what that leads to"""
        while packet := self._next_packet(pair):
            self._hand_over(packet)

    def sync(self, *ids: str) -> None:
        """sync [1]: make durable what the nodes have written so far"""
        for node in map(int, ids) if ids else list(self.nodes):
            owner = self.nodes[node]
            if owner.wants_sync:
                owner.begin_sync()
                self._carry_out(node, *owner.end_sync(self.now))

    def settle(self) -> None:
        """settle: deliver and sync until nothing is left to do"""
        while self.packets or any(node.wants_sync for node in self.nodes.values()):
            self.deliver()
            self.sync()

    def drop(self, source: str, target: str) -> None:
        """drop 1 2: lose what is under way from 1 to 2"""
        pair = (int(source), int(target))
        self.packets = [p for p in self.packets if (p.source, p.target) != pair]

    def cut(self, *ids: str) -> None:
        """cut 1 [2]: lose from now on what goes between 1 and 2 (or 1 and everybody)"""
        first = int(ids[0])
        for other in map(int, ids[1:]) if len(ids) > 1 else list(self.nodes):
            self.cuts |= {(first, other), (other, first)}

    def heal(self) -> None:
        """heal: lose nothing any more"""
        self.cuts.clear()

    def fail(self, source: str, target: str) -> None:
        """fail 2 1: every call of 2 to 1 that is not answered fails"""
        node = self.nodes[int(source)]
        self.drop(source, target)
        for call in list(node.running.outstanding.values()):
            if abs(call.to) == int(target):
                self._carry_out(node.id, *node.step(CallFailed(call.request_id), self.now))

    def unreachable(self, node: str) -> None:
        """unreachable 2: the connection of node 2 to its leader broke"""
        owner = self.nodes[int(node)]
        ready = owner.running.leader_unreachable(self.now)
        self._carry_out(owner.id, ready, owner.apply(ready))

    def propose(self, node: str, *values: str) -> None:
        """propose 1 a b: append one batch of two records as leader"""
        owner = self.nodes[int(node)]
        ready = owner.running.propose(" ".join(values).encode(), len(values), self.now)
        self._carry_out(owner.id, ready, owner.apply(ready))

    def resign(self, node: str) -> None:
        """resign 1: give up leadership in good order"""
        owner = self.nodes[int(node)]
        ready = owner.running.resign(self.now)
        self._carry_out(owner.id, ready, owner.apply(ready))

    def transfer(self, node: str, to: str) -> None:
        """transfer 1 3: hand leadership of node 1 to node 3, or say why not"""
        owner = self.nodes[int(node)]
        error = owner.running.transfer_refusal(int(to), self.now)
        if error is not ErrorCode.NONE:
            self.say(f"{node}: refuses: {error.name}")
            return
        ready = owner.running.transfer(int(to), self.now)
        self._carry_out(owner.id, ready, owner.apply(ready))

    def add(self, node: str, to_add: str, milliseconds: str) -> None:
        """add 1 4 1000: leader 1 is to make node 4 a voter, within a second"""
        voter = Voter(self.nodes[int(to_add)].key)
        self._change(node, AddVoter(voter, float(milliseconds) / 1000))

    def remove(self, node: str, to_remove: str, directory: str = "") -> None:
        """remove 1 4 [a]: leader 1 is to remove voter 4 [with that directory]"""
        directory_id = directory.encode() * 16 if directory else NO_DIRECTORY
        self._change(node, RemoveVoter(ReplicaKey(int(to_remove), directory_id)))

    def update(self, node: str, to_update: str, endpoint: str, *features: str) -> None:
        """update 1 3 c3:1 f=1-2: voter 3 tells leader 1 where it is and what it supports"""
        told = []
        for feature in features:
            name, _, levels = feature.partition("=")
            least, _, greatest = levels.partition("-")
            told.append((name, int(least), int(greatest)))
        key = self.nodes[int(to_update)].key
        self._change(node, UpdateVoter(Voter(key, endpoint, tuple(told))))

    def _change(self, node: str, change: VoterChange) -> None:
        owner = self.nodes[int(node)]
        refusal = owner.running.change_refusal(change, self.now, has_room=True)
        if refusal is not None:
            self.say(f"{node}: refuses: {refusal.error.name}: {refusal.message}")
            return
        ready = owner.running.change_voters(change, self.now, has_room=True)
        self._carry_out(owner.id, ready, owner.apply(ready))

    def show(self, *ids: str) -> None:
        """show 1 2: print by which voters these nodes go"""
        for node in map(int, ids):
            core = self.nodes[node].running
            pending = " pending" if core.change_pending else ""
            self.say(f"{node}: voters {show_voters(core.voters)}{pending}")

    def snapshot(self, node: str, offset: str) -> None:
        """snapshot 1 3: node 1 has a snapshot of everything below 3, and cuts its log there"""
        self.nodes[int(node)].take_snapshot(int(offset))

    def check(self, node: str, sound: str = "sound") -> None:
        """check 2 [damaged]: the driver of node 2 has checked the snapshot that it fetched"""
        owner = self.nodes[int(node)]
        assert owner.received is not None
        ready = owner.check_snapshot(owner.received, self.now, sound=sound == "sound")
        self._carry_out(owner.id, ready, owner.apply(ready))

    def status(self) -> None:
        """status: print every node's role, epoch, leader, log end, high watermark"""
        for node in self.nodes.values():
            if node.core is None:
                self.say(f"{node.id}: down, durable {node.durable_hard_state.epoch}")
                continue
            core = node.core
            self.say(
                f"{node.id}: {show_status(core.status)} end={core.log.end_offset}"
                f" hw={core.high_watermark}"
            )

    def log(self, node: str) -> None:
        """log 1: print the node's log"""
        for batch in self.nodes[int(node)].log:
            self.say(show_batch(batch))

    def quiet(self, *commands: str) -> None:
        """quiet settle: run a command and print nothing"""
        kept, self._lines = self._lines, []
        COMMANDS[commands[0]](self, *commands[1:])
        self._lines = kept

    # ----------------------------------------------------------------------------- wiring

    def _next_packet(self, pair: tuple[str, ...]) -> Packet | None:
        for index, packet in enumerate(self.packets):
            if not pair or (packet.source, packet.target) == tuple(map(int, pair)):
                return self.packets.pop(index)
        return None

    def _hand_over(self, packet: Packet) -> None:
        target = self.nodes[packet.target]
        if (packet.source, packet.target) in self.cuts:
            return
        if target.core is None:
            if packet.request is not None:
                self.say(f"{packet.source} cannot reach {packet.target}")
                source = self.nodes[packet.source]
                failed = CallFailed(packet.request_id)
                self._carry_out(packet.source, *source.step(failed, self.now))
            return
        if packet.request is not None:
            self._served.append((packet.source, packet.request_id))
            received = RequestReceived(len(self._served) - 1, packet.request)
            self._carry_out(packet.target, *target.step(received, self.now))
        else:
            assert packet.response is not None
            answered = ResponseReceived(packet.request_id, packet.response)
            self._carry_out(packet.target, *target.step(answered, self.now))

    def _carry_out(self, node: int, ready: Ready, outbound: list[Outbound]) -> None:
        for line in show_ready(ready):
            self.say(f"{node}: {line}")
        for item in ready.send_after_persist:
            self.say(f"{node}: holds until durable: {self._show_outbound(node, item)}")
        for item in outbound:
            self.say(f"{node} -> {self._show_outbound(node, item)}")
            self._post(node, item)

    def _post(self, node: int, item: Outbound) -> None:
        if isinstance(item, Call):
            self.packets.append(Packet(node, abs(item.to), item.request_id, item.message))
            return
        caller, request_id = self._served[item.request_id]
        filled = self.nodes[node].filled(item)
        self.packets.append(Packet(node, caller, request_id, None, filled.message))

    def _show_outbound(self, node: int, item: Outbound) -> str:
        if isinstance(item, Call):
            return f"{abs(item.to)} {show_request(item.message)}"
        filled = self.nodes[node].filled(item)
        return f"{self._served[item.request_id][0]} {show_response(filled.message)}"


COMMANDS: dict[str, Callable[..., None]] = {
    "voters": Script.voters,
    "observer": Script.observer,
    "joining": Script.joining,
    "directories": Script.directories,
    "wipe": Script.wipe,
    "add": Script.add,
    "remove": Script.remove,
    "update": Script.update,
    "show": Script.show,
    "disk": Script.disk,
    "batches": Script.batches,
    "start": Script.start,
    "crash": Script.crash,
    "advance": Script.advance,
    "run": Script.run_for,
    "deliver": Script.deliver,
    "sync": Script.sync,
    "settle": Script.settle,
    "drop": Script.drop,
    "cut": Script.cut,
    "heal": Script.heal,
    "fail": Script.fail,
    "unreachable": Script.unreachable,
    "propose": Script.propose,
    "resign": Script.resign,
    "transfer": Script.transfer,
    "snapshot": Script.snapshot,
    "check": Script.check,
    "status": Script.status,
    "log": Script.log,
    "quiet": Script.quiet,
}


def show_status(status: object) -> str:
    role, epoch, leader = status.role, status.epoch, status.leader_id  # type: ignore[attr-defined]
    return f"{role.value} epoch={epoch} leader={'-' if leader is None else leader}"


def show_batch(batch: Batch) -> str:
    payload = batch.payload
    if isinstance(payload, LeaderChange):
        text = f"leader-change to {payload.leader_id} by {payload.granting_voters}"
    elif isinstance(payload, VotersChange):
        text = f"voters {show_voters(payload.voters)}"
    else:
        text = payload.decode()
    return f"[{batch.base_offset},{batch.end_offset}) epoch={batch.epoch} {text}"


def show_voters(voters: VoterSet) -> str:
    """The ids, each with the letter of its directory if that is known, and the features it
    supports."""
    shown = []
    for voter in voters.voters:
        known = voter.key.directory_id != NO_DIRECTORY
        letter = voter.key.directory_id[:1].decode() if known else "?"
        told = [f"{name}={least}-{greatest}" for name, least, greatest in voter.features]
        shown.append(f"{voter.id}{letter}{'[' + ','.join(told) + ']' if told else ''}")
    return " ".join(shown)


def show_ready(ready: Ready) -> list[str]:
    lines = []
    if ready.status is not None:
        lines.append(show_status(ready.status))
    for piece in ready.pieces:
        end = " and has all" if piece.is_last else ""
        lines.append(f"stores bytes {piece.position} to {piece.position + len(piece.data)}{end}")
    if ready.install is not None:
        lines.append(f"install {show_snapshot(ready.install)}")
    if ready.truncate_to is not None:
        lines.append(f"truncate to {ready.truncate_to}")
    lines += [f"append {show_batch(batch)}" for batch in ready.append]
    if ready.hard_state is not None:
        hard = ready.hard_state
        lines.append(f"persist epoch={hard.epoch} leader={hard.leader_id} vote={hard.voted_id}")
    if ready.committed is not None:
        lines.append("commit [{},{})".format(*ready.committed))
    return lines


def show_snapshot(snapshot: SnapshotId) -> str:
    return f"snapshot {snapshot.end_offset}@{snapshot.epoch}"


def show_request(message: Request) -> str:
    match message:
        case VoteRequest():
            kind = "PreVote" if message.pre_vote else "Vote"
            return f"{kind} epoch={message.epoch} log={message.last_offset}@{message.last_epoch}"
        case BeginQuorumEpochRequest():
            return f"BeginQuorumEpoch epoch={message.epoch}"
        case EndQuorumEpochRequest():
            return f"EndQuorumEpoch epoch={message.epoch} next={message.preferred_successors}"
        case FetchRequest():
            log = f"{message.fetch_offset}@{message.last_fetched_epoch}"
            return f"Fetch epoch={message.epoch} log={log} hw={message.high_watermark}"
        case FetchSnapshotRequest():
            wanted = show_snapshot(message.snapshot)
            return f"FetchSnapshot epoch={message.epoch} {wanted} from {message.position}"


def show_response(message: Response) -> str:
    leader = "-" if message.leader_id is None else message.leader_id
    known = f"epoch={message.epoch} leader={leader}"
    if message.error is not ErrorCode.NONE:
        return f"{message.error.name} {known}"
    match message:
        case VoteResponse():
            return f"{'granted' if message.granted else 'rejected'} {known}"
        case BeginQuorumEpochResponse() | EndQuorumEpochResponse():
            return f"noted {known}"
        case FetchSnapshotResponse():
            piece = f"{message.position} to {message.position + len(message.data)}"
            return f"piece {known} bytes {piece} of {message.size}"
        case FetchResponse(snapshot=SnapshotId()):
            assert message.snapshot is not None
            return f"needs {known} {show_snapshot(message.snapshot)}"
        case FetchResponse(diverging=None):
            batches = ", ".join(show_batch(batch) for batch in message.batches)
            return f"fetched {known} hw={message.high_watermark} {batches}".rstrip()
        case FetchResponse():
            assert message.diverging is not None
            return f"diverging {known} at {message.diverging.end_offset}@{message.diverging.epoch}"
