"""Publish of stele.v1.Log: messages to records, outcomes to results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from google.protobuf.message import DecodeError

from broker.gateway.producers import Way
from broker.gateway.publishing import Outcome, Publication, ToPublish
from broker.gateway.refusals import Refusal, stream_error
from broker.gateway.stream_transactions import EndOfTransaction, TransactionEnded
from runtime.protobuf_fields import TooManyFieldsError, fields
from stele.config import Acks, CompressionName
from stele.errors import ErrorCode
from stele.wire.v1 import log_pb2 as pb
from stele.world import RpcError, Stream

MESSAGE_BYTES_MAX: Final = 4 * 1024 * 1024
RECORDS_MAX: Final = 5_000
"""Of one message."""
HEADERS_MAX: Final = 1_000
"""Of one record, with its other fields."""
_OTHER_FIELDS_MAX: Final = 10
_RECORDS: Final = pb.PublishRequest.RECORDS_FIELD_NUMBER

_ACKS: Final[dict[int, Acks]] = {
    pb.PublishOptions.ACKS_UNSPECIFIED: "all",
    pb.PublishOptions.ACKS_ALL: "all",
    pb.PublishOptions.ACKS_LEADER: 1,
}
_COMPRESSIONS: Final[dict[int, CompressionName]] = {
    pb.PublishOptions.COMPRESSION_UNSPECIFIED: "none",
    pb.PublishOptions.COMPRESSION_NONE: "none",
    pb.PublishOptions.COMPRESSION_GZIP: "gzip",
    pb.PublishOptions.COMPRESSION_SNAPPY: "snappy",
    pb.PublishOptions.COMPRESSION_LZ4: "lz4",
    pb.PublishOptions.COMPRESSION_ZSTD: "zstd",
}


class PublishOutlet:
    """A stream of Publish, in the gateway's words."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._publication: Publication
        self._has_begun = False

    def serves(self, publication: Publication) -> None:
        self._publication = publication

    async def receive(self) -> Iterable[ToPublish | EndOfTransaction] | None:
        payload = await self._stream.receive()
        if payload is None:
            return None
        if len(payload) > MESSAGE_BYTES_MAX:
            raise _invalid(f"a message of {len(payload)} bytes: {MESSAGE_BYTES_MAX} are the most")
        request, records = _split(payload)
        if request.HasField("options"):
            if self._has_begun:
                raise _invalid("options belong to the first message of a stream")
            self._take_options(request.options)
        self._has_begun = True
        return _all(records, request)

    def _take_options(self, options: pb.PublishOptions) -> None:
        way = _way(options)
        publisher_id = options.publisher_id if options.HasField("publisher_id") else None
        if not options.transactional_id:
            self._publication.write_by(way, publisher_id)
        elif publisher_id is not None or way.acks != "all":
            raise _invalid("transactions need ACKS_ALL, and no publisher_id")
        else:
            self._publication.write_in_transactions(
                way, options.transactional_id, options.transaction_timeout_ms
            )

    async def send(self, outcomes: Sequence[Outcome | TransactionEnded]) -> None:
        response = pb.PublishResponse()
        for outcome in outcomes:
            if isinstance(outcome, TransactionEnded):
                await self._send_ended(response, outcome)
                response = pb.PublishResponse()
                continue
            number, written, is_duplicate = outcome
            if isinstance(written, Refusal):
                result = response.results.add(number=number, partition=-1)
                describe(result.error, written)
            else:
                response.results.add(
                    number=number,
                    partition=written.partition,
                    offset=written.offset if written.offset >= 0 else None,
                    timestamp_ms=written.timestamp_ms,
                    is_duplicate=is_duplicate,
                )
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
    records: Iterable[memoryview], request: pb.PublishRequest
) -> Iterator[ToPublish | EndOfTransaction]:
    for encoded in records:
        yield _record(_parsed(encoded), request.topic)
    end = request.transaction_end
    if end in (pb.PublishRequest.TRANSACTION_END_COMMIT, pb.PublishRequest.TRANSACTION_END_ABORT):
        yield EndOfTransaction(end == pb.PublishRequest.TRANSACTION_END_COMMIT)
    elif end:
        raise _invalid(f"a transaction_end that this broker does not know: {end}")


def _split(payload: bytes) -> tuple[pb.PublishRequest, list[memoryview]]:
    """A request without its records, and these, still encoded."""
    try:
        found = fields(payload, RECORDS_MAX + _OTHER_FIELDS_MAX)
        others = [payload[each.start : each.end] for each in found if each.number != _RECORDS]
        request = pb.PublishRequest.FromString(b"".join(others))
    except TooManyFieldsError:
        raise _invalid(f"a message has at most {RECORDS_MAX} records") from None
    except (ValueError, DecodeError):
        raise _invalid(f"{len(payload)} bytes that are no PublishRequest") from None
    view = memoryview(payload)
    records = [view[each.content : each.end] for each in found if each.number == _RECORDS]
    if len(records) > RECORDS_MAX:
        raise _invalid(f"{len(records)} records in a message: {RECORDS_MAX} are the most")
    return request, records


def _parsed(encoded: memoryview) -> pb.PublishRecord:
    data = bytes(encoded)
    try:
        if len(data) > HEADERS_MAX:  # each takes two bytes at least
            fields(data, HEADERS_MAX)
        return pb.PublishRecord.FromString(data)
    except TooManyFieldsError:
        raise _invalid(f"a record has less than {HEADERS_MAX} headers") from None
    except (ValueError, DecodeError):
        raise _invalid(f"{len(data)} bytes that are no PublishRecord") from None


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
    if options.HasField("publisher_id") and (acks != "all" or options.publisher_id < 0):
        raise _invalid("a publisher has an id that CreatePublisher gave it, and needs ACKS_ALL")
    return Way(acks, compression)


def _record(record: pb.PublishRecord, topic: str) -> ToPublish:
    return ToPublish(
        record.topic or topic,
        record.key if record.HasField("key") else None,
        record.value if record.HasField("value") else None,
        [
            (header.name, header.value if header.HasField("value") else None)
            for header in record.headers
        ],
        record.timestamp_ms if record.HasField("timestamp_ms") else None,
        record.partition if record.HasField("partition") else None,
        record.sequence if record.HasField("sequence") else None,
    )


def _invalid(message: str) -> RpcError:
    return stream_error(ErrorCode.INVALID_REQUEST, message)
