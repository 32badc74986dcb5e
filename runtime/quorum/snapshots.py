"""Snapshots of the metadata log on disk (KIP-630): ``<end offset>-<epoch>.checkpoint``.

A snapshot is record batches from offset 0 on: a control batch that opens it and names the voters,
the records of the image, a control batch that ends it. Every batch carries the epoch of the last
record contained. It gets its name only once it is whole, sound and synced.
"""

from __future__ import annotations

import asyncio
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from raft.messages import SnapshotId
from raft.quorum import VoterSet
from raft.ready import SnapshotPiece
from runtime.quorum.control import (
    ControlRecordError,
    encode_version,
    encode_voters,
    voters_in,
)
from stele.errors import SteleError
from stele.wire.batch import (
    BatchBuilder,
    BatchError,
    BatchHeader,
    batches,
    check_crc,
    decode,
)
from stele.wire.control_records import ControlType, control_key, control_type
from stele.world import Buffer
from world.disk import Disk

BOOTSTRAP: Final = SnapshotId(0, 0)
"""What `stele format` writes: it holds the first voters and no records, for an empty log."""

_SUFFIX: Final = ".checkpoint"
_PART: Final = ".part"
_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_BATCH_RECORDS: Final = 1000
_BATCH_BYTES: Final = 1 << 20
_VERSION: Final = struct.Struct(">h")
_HEADER: Final = struct.Struct(">hq")  # version, time of the last record contained
_NO_TAGS: Final = b"\0"
# Ours: one tagged field of the opening record, which others skip. Tag 10000, as a varint.
_CLUSTER_TAG: Final = b"\x01\x90\x4e"


class SnapshotError(SteleError):
    """A file does not hold the snapshot that its name promises."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The content of a snapshot. ``timestamp_ms``: of the last batch in it."""

    id: SnapshotId
    timestamp_ms: int
    records: tuple[bytes, ...]
    voters: VoterSet | None  # None: no record of voters had been written by then


def file_name(snapshot: SnapshotId) -> str:
    return f"{snapshot.end_offset:020d}-{snapshot.epoch:010d}{_SUFFIX}"


def parse_name(name: str) -> SnapshotId | None:
    match = _NAME.fullmatch(name)
    return None if match is None else SnapshotId(int(match[1]), int(match[2]))


# ------------------------------------------------------------------------------- content


class _Encoder:
    def __init__(self, snapshot: SnapshotId, timestamp_ms: int) -> None:
        self._epoch = snapshot.epoch
        self._timestamp_ms = timestamp_ms
        self._offset = 0

    def control(self, *records: tuple[ControlType, bytes]) -> bytes:
        builder = BatchBuilder(self._offset)
        for kind, value in records:
            builder.append(control_key(kind), value, timestamp_ms=self._timestamp_ms)
        self._offset += len(records)
        return bytes(builder.build(leader_epoch=self._epoch, is_control=True))

    def records(self, values: list[bytes]) -> bytes:
        builder = BatchBuilder(self._offset)
        for value in values:
            builder.append(None, value, timestamp_ms=self._timestamp_ms)
        self._offset += len(values)
        return bytes(builder.build(leader_epoch=self._epoch))


def encode(
    snapshot: SnapshotId,
    cluster_id: str,
    timestamp_ms: int,
    values: Iterable[bytes],
    voters: VoterSet | None = None,
) -> Iterable[bytes]:
    """The batches, one by one. The same arguments always give the same bytes."""
    encoder = _Encoder(snapshot, timestamp_ms)
    opening = [(ControlType.SNAPSHOT_HEADER, _HEADER.pack(0, timestamp_ms) + _owner(cluster_id))]
    if voters is not None:
        opening.append((ControlType.KRAFT_VERSION, encode_version()))
        opening.append((ControlType.KRAFT_VOTERS, encode_voters(voters)))
    yield encoder.control(*opening)
    pending: list[bytes] = []
    size = 0
    for value in values:
        pending.append(value)
        size += len(value)
        if len(pending) == _BATCH_RECORDS or size >= _BATCH_BYTES:
            yield encoder.records(pending)
            pending, size = [], 0
    if pending:
        yield encoder.records(pending)
    yield encoder.control((ControlType.SNAPSHOT_FOOTER, _VERSION.pack(0) + _NO_TAGS))


def _owner(cluster_id: str) -> bytes:
    name = cluster_id.encode()
    size, rest = bytearray(), len(name)
    while rest > 0x7F:
        size.append(rest & 0x7F | 0x80)
        rest >>= 7
    size.append(rest)
    return _CLUSTER_TAG + size + name


def check(data: Buffer, snapshot: SnapshotId, cluster_id: str) -> list[tuple[int, BatchHeader]]:
    """Position and header of every batch. Raises SnapshotError unless all of it is sound."""
    found: list[tuple[int, BatchHeader]] = []
    end = next_offset = 0
    try:
        for position, header in batches(data):
            if not check_crc(data, position, header):
                raise SnapshotError(f"the batch at byte {position} is damaged")
            if header.base_offset != next_offset or header.leader_epoch != snapshot.epoch:
                raise SnapshotError(f"the batch at byte {position} is of another snapshot")
            found.append((position, header))
            end, next_offset = position + header.size_bytes, header.next_offset
    except BatchError as error:
        raise SnapshotError(f"not record batches: {error}") from error
    if end != len(data):
        raise SnapshotError(f"it ends with {len(data) - end} bytes of a batch that is not whole")
    ends = [found[0], found[-1]] if len(found) > 1 else []
    kinds = [control_type(decode(data, at)[0].key) for at, header in ends if header.is_control]
    if kinds != [ControlType.SNAPSHOT_HEADER, ControlType.SNAPSHOT_FOOTER]:
        raise SnapshotError("it does not begin and end as a snapshot does")
    opening = decode(data, found[0][0])[0].value or b""
    if len(opening) < _HEADER.size or opening[_HEADER.size :] != _owner(cluster_id):
        raise SnapshotError(f"it is not of cluster {cluster_id}")
    try:
        voters_in(data, found[0][0])
    except ControlRecordError as error:
        raise SnapshotError(str(error)) from error
    return found


