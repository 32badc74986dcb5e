"""The dump of a log's files, sound or damaged."""

import struct

import pytest

from stele.wire.batch import Record, compute_crc, encode, stamp
from stele.wire.compression import Compression
from stele.wire.control_records import end_marker_batch
from storage.compaction.rewriting import emptied
from storage.dump import UnknownFileError, dump_file
from storage.producer_state import ProducerStates
from storage.txn_index import AbortedTransaction, encode_aborted
from tests.support.batches import header_of, make_batch

SEGMENT = f"/d/t-0/{100:020d}"


def test_a_segment_shows_batches_and_on_request_records() -> None:
    data = make_batch(2, base_offset=100, producer=(5, 1, 7), leader_epoch=3)
    data += make_batch(1, base_offset=102, compression=Compression.GZIP)
    first, second = dump_file(f"{SEGMENT}.log", data)
    assert first["baseOffset"] == 100
    assert first["lastOffset"] == 101
    assert (first["producerId"], first["producerEpoch"], first["baseSequence"]) == (5, 1, 7)
    assert first["partitionLeaderEpoch"] == 3
    assert first["isvalid"]
    assert second["compresscodec"] == "gzip"
    assert second["position"] == first["size"]
    rows = list(dump_file(f"{SEGMENT}.log", data, print_records=True))
    assert [row["offset"] for row in rows if "offset" in row] == [100, 101, 102]
    assert rows[1]["key"] == b"key"


def test_a_delete_horizon_is_shown() -> None:
    batch = bytearray(make_batch(1, base_offset=100))
    assert "deleteHorizonMs" not in next(iter(dump_file(f"{SEGMENT}.log", batch)))
    struct.pack_into(">h", batch, 21, 0x40)
    struct.pack_into(">q", batch, 27, 1_700_000_000_123)
    struct.pack_into(">I", batch, 17, compute_crc(batch, 0, len(batch)))
    (row,) = dump_file(f"{SEGMENT}.log", batch)
    assert row["isvalid"]
    assert row["deleteHorizonMs"] == 1_700_000_000_123


def test_damage_is_shown_where_it_stands() -> None:
    whole = make_batch(1, base_offset=100)
    flipped = bytearray(whole)
    flipped[-1] ^= 1
    rows = list(dump_file(f"{SEGMENT}.log", whole + flipped + whole[:30], print_records=True))
    assert [row.get("isvalid") for row in rows if "isvalid" in row] == [True, False]
    assert rows[-1] == {"position": 2 * len(whole), "error": "30 bytes of a torn batch"}
    assert len([row for row in rows if "offset" in row]) == 1  # a damaged batch has no records
    rows = list(dump_file(f"{SEGMENT}.log", whole[:-1]))
    assert rows == [{"position": 0, "error": f"{len(whole) - 1} bytes of a torn batch"}]
    assert "magic" in next(iter(dump_file(f"{SEGMENT}.log", bytes([7]) * 80)))["error"]


def test_indexes_show_whole_offsets() -> None:
    assert list(dump_file(f"{SEGMENT}.index", struct.pack(">ii", 4, 900))) == [
        {"offset": 104, "position": 900}
    ]
    rows = list(dump_file(f"{SEGMENT}.timeindex", struct.pack(">qi", 77, 4) + b"xx"))
    assert rows == [{"timestamp": 77, "offset": 104}, {"error": "2 bytes behind the last entry"}]


def test_ends_of_transactions_are_shown() -> None:
    data = make_batch(1, base_offset=100, producer=(5, 1, 0), is_transactional=True)
    end = end_marker_batch(5, 2, commit=False, coordinator_epoch=9, timestamp_ms=4)
    stamp(end, 0, base_offset=101, leader_epoch=3)
    first, second = dump_file(f"{SEGMENT}.log", data + end)
    assert (first["isTransactional"], first["isControl"]) == (True, False)
    assert (second["isTransactional"], second["isControl"]) == (True, True)

    def never(record: Record) -> dict[str, object]:
        raise AssertionError("control records are no records of the topic")

    rows = list(dump_file(f"{SEGMENT}.log", end, print_records=True, decode_record=never))
    assert (rows[1]["controlType"], rows[1]["coordinatorEpoch"]) == ("ABORT", 9)
    other = encode([Record(100, 1, b"\0\0\0\x63", b"x")], is_control=True)
    rows = list(dump_file(f"{SEGMENT}.log", other, print_records=True))
    assert rows[1]["controlType"] == "UNKNOWN"
    assert "coordinatorEpoch" not in rows[1]
    wrong = encode([Record(100, 1, b"\0", b"x")], is_control=True)
    rows = list(dump_file(f"{SEGMENT}.log", wrong, print_records=True))
    assert "key" in rows[1]["error"]


def test_aborted_transactions_are_shown() -> None:
    data = encode_aborted([AbortedTransaction(5, 100, 103, 104)])
    rows = list(dump_file(f"{SEGMENT}.txnindex", data + b"xx"))
    assert rows == [
        {
            "version": 0,
            "producerId": 5,
            "firstOffset": 100,
            "lastOffset": 103,
            "lastStableOffset": 104,
        },
        {"error": "2 bytes behind the last entry"},
    ]


def test_snapshots_show_open_transactions() -> None:
    states = ProducerStates()
    states.update(header_of(make_batch(producer=(5, 1, 0), is_transactional=True)), 100, 1)
    (row,) = dump_file(f"{SEGMENT}.snapshot", states.encode())
    assert (row["currentTxnFirstOffset"], row["coordinatorEpoch"]) == (100, -1)


def test_snapshots_and_text() -> None:
    states = ProducerStates()
    states.update(header_of(make_batch(3, producer=(5, 1, 7))), 100, 0)
    (row,) = dump_file(f"{SEGMENT}.snapshot", states.encode())
    assert (row["producerId"], row["lastSequence"], row["lastOffset"]) == (5, 9, 102)
    assert "error" in next(iter(dump_file(f"{SEGMENT}.snapshot", b"no")))
    assert list(dump_file("/d/leader-epoch-checkpoint", b"0\n1\n3 100\n"))[2] == {"line": "3 100"}


def test_a_batch_without_records_is_shown() -> None:
    (row,) = dump_file(f"{SEGMENT}.log", emptied(header_of(make_batch(producer=(5, 1, 7)))))
    assert (row["count"], row["isvalid"]) == (0, True)


@pytest.mark.parametrize(
    "name",
    [
        "meta.properties",
        "partition.metadata",
        "quorum-state",
        ".kafka_cleanshutdown",
        "recovery-point-offset-checkpoint",
    ],
)
def test_files_of_text_are_known_by_their_names(name: str) -> None:
    assert list(dump_file(f"/d/{name}", b"a=b\n")) == [{"line": "a=b"}]


@pytest.mark.parametrize("name", ["orders.csv", "a/node.log", "checkpoint"])
def test_other_files_are_refused_by_their_names(name: str) -> None:
    with pytest.raises(UnknownFileError, match="is no file of a log directory"):
        dump_file(name, b"a,b\n")


def test_a_snapshot_of_the_metadata_is_dumped_as_batches() -> None:
    name = "/data/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
    (row,) = dump_file(name, make_batch())
    assert row["isvalid"] is True
