"""Publish of stele.v1.Log: messages to records, outcomes to results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from google.protobuf.message import DecodeError

from broker.gateway.publishing import Publication, PublishOutcome, RefusedRecords, ToPublish
from broker.gateway.refusals import Refusal, stream_error
from broker.gateway.shared_writers import ALL, LEADER, Way
from broker.gateway.stream_transactions import EndOfTransaction, TransactionEnded
from runtime.grpc.protobuf_fields import Field, TooManyFieldsError, fields
from stele.config import CompressionName
from stele.errors import ErrorCode
from stele.wire.batch import Header
from stele.wire.v1 import log_pb2 as pb
from stele.world import RpcError, Stream

MESSAGE_BYTES_MAX: Final = 4 * 1024 * 1024
RECORDS_MAX: Final = 5_000
"""The most records of one message."""
HEADERS_MAX: Final = 1_000
"""The most headers of one record, with its other fields. A record has fewer."""
_AT_ONCE_BYTES: Final = 40 * 1024
"""Protobuf makes all elements of so much in one turn of the event loop. An element takes two bytes
at least, and some 0.25 µs."""
_PIECE_RECORDS: Final = 250
"""To check and number so many records is a turn of about half a millisecond."""
_OTHER_FIELDS_MAX: Final = 10
_RECORDS: Final = pb.PublishRequest.RECORDS_FIELD_NUMBER

_ACKS: Final = {
    pb.PublishOptions.ACKS_UNSPECIFIED: ALL,
    pb.PublishOptions.ACKS_ALL: ALL,
    pb.PublishOptions.ACKS_LEADER: LEADER,
}
_COMPRESSIONS: Final[dict[int, CompressionName]] = {
    pb.PublishOptions.COMPRESSION_UNSPECIFIED: "none",
    pb.PublishOptions.COMPRESSION_NONE: "none",
    pb.PublishOptions.COMPRESSION_GZIP: "gzip",
    pb.PublishOptions.COMPRESSION_SNAPPY: "snappy",
    pb.PublishOptions.COMPRESSION_LZ4: "lz4",
    pb.PublishOptions.COMPRESSION_ZSTD: "zstd",
}


class GrpcPublishOutlet:
    """A stream of Publish, in the gateway's words."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._publication: Publication
        self._has_begun = False

    def serves(self, publication: Publication) -> None:
        self._publication = publication

    async def receive(self) -> Iterable[Sequence[ToPublish] | EndOfTransaction] | None:
        payload = await self._stream.receive()
        if payload is None:
            return None
        if len(payload) > MESSAGE_BYTES_MAX:
            raise _invalid(f"a message of {len(payload)} bytes: {MESSAGE_BYTES_MAX} are the most")
        request, pieces = _split(payload)
        if request.HasField("options"):
            if self._has_begun:
                raise _invalid("options belong to the first message of a stream")
            self._take_options(request.options)
        self._has_begun = True
        return _all(request, pieces)

    def _take_options(self, options: pb.PublishOptions) -> None:
        way = _way(options)
        publisher_id = options.publisher_id if options.HasField("publisher_id") else None
        if not options.transactional_id:
            self._publication.write_by(way, publisher_id)
        elif publisher_id is not None or way.acks != ALL:
            raise _invalid("transactions need ACKS_ALL, and no publisher_id")
        else:
            self._publication.write_in_transactions(
                way, options.transactional_id, options.transaction_timeout_ms
            )

    async def send(self, outcomes: Sequence[PublishOutcome]) -> None:
        response = pb.PublishResponse()
        add = response.results.add
        for outcome in outcomes:
            if isinstance(outcome, TransactionEnded):
                await self._send_ended(response, outcome)
                response = pb.PublishResponse()
                add = response.results.add
            elif isinstance(outcome, RefusedRecords):
                for number in outcome.numbers:
                    describe(add(number=number, partition=-1).error, outcome.refusal)
            else:
                numbers, partition, base_offset, timestamps_ms, is_duplicate = outcome
                offset = base_offset
                for number, timestamp_ms in zip(numbers, timestamps_ms, strict=True):
                    add(
                        number=number,
                        partition=partition,
                        offset=offset,
                        timestamp_ms=timestamp_ms,
                        is_duplicate=is_duplicate,
                    )
                    if offset is not None:
                        offset += 1
        if response.results:
            await self._stream.send(response.SerializeToString())

    async def _send_ended(self, response: pb.PublishResponse, ended: TransactionEnded) -> None:
        """After the results that came before it."""
        if response.results:
            await self._stream.send(response.SerializeToString())
        told = pb.PublishResponse()
        told.transaction_ended.is_committed = ended.is_committed
        if ended.refusal is not None:
            describe(told.transaction_ended.error, ended.refusal)
        await self._stream.send(told.SerializeToString())

    async def close(self) -> None:
        await self._stream.close()


