"""One round of compaction of one log: reads it, and writes its compacted segments beside it.

First the keys from the first dirty offset on are put into a map with their latest offsets, until
the map is full or the cleanable segments end. Then every segment that begins below the end of the
map is written anew without the records that the map has a later one for. Small segments are merged.
The caller is told of each compacted segment, and puts it in place of its originals
(``storage.swaps``) in rising order. So an older value of a key is gone before the tombstone that
deleted it.

Nothing here changes the log. It runs in a helper process, on files that nobody writes to any more.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, Final, NamedTuple

from stele.wire.batch import BatchError, BatchHeader, batches, read_header
from stele.world import Buffer
from storage.compaction.offset_map import OffsetMap
from storage.compaction.request import (
    Compacted,
    CompactionRequest,
    Failed,
    Finished,
    encode_answer,
)
from storage.compaction.rewriting import Rules, rewritten
from storage.compaction.stored_records import body_of, stored_records
from storage.long_work import LongWork, Part, Spent
from storage.segment import Segment
from storage.segment_names import CLEANED_SUFFIX, segment_paths
from storage.steps import Step, Sync, Turn, Warm
from world.disk import Disk

_CHUNK_BYTES: Final = 1 << 20
_POSITION_MAX: Final = 0x7FFFFFFF
_RECORDS_PER_TURN: Final = 256

_Span = tuple[int, int, int]
"""Base offset, end offset and size of a segment."""


class _Batch(NamedTuple):
    data: memoryview
    header: BatchHeader


class UncleanableError(Exception):
    """The log cannot be compacted."""


def compact(disk: Disk, *request: Any) -> LongWork:
    """``request``: the fields of a ``CompactionRequest``. The parts of the result are encoded
    answers. Raises OSError."""
    round_ = _Round(disk, CompactionRequest(*request))
    try:
        yield from round_.run()
    except OSError:
        raise
    except (BatchError, UncleanableError) as error:
        yield Part(encode_answer(Failed(str(error))))
    except Exception as error:
        # A bug: it stops the compaction of this log, and no other.
        yield Part(encode_answer(Failed(f"{type(error).__name__}: {error}")))


class _Round:
    def __init__(self, disk: Disk, request: CompactionRequest) -> None:
        self._disk = disk
        self._request = request
        self._unpaid_bytes = 0  # not yet told by ``Spent``
        self._bytes_read = 0
        self._bytes_written = 0

    def run(self) -> LongWork:
        request = self._request
        end = request.segments[-1][1]
        # The end of the swap before this one is on disk before there are files with its names.
        yield Sync((request.directory,))
        offsets = OffsetMap(request.map_bytes, request.load_factor, end - request.first_dirty)
        map_end = yield from self._map_keys(offsets)
        self._bytes_read = 0
        rules = Rules(
            offsets,
            map_end,
            request.now_ms,
            request.delete_retention_ms,
            frozenset(request.kept_batches),
        )
        dirty = [span for span in request.segments if span[0] < map_end]
        for group in self._groups(dirty):
            yield from self._rewrite(group, rules)
        answer = Finished(map_end, self._bytes_read, self._bytes_written)
        yield Part(encode_answer(answer))

    # ------------------------------------------------------------------------ the map

    def _map_keys(self, offsets: OffsetMap) -> Generator[Step | Spent | Part, None, int]:
        """Fill the map. Returns its end: all records from the first dirty one to there are in
        it."""
        first_dirty = map_end = self._request.first_dirty
        records = 0
        for span in self._request.segments:
            if span[1] <= first_dirty:
                continue
            for read in self._batches(span):
                if not isinstance(read, _Batch):
                    yield read
                    continue
                header = read.header
                if header.next_offset <= first_dirty:
                    continue
                if not header.is_control and not _put_all(offsets, read.data, header):
                    if map_end == first_dirty:
                        raise UncleanableError(
                            f"the map of keys is too small for the batch at {header.base_offset}: "
                            "raise log.cleaner.dedupe.buffer.size"
                        )
                    return map_end
                map_end = header.next_offset
                records += header.record_count
                if records >= _RECORDS_PER_TURN:
                    records = 0
                    yield Turn.OVER
            map_end = span[1]
        return map_end

    # ------------------------------------------------------------------------ the segments

    def _groups(self, spans: list[_Span]) -> Iterator[list[_Span]]:
        """Adjacent segments that fit into one by size, index size and range of offsets."""
        request = self._request
        group: list[_Span] = []
        size = index_size = 0
        for span in spans:
            span_index = self._index_bytes(span)
            fits = (
                group
                and size + span[2] <= request.segment_bytes
                and index_size + span_index <= request.segment_index_bytes
                and span[1] - 1 - group[0][0] <= _POSITION_MAX
            )
            if group and not fits:
                yield group
                group, size, index_size = [], 0, 0
            group.append(span)
            size += span[2]
            index_size += span_index
        if group:
            yield group

    def _index_bytes(self, span: _Span) -> int:
        """The size of the larger index of a segment."""
        largest = 0
        for path in segment_paths(self._request.directory, span[0])[1:]:
            if self._disk.exists(path):
                file = self._disk.open(path)
                largest = max(largest, file.size)
                file.close()
        return largest

    def _rewrite(self, group: list[_Span], rules: Rules) -> LongWork:
        """Write the compacted segment of a group. Nothing is left of it if it would be the same as
        the one segment of the group."""
        base, end = group[0][0], group[-1][1]
        rules = rules._replace(kept_batches=rules.kept_batches | {end - 1})
        output = _Output(self._disk, self._request, base)
        try:
            changed = len(group) > 1
            records = 0
            for span in group:
                for read in self._batches(span):
                    if not isinstance(read, _Batch):
                        yield read
                        continue
                    kept = rewritten(read.data, read.header, rules)
                    changed = changed or kept is not read.data
                    if kept is not None:
                        self._bytes_written += len(kept)
                        self._unpaid_bytes += output.add(kept)
                    records += read.header.record_count
                    if records >= _RECORDS_PER_TURN:
                        records = 0
                        yield Turn.OVER
            if not changed:
                output.remove()
                return
            yield Sync((*output.finish(end), self._request.directory))
        except BaseException:
            output.abandon()
            raise
        yield Part(encode_answer(Compacted(base, end)))

    # ------------------------------------------------------------------------ reading

    def _batches(self, span: _Span) -> Iterator[_Batch | Step | Spent]:
        """Every batch of a segment, and steps in between. Raises BatchError, UncleanableError,
        OSError."""
        base, end, size = span
        file = self._disk.open(segment_paths(self._request.directory, base)[0])
        try:
            position, offset, wanted = 0, base, _CHUNK_BYTES
            while position < size:
                yield Warm(file.path, position, min(wanted, size - position))
                chunk = memoryview(file.read_now(position, min(wanted, size - position)))
                self._bytes_read += len(chunk)
                yield from self._pay(len(chunk))
                used = 0
                for at, header in batches(chunk):
                    if header.base_offset < offset:
                        raise UncleanableError(
                            f"{file.path}: offset {header.base_offset} at byte {position + at} "
                            f"after {offset - 1}"
                        )
                    used = at + header.size_bytes
                    offset = header.next_offset
                    yield _Batch(chunk[at:used], header)
                if used:
                    position += used
                    wanted = _CHUNK_BYTES
                    continue
                whole = read_header(chunk).size_bytes
                if whole <= wanted or position + whole > size:
                    raise UncleanableError(f"{file.path} ends inside a batch")
                wanted = whole
            if offset != end:
                raise UncleanableError(f"{file.path} ends at offset {offset}, not {end}")
        finally:
            file.close()

    def _pay(self, size_bytes: int) -> Iterator[Spent]:
        self._unpaid_bytes += size_bytes
        yield Spent(self._unpaid_bytes, self._request.bytes_per_s)
        self._unpaid_bytes = 0


def _put_all(offsets: OffsetMap, batch: Buffer, header: BatchHeader) -> bool:
    """Put the keys of a batch into the map. False if it became full on the way. Keys that it got
    by then do no harm: their records stay, and older ones of the same keys may go."""
    for record in stored_records(body_of(batch, header), header.record_count):
        if record.key is not None:
            offset = header.base_offset + record.offset_delta
            if not offsets.put(record.key, offset):
                return False
    return True


class _Output:
    """The compacted segment of a group."""

    def __init__(self, disk: Disk, request: CompactionRequest, base_offset: int) -> None:
        self._disk = disk
        self._interval = request.index_interval_bytes
        self._segment = Segment(
            disk,
            request.directory,
            base_offset,
            created_ms=request.now_ms,
            suffix=CLEANED_SUFFIX,
        )
        if self._segment.size:  # of an earlier round, which was abandoned
            self._segment.file.truncate(0)
            self._segment.size = 0
        self._pending: list[Buffer] = []
        self._pending_bytes = 0

    def add(self, batch: Buffer) -> int:
        """Returns how many bytes were written now."""
        segment = self._segment
        position = segment.size + self._pending_bytes
        if position + len(batch) > _POSITION_MAX:
            raise UncleanableError(f"{segment.path} would become too large")
        header = read_header(batch)
        segment.note(
            header.last_offset, header.max_timestamp_ms, position, len(batch), self._interval
        )
        self._pending.append(batch)
        self._pending_bytes += len(batch)
        return self._write() if self._pending_bytes >= _CHUNK_BYTES else 0

    def _write(self) -> int:
        size = self._pending_bytes
        if size:
            self._segment.write(self._pending)
        self._pending, self._pending_bytes = [], 0
        return size

    def finish(self, end_offset: int) -> list[str]:
        """Write everything. Returns the paths of the files, which are not synced."""
        segment = self._segment
        self._write()
        assert segment.end_offset == end_offset, f"{segment} should end at {end_offset}"
        segment.seal()
        segment.close()
        return [segment.path, *segment.index_paths()]

    def remove(self) -> None:
        self._segment.delete()

    def abandon(self) -> None:
        """Remove what was written after a failure. On a full disk it would be in the way."""
        try:
            self._segment.delete()
        except OSError:
            self._segment.close()  # opening the log removes it
