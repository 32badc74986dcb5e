"""The requests of members of share groups to the leaders of partitions (KIP-932), as any client
sends them: one attempt each, in one share session with each broker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, NamedTuple

from chaos.sim.cluster.connections import Connections
from stele.errors import ApiError, ErrorCode
from stele.wire.batch import batches, decode
from stele.wire.kafka.api import Records
from stele.wire.kafka.messages import share_acknowledge, share_fetch

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
Decisions = Mapping[int, int]
"""What a member says of records of one partition: an acknowledge type for each offset."""

_MAX_WAIT_MS: Final = 300
_BYTES: Final = 1 << 16
_TIMEOUT_S: Final = 3.0
_ENDS: Final = -1  # the epoch of the last request of a session


class Given(NamedTuple):
    """A record that a member has got."""

    partition: int
    offset: int
    deliveries: int  # this one included
    value: bytes | None  # None: the answer has no record at this offset


class Fetched(NamedTuple):
    """The answer to a ShareFetch."""

    records: list[Given]
    errors: dict[int, ErrorCode]  # of the partitions that have one
    acknowledged: dict[int, ErrorCode]  # of the partitions that were acknowledged
    lock_s: float


@dataclass(slots=True)
class Session:
    """A share session with one broker."""

    number: int
    """No other session of the run has it."""
    epoch: int = 0  # of the next request
    partitions: set[int] = field(default_factory=set)


@dataclass(slots=True)
class ShareClient:
    """All methods raise ApiError or OSError: there is no answer, and the outcome is unknown. The
    share session is over then."""

    group_id: str
    topic_id: bytes
    connections: Connections
    numbers: Iterator[int]  # of sessions
    sessions: dict[int, Session] = field(default_factory=dict)  # by broker

    def session(self, broker: int) -> Session:
        found = self.sessions.get(broker)
        if found is None:
            found = self.sessions[broker] = Session(next(self.numbers))
        return found

    async def fetch(
        self,
        member: str,
        broker: int,
        partitions: set[int],
        decisions: Mapping[int, Decisions],
        max_records: int,
        *,
        is_strict: bool,
    ) -> Fetched:
        """Get records of these partitions, and say something of others. A session that is not open
        yet takes no decisions."""
        session = self.session(broker)
        told = [
            share_fetch.FetchPartition(
                number,
                [share_fetch.AcknowledgementBatch(*each) for each in _ranges(decisions[number])],
            )
            for number in sorted(decisions)
        ]
        new = partitions - session.partitions - set(decisions)
        told += [share_fetch.FetchPartition(number) for number in sorted(new)]
        forgotten = sorted(session.partitions - partitions - set(decisions))
        request = share_fetch.ShareFetchRequest(
            group_id=self.group_id,
            member_id=member,
            share_session_epoch=session.epoch,
            max_wait_ms=_MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=_BYTES,
            max_records=max_records,
            batch_size=max_records,
            share_acquire_mode=int(is_strict),
            topics=[share_fetch.FetchTopic(self.topic_id, told)] if told else [],
            forgotten_topics_data=(
                [share_fetch.ForgottenTopic(self.topic_id, forgotten)] if forgotten else []
            ),
        )
        with self._over_if_lost(broker):
            answer = await self.connections.ask(
                broker, share_fetch.API, request, timeout_s=_TIMEOUT_S
            )
            _check(answer.error_code)
        session.epoch += 1
        session.partitions = partitions | set(decisions)
        found = Fetched([], {}, {}, answer.acquisition_lock_timeout_ms / 1000)
        for topic in answer.responses:
            for part in topic.partitions:
                number = part.partition_index
                if part.error_code:
                    found.errors[number] = ErrorCode(part.error_code)
                if number in decisions:
                    found.acknowledged[number] = ErrorCode(part.acknowledge_error_code)
                found.records.extend(_given(part))
        return found

    async def acknowledge(
        self, member: str, broker: int, decisions: Mapping[int, Decisions], *, ends: bool = False
    ) -> dict[int, ErrorCode]:
        """Say something of records; the errors by partition. ``ends``: the session ends with it."""
        session = self.session(broker)
        request = share_acknowledge.ShareAcknowledgeRequest(
            group_id=self.group_id,
            member_id=member,
            share_session_epoch=_ENDS if ends else session.epoch,
            is_renew_ack=any(RENEW in each.values() for each in decisions.values()),
            topics=[
                share_acknowledge.AcknowledgeTopic(
                    self.topic_id,
                    [
                        share_acknowledge.AcknowledgePartition(
                            number,
                            [
                                share_acknowledge.AcknowledgementBatch(*each)
                                for each in _ranges(decisions[number])
                            ],
                        )
                        for number in sorted(decisions)
                    ],
                )
            ],
        )
        with self._over_if_lost(broker):
            answer = await self.connections.ask(
                broker, share_acknowledge.API, request, timeout_s=_TIMEOUT_S
            )
            _check(answer.error_code)
        session.epoch += 1
        if ends:
            self.sessions.pop(broker, None)
        return {
            part.partition_index: ErrorCode(part.error_code)
            for topic in answer.responses
            for part in topic.partitions
        }

    @contextmanager
    def _over_if_lost(self, broker: int) -> Iterator[None]:
        try:
            yield
        except (ApiError, OSError):
            self.sessions.pop(broker, None)
            raise


def _check(number: int) -> None:
    error = ErrorCode(number)
    if error is not ErrorCode.NONE:
        raise ApiError(error)


def _ranges(decisions: Decisions) -> Iterator[tuple[int, int, list[int]]]:
    """First and last offset of each run of offsets, and their types: one if all are the same."""
    runs = groupby(enumerate(sorted(decisions)), key=lambda each: each[1] - each[0])
    for _, run in runs:
        offsets = [offset for _, offset in run]
        types = [decisions[offset] for offset in offsets]
        yield offsets[0], offsets[-1], types[:1] if len(set(types)) == 1 else types


def _given(part: share_fetch.PartitionData) -> Iterator[Given]:
    data = _joined(part.records)
    values = {
        record.offset: bytes(record.value or b"")
        for position, _ in batches(data)
        for record in decode(data, position)
    }
    for each in part.acquired_records:
        for offset in range(each.first_offset, each.last_offset + 1):
            yield Given(part.partition_index, offset, each.delivery_count, values.get(offset))


def _joined(records: Records) -> bytes:
    if records is None:
        return b""
    if isinstance(records, list):
        return b"".join(bytes(part) for part in records)
    return bytes(records)