def _all(
    request: pb.PublishRequest, pieces: Iterable[Iterable[pb.PublishRecord]]
) -> Iterator[Sequence[ToPublish] | EndOfTransaction]:
    for piece in pieces:
        yield _to_publish(piece, request.topic)
    end = request.transaction_end
    if end in (pb.PublishRequest.TRANSACTION_END_COMMIT, pb.PublishRequest.TRANSACTION_END_ABORT):
        yield EndOfTransaction(end == pb.PublishRequest.TRANSACTION_END_COMMIT)
    elif end:
        raise _invalid(f"a transaction_end that this broker does not know: {end}")


def _split(payload: bytes) -> tuple[pb.PublishRequest, Iterator[Sequence[pb.PublishRecord]]]:
    """A request, and its records in pieces. Those of a large message are made piece by piece: to
    make all of them would take too long for one turn of the event loop."""
    try:
        if len(payload) <= _AT_ONCE_BYTES:
            whole = pb.PublishRequest.FromString(payload)
            if len(whole.records) <= RECORDS_MAX:
                return whole, _pieces(whole.records)
        found = fields(payload, RECORDS_MAX + _OTHER_FIELDS_MAX)
        others = [payload[each.start : each.end] for each in found if each.number != _RECORDS]
        request = pb.PublishRequest.FromString(b"".join(others))
    except TooManyFieldsError:
        raise _invalid(f"a message has at most {RECORDS_MAX} records") from None
    except (ValueError, DecodeError):
        raise _invalid(f"{len(payload)} bytes that are no PublishRequest") from None
    records = [each for each in found if each.number == _RECORDS]
    if len(records) > RECORDS_MAX:
        raise _invalid(f"{len(records)} records in a message: {RECORDS_MAX} are the most")
    return request, _parsed(memoryview(payload), records)


def _pieces(records: Sequence[pb.PublishRecord]) -> Iterator[Sequence[pb.PublishRecord]]:
    for start in range(0, len(records), _PIECE_RECORDS):
        yield records[start : start + _PIECE_RECORDS]


def _parsed(payload: memoryview, records: Sequence[Field]) -> Iterator[Sequence[pb.PublishRecord]]:
    """The records of a large message, each piece when it is its turn. A record that is large itself
    is a piece of its own."""
    start = 0
    while start < len(records):
        end = start + 1
        while (
            end < min(len(records), start + _PIECE_RECORDS)
            and records[end].end - records[start].start <= _AT_ONCE_BYTES
        ):
            end += 1
        first, last = records[start], records[end - 1]
        try:
            if first.end - first.content > _AT_ONCE_BYTES:
                fields(payload[first.content : first.end], HEADERS_MAX)
            pieces = [bytes(payload[each.start : each.end]) for each in records[start:end]]
            made = pb.PublishRequest.FromString(b"".join(pieces))
        except TooManyFieldsError:
            raise _too_many_headers() from None
        except (ValueError, DecodeError):
            length = last.end - first.content
            raise _invalid(f"{length} bytes that are no PublishRecord") from None
        yield made.records
        start = end


def _too_many_headers() -> RpcError:
    return _invalid(f"a record has less than {HEADERS_MAX} headers")


def describe(error: pb.RecordError, refusal: Refusal) -> None:
    """Fill in why something was refused."""
    error.code = refusal.code
    error.message = refusal.message
    error.retriable = refusal.code.retriable
    error.maybe_written = refusal.maybe_written


def _way(options: pb.PublishOptions) -> Way:
    acks, compression = _ACKS.get(options.acks), _COMPRESSIONS.get(options.compression)
    if acks is None or compression is None:
        raise _invalid(f"options that this broker does not know: {options}")
    if options.HasField("publisher_id") and (acks != ALL or options.publisher_id < 0):
        raise _invalid("a publisher has an id that CreatePublisher gave it, and needs ACKS_ALL")
    return Way(acks, compression)


def _to_publish(records: Iterable[pb.PublishRecord], topic: str) -> list[ToPublish]:
    """An absent field is told from an empty one only where it is empty: this is for each record."""
    made: list[ToPublish] = []
    make = tuple.__new__
    for record in records:
        has = record.HasField
        headers: Sequence[Header] = ()
        if record.headers:
            headers = _headers(record.headers)
        fields_ = (
            record.topic or topic,
            record.key or (b"" if has("key") else None),
            record.value or (b"" if has("value") else None),
            headers,
            record.timestamp_ms or (0 if has("timestamp_ms") else None),
            record.partition or (0 if has("partition") else None),
            record.sequence or (0 if has("sequence") else None),
        )
        made.append(make(ToPublish, fields_))
    return made


def _headers(headers: Sequence[pb.RecordHeader]) -> list[Header]:
    if len(headers) >= HEADERS_MAX:
        raise _too_many_headers()
    return [(each.name, each.value if each.HasField("value") else None) for each in headers]


def _invalid(message: str) -> RpcError:
    return stream_error(ErrorCode.INVALID_REQUEST, message)
