"""Publish of stele.v1.Log: messages to records, outcomes to results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from google.protobuf.message import DecodeError

from broker.gateway.producers import Way
from broker.gateway.publishing import Outcome, Publication, ToPublish
from broker.gateway.refusals import Refusal, stream_error
from stele.config import Acks, CompressionName
from stele.errors import ErrorCode
from stele.wire.kafka.primitives import REQUEST_ELEMENTS_MAX
from stele.wire.v1 import log_pb2 as pb
from stele.world import RpcError, Stream

MESSAGE_BYTES_MAX: Final = 4 * 1024 * 1024

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

    async def receive(self) -> Iterable[ToPublish] | None:
        payload = await self._stream.receive()
        if payload is None:
            return None
        if len(payload) > MESSAGE_BYTES_MAX:
            raise _invalid(f"a message of {len(payload)} bytes: {MESSAGE_BYTES_MAX} are the most")
        try:
            request = pb.PublishRequest.FromString(payload)
        except DecodeError:
            raise _invalid(f"{len(payload)} bytes that are no PublishRequest") from None
        if len(request.records) > REQUEST_ELEMENTS_MAX:
            raise _invalid(
                f"{len(request.records)} records in a message: {REQUEST_ELEMENTS_MAX} are the most"
            )
        if request.HasField("options"):
            if self._has_begun:
                raise _invalid("options belong to the first message of a stream")
            options = request.options
            publisher_id = options.publisher_id if options.HasField("publisher_id") else None
            self._publication.write_by(_way(options), publisher_id)
        self._has_begun = True
        return (_record(record, request.topic) for record in request.records)

    async def send(self, outcomes: Sequence[Outcome]) -> None:
        response = pb.PublishResponse()
        for number, written, is_duplicate in outcomes:
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
        await self._stream.send(response.SerializeToString())

    async def close(self) -> None:
        await self._stream.close()


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
