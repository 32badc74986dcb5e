"""The dump of a log's files, sound or damaged."""

import struct

from stele.wire.batch import compute_crc
from stele.wire.compression import Compression
from storage.dump import dump_file
from storage.producer_state import ProducerStates
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
    assert "torn" in rows[-1]["error"]
    assert "magic" in next(iter(dump_file(f"{SEGMENT}.log", bytes([7]) * 80)))["error"]


def test_indexes_show_whole_offsets() -> None:
    assert list(dump_file(f"{SEGMENT}.index", struct.pack(">ii", 4, 900))) == [
        {"offset": 104, "position": 900}
    ]
    rows = list(dump_file(f"{SEGMENT}.timeindex", struct.pack(">qi", 77, 4) + b"xx"))
    assert rows == [{"timestamp": 77, "offset": 104}, {"error": "2 bytes behind the last entry"}]


def test_snapshots_and_text() -> None:
    states = ProducerStates()
    states.update(header_of(make_batch(3, producer=(5, 1, 7))), 100, 0)
    (row,) = dump_file(f"{SEGMENT}.snapshot", states.encode())
    assert (row["producerId"], row["lastSequence"], row["lastOffset"]) == (5, 9, 102)
    assert "error" in next(iter(dump_file(f"{SEGMENT}.snapshot", b"no")))
    assert list(dump_file("/d/leader-epoch-checkpoint", b"0\n1\n3 100\n"))[2] == {"line": "3 100"}
