"""Planted bugs of compaction."""

from __future__ import annotations

from typing import Final

from chaos.sim.runs.mutants.mutant import Edit, Mutant
from chaos.sim.work.load import LoadKind

_REWRITING: Final = "storage/compaction/rewriting.py"
_OFFSET_MAP: Final = "storage/compaction/offset_map.py"
_WORK: Final = "storage/compaction/work.py"


def _bug(name: str, path: str, function: str, old: str, new: str, *kinds: str) -> Mutant:
    """``kinds``: of the storm. None: all of them."""
    return Mutant(name, (Edit(path, function, old, new),), kinds=kinds)


def _light_bug(name: str, path: str, function: str, old: str, new: str, *kinds: str) -> Mutant:
    """The same. It shows under light load."""
    return _bug(name, path, function, old, new, *kinds)._replace(load=LoadKind.LIGHT)


CLEANER = [
    _bug(
        "cleaner: keep the first value of a key",
        _OFFSET_MAP,
        "OffsetMap.kept_records",
        "base_offset + each.offset_delta >= self.get(each.key)",
        "not -1 < self.get(each.key) < base_offset + each.offset_delta",
        "kill",
    ),
    _bug(
        "cleaner: keep all values of a key",
        _OFFSET_MAP,
        "OffsetMap.kept_records",
        "base_offset + each.offset_delta >= self.get(each.key)",
        "True",
        "kill",
    ),
    _bug(
        "cleaner: drop a tombstone when it is found first",
        _REWRITING,
        "may_drop_tombstones",
        "horizon_ms is not None and rules.now_ms >= horizon_ms",
        "horizon_ms is None or rules.now_ms >= horizon_ms",
        "kill",
    ),
    _bug(
        "cleaner: let a tombstone go without its time",
        _REWRITING,
        "rewritten",
        "rules.now_ms + rules.delete_retention_ms",
        "rules.now_ms",
        "kill",
    ),
    _bug(
        "cleaner: move the timestamps of a batch with its delete horizon",
        _REWRITING,
        "_moved",
        "record.timestamp_delta_ms + by_ms",
        "record.timestamp_delta_ms",
        "kill",
    ),
    _bug(
        "cleaner: leave the first dirty segment out of the map",
        _WORK,
        "_Round._map_keys",
        "span[1] <= first_dirty",
        "span[0] <= first_dirty",
        "kill",
    ),
    _bug(
        "cleaner: note the first offset of a key",
        "storage/compaction/slots.py",
        "Slots.put",
        "self._offsets[at] = offset + 1",
        "self._offsets[at] = self._offsets[at] or offset + 1",
        "kill",
    ),
    _bug(
        "cleaner: put segments into place that are not on disk",
        _WORK,
        "_Round._rewrite_all",
        "yield Sync((*output.finish(end, self._aborted), self._request.directory))",
        "output.finish(end, self._aborted)",
        "cut_power",
        "cut_all_power",
    ),
    _bug(
        "cleaner: swap segments without a note",
        "storage/compaction/round.py",
        "_swap",
        "disk.replace_file_now(path, encode_swap(base_offset, end_offset))",
        "encode_swap(base_offset, end_offset)",
        "cut_power",
        "cut_all_power",
        "kill",
    ),
    _bug(
        "cleaner: forget the keys of compressed batches",
        _WORK,
        "_Round._map_keys",
        "not transactions.read(header) and not _put_all(offsets, read.data, header)",
        "not transactions.read(header) and not header.compression "
        "and not _put_all(offsets, read.data, header)",
        "kill",
    ),
    _light_bug(
        "cleaner: take a record for older than itself",
        _OFFSET_MAP,
        "OffsetMap.kept_records",
        "base_offset + each.offset_delta >= self.get(each.key)",
        "base_offset + each.offset_delta > self.get(each.key)",
        "kill",
    ),
    _light_bug(
        "cleaner: let a follower go on that has missed tombstones",
        "broker/replication/fetch_reader.py",
        "FetchReader._read_agreed",
        "entry.fetch_offset < log.dropped_end",
        "False",
        "kill",
    ),
]