def read(data: Buffer, snapshot: SnapshotId, cluster_id: str) -> Snapshot:
    """Raises SnapshotError unless all of it is sound, and of this cluster."""
    found = check(data, snapshot, cluster_id)
    _, timestamp_ms = _HEADER.unpack_from(decode(data, found[0][0])[0].value or b"")
    values = [
        record.value or b""
        for position, header in found
        if not header.is_control
        for record in decode(data, position)
    ]
    return Snapshot(snapshot, timestamp_ms, tuple(values), voters_in(data, found[0][0]))


# -------------------------------------------------------------------------------- on disk


class SnapshotStore:
    """The snapshots in the metadata log's directory."""

    def __init__(
        self, disk: Disk, directory: str, cluster_id: str, *, read_only: bool = False
    ) -> None:
        """Drop unfinished files of an earlier process, unless ``read_only``. Raises OSError."""
        self._disk = disk
        self._cluster_id = cluster_id
        self._directory = directory
        self.ids: list[SnapshotId] = []  # ascending; all whole and synced; not the bootstrap one
        for name in disk.list(directory) if disk.exists(directory) else []:
            if name.endswith(_SUFFIX + _PART) and not read_only:
                disk.remove(f"{directory}/{name}")
            elif (snapshot := parse_name(name)) is not None and snapshot != BOOTSTRAP:
                self.ids.append(snapshot)
        self.ids.sort(key=lambda snapshot: (snapshot.end_offset, snapshot.epoch))

    @property
    def newest(self) -> SnapshotId | None:
        return self.ids[-1] if self.ids else None

    def path(self, snapshot: SnapshotId) -> str:
        return f"{self._directory}/{file_name(snapshot)}"

    def load(self, snapshot: SnapshotId) -> Snapshot:
        """Raises SnapshotError, OSError."""
        try:
            return read(self._disk.read_file(self.path(snapshot)), snapshot, self._cluster_id)
        except SnapshotError as error:
            raise SnapshotError(f"{self.path(snapshot)}: {error}") from error

    async def write(
        self,
        snapshot: SnapshotId,
        timestamp_ms: int,
        values: Iterable[bytes],
        voters: VoterSet | None = None,
    ) -> None:
        """Write a new snapshot under its temporary name and sync it. Raises OSError."""
        path = self.path(snapshot) + _PART
        file = self._disk.open(path, create=True)
        try:
            file.truncate(0)
            for batch in encode(snapshot, self._cluster_id, timestamp_ms, values, voters):
                file.append([batch])
                await asyncio.sleep(0)  # a large image leaves the loop to others, too
        finally:
            file.close()
        await self._disk.sync([path])

    def receive(self, piece: SnapshotPiece) -> None:
        """Store a piece that was fetched. Raises OSError."""
        file = self._disk.open(self.path(piece.snapshot) + _PART, create=True)
        try:
            if file.size > piece.position:
                file.truncate(piece.position)
            file.append([piece.data])
        finally:
            file.close()

    async def check_received(self, snapshot: SnapshotId) -> Snapshot | None:
        """Sync the received snapshot and read it. It is removed if it is not sound. Raises
        OSError."""
        path = self.path(snapshot) + _PART
        await self._disk.sync([path])
        try:
            return read(self._disk.read_file(path), snapshot, self._cluster_id)
        except SnapshotError:
            self._disk.remove(path)
            return None

    def first_voters(self) -> VoterSet | None:
        """The voters that `stele format` wrote down, if any. Raises SnapshotError, OSError."""
        if not self._disk.exists(self.path(BOOTSTRAP)):
            return None
        return self.load(BOOTSTRAP).voters

    def adopt(self, snapshot: SnapshotId) -> None:
        """Give a synced snapshot its name, durably. Raises OSError."""
        self._disk.rename(self.path(snapshot) + _PART, self.path(snapshot))
        self._disk.sync_now(self._directory)
        self.ids.append(snapshot)

    def discard(self, snapshot: SnapshotId) -> None:
        """Drop what was written under the temporary name."""
        path = self.path(snapshot) + _PART
        if self._disk.exists(path):
            self._disk.remove(path)

    def remove_before(self, end_offset: int) -> None:
        """Delete the snapshots that hold less. Raises OSError."""
        for snapshot in [each for each in self.ids if each.end_offset < end_offset]:
            self._disk.remove(self.path(snapshot))
            self.ids.remove(snapshot)

    async def piece(self, snapshot: SnapshotId, position: int, max_bytes: int) -> tuple[bytes, int]:
        """Bytes of a snapshot from ``position`` on, and its size.

        Raises KeyError when it is not (or no longer) here, ValueError past its end, OSError.
        """
        if snapshot not in self.ids:
            raise KeyError(snapshot)
        path = self.path(snapshot)
        file = self._disk.open(path)
        try:
            if position >= file.size:
                raise ValueError(position)
            size = min(max_bytes, file.size - position)
            while (data := file.read(position, size)) is None:
                await self._disk.warm(path, position, size)
            return bytes(data), file.size
        finally:
            file.close()
