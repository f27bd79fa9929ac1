import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from logfleet.cli.dump import dump
from logfleet.log.index import OFFSET_ENTRY, TIME_ENTRY
from logfleet.records.compression import Codec
from logfleet.records.record import ProducerStamp, Record, build_batch

NOW = 1_700_000_000_000
BASE = f"{100:020d}"


def dumped(path: Path, *options: str) -> list[dict[str, object]]:
    done = CliRunner().invoke(dump, [str(path), "-o", "json", *options])
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    first = build_batch(
        [Record(b"k", b"\xff", NOW, (("h", None),)), Record(None, None, NOW + 1)],
        codec=Codec.LZ4,
        base_offset=100,
        leader_epoch=3,
        producer=ProducerStamp(7, 1, 5),
    )
    second = build_batch([Record(None, "ü".encode(), NOW + 2)], base_offset=102)
    path = tmp_path / f"{BASE}.log"
    path.write_bytes(bytes(first) + bytes(second))
    return path


def test_batches_are_told_by_their_headers(segment: Path) -> None:
    first, second = dumped(segment)
    assert first | {"size": 0} == {
        "file": segment.name,
        "position": 0,
        "base": 100,
        "last": 101,
        "records": 2,
        "size": 0,
        "epoch": 3,
        "codec": "lz4",
        "timestamp": NOW + 1,
        "timestampType": "CREATE_TIME",
        "producerId": 7,
        "producerEpoch": 1,
        "sequence": 5,
        "transactional": False,
        "control": False,
        "valid": True,
    }
    assert second["position"] == first["size"]


def test_records_lose_no_byte(segment: Path) -> None:
    first, second, third = dumped(segment, "--records")
    assert (first["key"], first["value"]) == ("k", {"base64": "/w=="})
    assert (first["headers"], second["value"]) == ([["h", None]], None)
    assert (third["offset"], third["value"]) == (102, "ü")


def test_indexes_are_told_in_offsets_without_the_zeros_behind_them(tmp_path: Path) -> None:
    offsets, times = tmp_path / f"{BASE}.index", tmp_path / f"{BASE}.timeindex"
    offsets.write_bytes(OFFSET_ENTRY.pack(4, 4096) + OFFSET_ENTRY.pack(9, 8192) + bytes(80))
    times.write_bytes(TIME_ENTRY.pack(NOW, 256) + bytes(120))
    assert [(row["offset"], row["position"]) for row in dumped(offsets)] == [
        (104, 4096),
        (109, 8192),
    ]
    assert [(row["timestamp"], row["offset"]) for row in dumped(times)] == [(NOW, 356)]
    (tmp_path / f"{BASE}.log").touch()
    assert len(dumped(tmp_path)) == 3


def test_a_batch_with_another_checksum_is_told(segment: Path) -> None:
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    for options, rows in (((), 2), (("--records",), 2)):
        done = CliRunner().invoke(dump, [str(segment), "-o", "json", *options])
        assert done.exit_code == 1
        assert "another checksum" in done.stderr
        assert len(done.stdout.splitlines()) == rows
