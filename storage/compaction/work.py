"""One round of compaction of one log: reads it, and writes its compacted segments beside it.

First the keys from the first dirty offset on are put into a map with their latest offsets, until
the map is full or the cleanable segments end. Then every segment that begins below the end of the
map is written again, without the records whose key has a later offset in the map. The remainders of
several segments go into one. The caller puts each compacted segment in the place of its originals
(``storage.swaps``), in rising order. So an older value of a key is gone before the tombstone that
deleted it.

Nothing here changes the log. It runs in a helper process, on files that are not written any more.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import Any, Final, NamedTuple

from stele.wire.batch import BatchError, BatchHeader, batches, read_header
from stele.world import Buffer
from storage.compaction.cleaned_transactions import CleanedTransactions
from storage.compaction.offset_map import OffsetMap
from storage.compaction.request import (
    Compacted,
    CompactionRequest,
    Failed,
    Finished,
    encode_answer,
)
from storage.compaction.rewriting import (
    Rules,
    emptied,
    may_drop_tombstones,
    rewritten,
    rewritten_marker,
)
from storage.compaction.stored_records import body_of
from storage.long_work import LongWork, Part, Spent
from storage.segment import Segment
from storage.segment_names import CLEANED_SUFFIX, segment_paths, txn_index_path
from storage.segment_room import POSITION_MAX, SegmentRoom
from storage.steps import Step, Sync, Turn, Warm
from storage.time_index import ENTRY_SIZE as TIME_ENTRY_SIZE
from storage.txn_index import AbortedTransaction, WrongTxnIndexError, decode_aborted
from world.disk import Disk

_CHUNK_BYTES: Final = 1 << 20
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
    except (BatchError, UncleanableError, WrongTxnIndexError) as error:
        yield Part(encode_answer(Failed(str(error))))
    except Exception as error:
        # A bug: it stops the compaction of this log, and no other.
        yield Part(encode_answer(Failed(f"{type(error).__name__}: {error}")))


class _Round:
    def __init__(self, disk: Disk, request: CompactionRequest) -> None:
        self._disk = disk
        self._request = request
        self._room = SegmentRoom(request.segment_bytes, request.segment_index_bytes)
        self._unpaid_bytes = 0  # not reported by ``Spent`` yet
        self._bytes_read = 0
        self._bytes_written = 0
        self._aborted: list[AbortedTransaction] = []

    def run(self) -> LongWork:
        request = self._request
        end = request.segments[-1][1]
        # The end of the swap before this one is on disk before there are files with its names.
        yield Sync((request.directory,))
        self._aborted = yield from self._read_aborted()
        offsets = OffsetMap(request.map_bytes, request.load_factor, end - request.first_dirty)
        map_end = yield from self._map_keys(offsets)
        self._bytes_read = 0
        rules = Rules(
            offsets,
            map_end,
            request.now_ms,
            request.delete_retention_ms,
            frozenset(request.kept_batches),
            frozenset(request.kept_markers),
        )
        spans = [span for span in request.segments if span[0] < map_end]
        yield from self._rewrite_all(spans, rules)
        answer = Finished(map_end, self._bytes_read, self._bytes_written)
        yield Part(encode_answer(answer))

    def _read_aborted(self) -> Generator[Step, None, list[AbortedTransaction]]:
        """The aborted transactions with records in the segments. Raises WrongTxnIndexError,
        OSError."""
        aborted: list[AbortedTransaction] = []
        for base, _, _ in self._request.segments:
            path = txn_index_path(self._request.directory, base)
            if self._disk.exists(path):
                aborted += decode_aborted(self._disk.read_file(path))
                yield Turn.OVER
        return aborted + [AbortedTransaction(*fields) for fields in self._request.aborted_later]

    # ------------------------------------------------------------------------ the map

    def _map_keys(self, offsets: OffsetMap) -> Generator[Step | Spent | Part, None, int]:
        """Fill the map. Returns its end: all records from the first dirty one to there are in
        it."""
        first_dirty = map_end = self._request.first_dirty
        transactions = CleanedTransactions(self._aborted)
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
                if header.is_control:
                    transactions.ended(header)
                elif not transactions.read(header) and not _put_all(offsets, read.data, header):
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

    def _rewrite_all(self, spans: list[_Span], rules: Rules) -> LongWork:
        """Write the compacted segments of ``spans``, each of as many as fit."""
        transactions = CleanedTransactions(self._aborted)
        while spans:
            output = _Output(self._disk, self._request, spans[0][0])
            try:
                count, changed = yield from self._rewrite(spans, rules, output, transactions)
                end = spans[count - 1][1]
                if changed:
                    yield Sync((*output.finish(end, self._aborted), self._request.directory))
                else:
                    output.remove()
            except Exception:
                output.abandon()
                raise
            finally:
                output.close()
            if changed:
                yield Part(encode_answer(Compacted(spans[0][0], end, output.dropped_end)))
            spans = spans[count:]

    def _rewrite(
        self,
        spans: list[_Span],
        rules: Rules,
        output: _Output,
        transactions: CleanedTransactions,
    ) -> Generator[Step | Spent | Part, None, tuple[int, bool]]:
        """Write what stays of as many segments as fit into one. Returns how many these are, and
        whether the result differs from the only one of them."""
        changed = False
        for count, span in enumerate(spans):
            if count and not self._fits(span, output):
                break
            last: Buffer | None = None
            records = 0
            output.begins_with(txn_index_path(self._request.directory, span[0]))
            for read in self._batches(span):
                if not isinstance(read, _Batch):
                    yield read
                    continue
                batch, header = read
                if header.is_control:
                    is_needed = not transactions.ended(header)
                    kept = rewritten_marker(batch, header, rules, is_needed=is_needed)
                    if is_needed:
                        output.markers.add(header.base_offset)
                    if kept is None:
                        output.dropped_end = header.next_offset
                else:
                    is_aborted = transactions.read(header)
                    kept = rewritten(batch, header, rules, is_aborted=is_aborted)
                    if kept is not batch and may_drop_tombstones(header, rules):
                        output.dropped_end = header.next_offset
                # The end of the segment stays known by a batch, if need be by one without records.
                is_end = kept is None and header.next_offset == span[1]
                last = (emptied(header) if header.record_count else batch) if is_end else None
                changed = changed or (kept is not batch and last is not batch)
                if kept is not None:
                    self._add(output, kept)
                records += header.record_count
                if records >= _RECORDS_PER_TURN:
                    records = 0
                    yield Turn.OVER
            following = spans[count + 1 : count + 2]
            if last is not None and not (following and self._fits(following[0], output)):
                self._add(output, last)
        else:
            count = len(spans)
        return count, changed or count > 1

    def _add(self, output: _Output, batch: Buffer) -> None:
        self._bytes_written += len(batch)
        self._unpaid_bytes += output.add(batch)

    def _fits(self, span: _Span, output: _Output) -> bool:
        """Whether a segment can follow the written ones by size, index size and range of offsets,
        even if all of it stays."""
        return self._room.holds(
            output.size_bytes + span[2],
            output.index_bytes + self._index_bytes(span),
            span[1] - 1 - output.base_offset,
        )

    def _index_bytes(self, span: _Span) -> int:
        """The size of the larger index of a segment."""
        largest = 0
        for path in segment_paths(self._request.directory, span[0])[1:]:
            if self._disk.exists(path):
                file = self._disk.open(path)
                largest = max(largest, file.size)
                file.close()
        return largest

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
                # The first batch is larger than the chunk.
                wanted = read_header(chunk).size_bytes
                if position + wanted > size:
                    raise UncleanableError(f"{file.path} ends inside a batch")
            if offset != end:
                raise UncleanableError(f"{file.path} ends at offset {offset}, not {end}")
        finally:
            file.close()

    def _pay(self, size_bytes: int) -> Iterator[Spent]:
        self._unpaid_bytes += size_bytes
        yield Spent(self._unpaid_bytes, self._request.bytes_per_s)
        self._unpaid_bytes = 0


def _put_all(offsets: OffsetMap, batch: Buffer, header: BatchHeader) -> bool:
    """Put the keys of a batch into the map. False if it became full on the way."""
    return offsets.put_keys(body_of(batch, header), header.record_count, header.base_offset)


class _Output:
    """A compacted segment."""

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
        if disk.exists(self._segment.txn_index.path):
            disk.remove(self._segment.txn_index.path)
        self._has_txn_index = False
        self.markers: set[int] = set()
        """The offsets of the markers whose transactions are not gone."""
        self.dropped_end = 0
        """As in ``Compacted``."""
        self._pending: list[Buffer] = []
        self._pending_bytes = 0

    def begins_with(self, txn_index: str) -> None:
        """A segment goes into this one that has this transaction index, or none. If it has one, so
        has this one, because it takes the old one's place."""
        self._has_txn_index = self._has_txn_index or self._disk.exists(txn_index)

    @property
    def base_offset(self) -> int:
        return self._segment.base_offset

    @property
    def size_bytes(self) -> int:
        return self._segment.size + self._pending_bytes

    @property
    def index_bytes(self) -> int:
        """The size of the time index, whose entries are the larger ones."""
        return self._segment.index_entries * TIME_ENTRY_SIZE

    def add(self, batch: Buffer) -> int:
        """Returns how many bytes were written now."""
        segment = self._segment
        position = self.size_bytes
        if position + len(batch) > POSITION_MAX:
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

    def finish(self, end_offset: int, aborted: Iterable[AbortedTransaction]) -> list[str]:
        """Write everything. Returns the paths of the files, which are not synced. ``aborted``: all
        aborted transactions of the round."""
        segment = self._segment
        self._write()
        assert segment.end_offset == end_offset, f"{segment} should end at {end_offset}"
        segment.seal()
        segment.close()
        paths = [segment.path, *segment.index_paths()]
        if self._has_txn_index:
            segment.txn_index.create(
                self._disk, [each for each in aborted if each.last_offset in self.markers]
            )
            paths.append(segment.txn_index.path)
        return paths

    def remove(self) -> None:
        self._segment.delete()

    def close(self) -> None:
        """If the work is closed early, the next round replaces its files, or the next opening of
        the log removes them."""
        self._segment.close()

    def abandon(self) -> None:
        """Remove the written files after a failure. On a full disk they would be in the way."""
        try:
            self._segment.delete()
        except OSError:
            pass  # opening the log removes it
