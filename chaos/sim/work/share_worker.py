"""A member of a share group, which takes records and says what became of them. It may also die,
stand still for longer than its locks, say things late or twice, or meet a poisonous record."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from chaos.sim.cluster.connections import Connections
from chaos.sim.laws.decided_records import DecidedRecordsStayDecided
from chaos.sim.laws.share_counts import DeliveriesAreCounted
from chaos.sim.laws.share_holders import Hold, SharedRecordsHaveOneHolder, Tenure
from chaos.sim.laws.share_members import ShareMembersKeepTheirEpochs
from chaos.sim.laws.shared_records import RecordName, Told
from chaos.sim.partition_name import PartitionName
from chaos.sim.work.group_client import GroupClient
from chaos.sim.work.share_client import ACCEPT, REJECT, RELEASE, RENEW, Fetched, ShareClient
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import share_group_heartbeat as wire

POISON: Final = b"<poison"
"""No member accepts a record whose value begins with it."""

_JOIN, _LEAVE = 0, -1  # epochs
_RECORDS: Final = (1, 3, 8)
_HURRY: Final = 0.2
"""The part of its pauses that a member makes in a calm cluster: what a fast producer has left must
be done in time."""
_FINAL: Final = (ACCEPT, REJECT)
_BEAT_S: Final = 0.4


@dataclass(slots=True)
class ShareGroup:
    """What the members of one share group have in common."""

    group_id: str
    topic: str
    partitions: int
    decided: DecidedRecordsStayDecided
    holders: SharedRecordsHaveOneHolder
    delivered: DeliveriesAreCounted
    members: ShareMembersKeepTheirEpochs
    deliver: Callable[[PartitionName, int, bytes], None]
    """A member has got this record."""
    report: Callable[[str], None]
    now_s: Callable[[], float]
    sessions: Iterator[int]
    counts: Counter[str]
    poison: set[RecordName] = field(default_factory=set)
    """Poison records that were delivered."""

    def name(self, partition: int, offset: int) -> RecordName:
        return RecordName(self.group_id, (self.topic, partition), offset)


Held = dict[int, dict[int, Hold]]
"""By partition and offset."""
Said = Mapping[int, Mapping[int, int]]
"""Acknowledge types, by partition and offset."""


@dataclass(slots=True)
class ShareWorker:
    """``run`` until ``is_over``. From ``is_calm`` on it stays, and only poison makes it fail."""

    group: ShareGroup
    name: str
    coordinator: GroupClient
    connections: Connections
    rng: random.Random
    pause_s: float
    assigned: set[int] = field(default_factory=set)
    epoch: int = _JOIN
    """The member epoch; 0: it has not joined."""
    _member: str = ""
    _lives: int = 0
    _client: ShareClient | None = None
    _leaders: dict[int, int] = field(default_factory=dict)  # by partition
    _next_beat_s: float = 0.0
    # What the next fetch from a broker says, and about which records.
    _to_say: dict[int, tuple[Said, Held]] = field(default_factory=dict)
    # By broker, records that the member had when it left, and had not acknowledged.
    _unsaid: dict[int, Held] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._be_new()

    def _be_new(self) -> None:
        """Be a new process. Nobody knows its member id."""
        self._lives += 1
        self._member = f"{self.name}.{self._lives}"
        self.epoch, self.assigned = _JOIN, set()
        self._next_beat_s = 0.0
        self._to_say.clear()
        self._unsaid.clear()
        if self._client is not None:
            self._client.sessions.clear()

    async def run(self, is_calm: Callable[[], bool], is_over: Callable[[], bool]) -> None:
        while not is_over():
            try:
                await self._go_on(is_calm)
            except (ApiError, OSError):
                self.group.counts["share requests without an answer"] += 1
            pause_s = self.rng.uniform(0.5, 1.5) * self.pause_s
            await asyncio.sleep(pause_s * _HURRY if is_calm() else pause_s)
        self.connections.close()

    async def _go_on(self, is_calm: Callable[[], bool]) -> None:
        if self._client is None:
            broker = self.rng.choice(self.connections.brokers)
            ids = await self.connections.topic_ids([self.group.topic], broker)
            if self.group.topic not in ids:
                return
            self._client = ShareClient(
                self.group.group_id, ids[self.group.topic], self.connections, self.group.sessions
            )
        if self.group.now_s() >= self._next_beat_s:
            await self._beat(self._client)
        for broker, partitions in sorted((await self._readable()).items()):
            held, lock_s = await self._fetch(self._client, broker, partitions)
            if not held:
                continue
            if is_calm():
                await self._say(self._client, broker, self._verdicts(held, fails=False), held)
            else:
                await self._work(self._client, broker, held, lock_s)
        if not is_calm() and self.rng.random() < 0.03:
            await self._leave()

    # ------------------------------------------------------------------------- the group

    async def _beat(self, client: ShareClient) -> None:
        joins = self.epoch == _JOIN
        tells = joins or self.rng.random() < 0.1
        member = self._member
        answer = await self.coordinator.share_beat(
            wire.ShareGroupHeartbeatRequest(
                member_id=member,
                member_epoch=self.epoch,
                subscribed_topic_names=[self.group.topic] if tells else None,
            )
        )
        error = ErrorCode(answer.error_code)
        if error is not ErrorCode.NONE:
            self.group.counts[f"share heartbeats refused: {error.name}"] += 1
            if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
                self.epoch, self.assigned = _JOIN, set()
            return
        self._next_beat_s = self.group.now_s() + _BEAT_S
        assigned = None
        if answer.assignment is not None:
            assigned = {
                number
                for each in answer.assignment.topic_partitions
                if bytes(each.topic_id) == client.topic_id
                for number in each.partitions
            }
            self.assigned = assigned
            self.group.counts["assignments of share groups"] += 1
        named = None if assigned is None else [(self.group.topic, each) for each in assigned]
        self.group.members.told(member, answer.member_epoch, named, joins=joins)
        self.epoch = answer.member_epoch

    async def _leave(self) -> None:
        """End the share sessions, then leave, or forget one of the two. Be another member then."""
        client, member = self._client, self._member
        assert client is not None
        self.group.counts["share members left"] += 1
        try:
            if self.rng.random() < 0.7:
                for broker in sorted(client.sessions):
                    if client.sessions[broker].epoch:
                        await self._end_session(client, broker)
            if self.rng.random() < 0.7:
                answer = await self.coordinator.share_beat(
                    wire.ShareGroupHeartbeatRequest(member_id=member, member_epoch=_LEAVE)
                )
                if answer.error_code == ErrorCode.NONE:
                    self.group.members.left(member)
        finally:
            self._be_new()

    async def _end_session(self, client: ShareClient, broker: int) -> None:
        """The deliveries that the member says nothing of do not count then."""
        session = client.session(broker).number
        kept = [hold for holds in self._unsaid.pop(broker, {}).values() for hold in holds.values()]
        await client.acknowledge(self._member, broker, {}, ends=True)
        now_s = self.group.now_s()
        for hold in self.group.holders.certain(kept, session, broker, now_s):
            self.group.counts["shared records given back"] += 1
            self.group.delivered.given_back(hold)

    # ------------------------------------------------------------------------- records

    async def _readable(self) -> dict[int, set[int]]:
        """The assigned partitions by their leaders, as far as these are known."""
        if any(each not in self._leaders for each in self.assigned):
            broker = self.rng.choice(self.connections.brokers)
            topics = {self.group.topic: self.group.partitions}
            found = await self.connections.leaders(topics, broker)
            self._leaders |= {number: leader for (_, number), leader in found.items()}
        readable: dict[int, set[int]] = {}
        for number in self.assigned:
            if number in self._leaders:
                readable.setdefault(self._leaders[number], set()).add(number)
        return readable

    async def _fetch(
        self, client: ShareClient, broker: int, partitions: set[int]
    ) -> tuple[Held, float]:
        """The records that it has got, and for how long it has them."""
        group, member = self.group, self._member
        said, of = self._to_say.pop(broker, ({}, {}))
        if not client.session(broker).epoch:
            said, of = {}, {}  # the first fetch of a session says nothing
        self._decides(said)
        session = client.session(broker).number
        places = [(group.topic, each) for each in range(group.partitions)]
        tenures = {each[1]: group.holders.tenure(broker, each) for each in places}
        asked_s = group.now_s()
        for place in places:
            group.decided.records.asking(group.group_id, place)
        try:
            fetched = await client.fetch(
                member,
                broker,
                partitions,
                said,
                self.rng.choice(_RECORDS),
                is_strict=self.rng.random() < 0.5,
            )
        except (ApiError, OSError):
            for place in places:
                group.decided.records.lost(group.group_id, place, group.now_s())
            self._doubt(of)
            for number in partitions:
                self._leaders.pop(number, None)
            raise
        for place in places:
            group.decided.records.answered(group.group_id, place)
        self._heard(broker, session, said, of, fetched.acknowledged, asked_s)
        for number, error in fetched.errors.items():
            group.counts[f"share fetches refused: {error.name}"] += 1
            self._leaders.pop(number, None)
        told = Told(member, asked_s, group.now_s(), is_of_leader=True)
        return self._taken(fetched, told, session, tenures), fetched.lock_s

    def _taken(
        self, fetched: Fetched, answer: Told, session: int, tenures: Mapping[int, Tenure | None]
    ) -> Held:
        group, held = self.group, Held()
        for number, offset, count, value in fetched.records:
            name = group.name(number, offset)
            told = answer._replace(is_of_leader=tenures[number] is not None)
            group.counts["shared records delivered"] += 1
            group.counts["shared records delivered again"] += count > 1
            if value is None:
                group.report(
                    f"{name} was given to {told.member}, and the answer has no such record"
                )
                continue
            group.deliver(name.place, offset, value)
            group.decided.delivered(name, told, count)
            group.delivered.delivered(name, told, count)
            until_s = told.asked_s + fetched.lock_s
            hold = Hold(name, told, session, tenures[number], fetched.lock_s, until_s, count)
            held.setdefault(number, {})[offset] = hold
            if value.startswith(POISON):
                group.poison.add(name)
        return held

    # ------------------------------------------------------------------------- verdicts

    def _verdicts(self, held: Held, *, fails: bool) -> dict[int, dict[int, int]]:
        """What the member says of each record. ``fails``: it may fail at sound ones, too."""
        return {
            number: {
                offset: self._verdict(hold, fails=fails) for offset, hold in sorted(records.items())
            }
            for number, records in sorted(held.items())
        }

    def _verdict(self, hold: Hold, *, fails: bool) -> int:
        if hold.name in self.group.poison:
            return RELEASE
        if not fails or self.rng.random() < 0.85:
            return ACCEPT
        return self.rng.choice((RELEASE, RELEASE, REJECT))

    async def _work(self, client: ShareClient, broker: int, held: Held, lock_s: float) -> None:
        """Do one of the things that members do."""
        counts, rng = self.group.counts, self.rng
        verdicts = self._verdicts(held, fails=rng.random() < 0.3)
        act = rng.random()
        if act < 0.04 or (act < 0.3 and self._has_poison(held)):
            counts["share members died"] += 1
            if rng.random() < 0.5:
                self.connections.close()
            self._be_new()
            await asyncio.sleep(rng.choice([0.0, 0.3, lock_s]))
            return
        if act < 0.06:
            counts["share members left with records"] += 1
            self._unsaid[broker] = held
            await self._leave()
            return
        if act < 0.1:
            counts["share members stood still"] += 1
            await asyncio.sleep(lock_s * rng.uniform(0.9, 1.5))
        elif act < 0.14:
            counts["shared records left to their locks"] += 1
            return
        elif act < 0.22:
            await self._renew(client, broker, held, lock_s)
        elif act < 0.42:
            self._to_say[broker] = verdicts, held
            return
        if not client.session(broker).epoch:
            return  # the session is over, and so are its records
        await self._say(client, broker, verdicts, held)
        if rng.random() < 0.1 and client.session(broker).epoch:
            counts["shared records acknowledged twice"] += 1
            again = self._verdicts(held, fails=True)
            await self._say(client, broker, again, held)

    def _has_poison(self, held: Held) -> bool:
        return any(
            hold.name in self.group.poison for each in held.values() for hold in each.values()
        )

    async def _renew(self, client: ShareClient, broker: int, held: Held, lock_s: float) -> None:
        """Work for longer than a lock lasts."""
        self.group.counts["shared records renewed"] += 1
        for _ in range(self.rng.randint(1, 2)):
            await asyncio.sleep(lock_s * self.rng.uniform(0.3, 0.8))
            renewed = {number: dict.fromkeys(each, RENEW) for number, each in held.items()}
            await self._say(client, broker, renewed, held)

    async def _say(self, client: ShareClient, broker: int, said: Said, held: Held) -> None:
        session, sent_s = client.session(broker).number, self.group.now_s()
        self._decides(said)
        try:
            told = await client.acknowledge(self._member, broker, said)
        except (ApiError, OSError):
            self._doubt(held)
            raise
        self._heard(broker, session, said, held, told, sent_s)

    def _decides(self, said: Said) -> None:
        for number, types in said.items():
            for offset, kind in types.items():
                name = self.group.name(number, offset)
                self.group.decided.records.of(name).spoke.add(self._member)
                if kind in _FINAL:
                    self.group.decided.decides(name, accepts=kind == ACCEPT)

    def _heard(
        self,
        broker: int,
        session: int,
        said: Said,
        held: Held,
        told: Mapping[int, ErrorCode],
        sent_s: float,
    ) -> None:
        """What was said of these records was answered."""
        group, now_s = self.group, self.group.now_s()
        for number, types in said.items():
            error, holds = told[number], held[number]
            group.counts[f"acknowledgements of shared records: {error.name}"] += 1
            group.holders.answered(
                list(holds.values()), session, broker, error, sent_s=sent_s, now_s=now_s
            )
            certain = group.holders.certain(list(holds.values()), session, broker, now_s)
            for offset, kind in types.items():
                hold = holds[offset]
                is_taken = error is ErrorCode.NONE
                if is_taken and kind == RELEASE and hold in certain:
                    group.delivered.released(hold, now_s)
                if is_taken and kind in _FINAL:
                    group.decided.decided(hold.name, now_s)
                if is_taken and kind == RENEW and hold.is_certain:
                    hold.until_s = max(hold.until_s, sent_s + hold.lock_s)
                else:
                    hold.is_certain = False
            if error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self._leaders.pop(number, None)

    def _doubt(self, held: Held) -> None:
        for records in held.values():
            for hold in records.values():
                hold.is_certain = False
