import errno
import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from logfleet.cli.machine.dump import dump
from logfleet.log.aborted import AbortedEntry
from logfleet.log.producers.states import ProducerStates
from logfleet.log.segments.index_entries import OFFSET_ENTRY, TIME_ENTRY
from logfleet.records.batch import HEADER_SIZE, assign_offsets, parse_header, write_crc
from logfleet.records.compression import Codec
from logfleet.records.control import marker_batch
from logfleet.records.record import ProducerStamp, Record, build_batch
from logfleet.types import LeaderEpoch

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
        leader_epoch=LeaderEpoch(3),
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


def test_aborted_transactions_are_checked_against_the_markers_of_the_segment(segment: Path) -> None:
    marker = marker_batch(7, 1, commit=False, coordinator_epoch=0, now_ms=NOW)
    assign_offsets(marker, 103, LeaderEpoch(3))
    segment.write_bytes(segment.read_bytes() + bytes(marker))
    index = segment.with_suffix(".txnindex")
    index.write_bytes(AbortedEntry(7, 100, 103, 104).pack() + b"torn")
    (row,) = dumped(index)
    assert row == {
        "file": index.name,
        "producerId": 7,
        "firstOffset": 100,
        "offset": 103,
        "lastStableOffset": 104,
        "valid": True,
    }
    index.write_bytes(AbortedEntry(7, 100, 102, 104).pack())
    done = CliRunner().invoke(dump, [str(index)])
    assert done.exit_code == 1
    assert f"remove {BASE}.index, it is created again" in done.stderr


def test_indexes_are_told_in_offsets_without_the_zeros_behind_them(tmp_path: Path) -> None:
    offsets, times = tmp_path / f"{BASE}.index", tmp_path / f"{BASE}.timeindex"
    offsets.write_bytes(OFFSET_ENTRY.pack(4, 4096) + OFFSET_ENTRY.pack(9, 8192) + bytes(80))
    times.write_bytes(TIME_ENTRY.pack(NOW, 256) + bytes(120))
    assert [(row["offset"], row["position"]) for row in dumped(offsets)] == [
        (104, 4096),
        (109, 8192),
    ]
    assert [(row["timestamp"], row["offset"]) for row in dumped(times)] == [(NOW, 356)]
    assert len(dumped(tmp_path)) == 3


def test_entries_of_an_index_are_checked_against_the_segment_beside_it(segment: Path) -> None:
    second = int(str(dumped(segment)[0]["size"]))
    offsets, times = segment.with_suffix(".index"), segment.with_suffix(".timeindex")
    offsets.write_bytes(OFFSET_ENTRY.pack(1, 0) + OFFSET_ENTRY.pack(2, second))
    times.write_bytes(TIME_ENTRY.pack(NOW + 1, 1) + TIME_ENTRY.pack(NOW + 2, 2))
    assert [row["valid"] for path in (offsets, times) for row in dumped(path)] == [True] * 4
    for path, wrong in (
        (offsets, OFFSET_ENTRY.pack(2, second + 1)),
        (times, TIME_ENTRY.pack(NOW, 2)),
    ):
        path.write_bytes(wrong)
        done = CliRunner().invoke(dump, [str(path), "-o", "json"])
        assert (done.exit_code, json.loads(done.stdout)["valid"]) == (1, False)
        assert "the entry for offset 102 is not so" in done.stderr
    segment.write_bytes(b"")
    assert CliRunner().invoke(dump, [str(offsets)]).exit_code == 1


def test_a_producer_snapshot_tells_each_producers_last_batch(segment: Path) -> None:
    states = ProducerStates()
    states.update(parse_header(segment.read_bytes()), 100)
    path = segment.with_suffix(".snapshot")
    path.write_bytes(states.snapshot())
    assert dumped(path) == [
        {
            "file": path.name,
            "producerId": 7,
            "producerEpoch": 1,
            "firstSequence": 5,
            "lastSequence": 6,
            "lastOffset": 101,
            "timestamp": NOW + 1,
            "coordinatorEpoch": -1,
            "transactionFirstOffset": -1,
        }
    ]
    path.write_bytes(states.snapshot()[:-1])
    done = CliRunner().invoke(dump, [str(path)])
    assert done.exit_code == 1
    assert "for 1 entries" in done.stderr or "checksum" in done.stderr


def test_the_small_text_files_are_told_line_by_line(tmp_path: Path) -> None:
    for name, text, row in (
        ("leader-epoch-checkpoint", "0\n1\n3 100\n", {"epoch": 3, "startOffset": 100}),
        (
            "recovery-point-offset-checkpoint",
            "0\n1\na 2 7\n",
            {"topic": "a", "partition": 2, "offset": 7},
        ),
        ("partition.metadata", "version: 0\n", {"key": "version", "value": "0"}),
        ("meta.properties", "node.id=1\n", {"key": "node.id", "value": "1"}),
    ):
        path = tmp_path / name
        path.write_text(text)
        assert dumped(path) == [{"file": name, **row}]
        path.write_text("who knows")
        assert CliRunner().invoke(dump, [str(path)]).exit_code == 1


def test_a_batch_with_another_checksum_is_told(segment: Path) -> None:
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    for options, rows in (((), 2), (("--records",), 2)):
        done = CliRunner().invoke(dump, [str(segment), "-o", "json", *options])
        assert done.exit_code == 1
        assert "another checksum" in done.stderr
        assert len(done.stdout.splitlines()) == rows


@pytest.mark.parametrize("options", [[], ["-o", "json"]])
def test_records_that_cannot_be_read_are_one_line_though_the_checksum_is_right(
    tmp_path: Path, options: list[str]
) -> None:
    sound = build_batch([Record(None, b"v", NOW)], base_offset=100)
    broken = bytearray(build_batch([Record(None, b"v" * 50, NOW)] * 3, base_offset=101))
    broken[HEADER_SIZE:] = b"\x7f" * (len(broken) - HEADER_SIZE)
    write_crc(broken)
    path = tmp_path / f"{BASE}.log"
    path.write_bytes(bytes(sound) + bytes(broken))
    done = CliRunner().invoke(dump, [str(path), "--records", *options])
    assert done.exit_code == 1
    assert isinstance(done.exception, SystemExit), done.exception
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"Error: {path}: the batch at offset 101 (position {len(sound)}) ")
    assert dumped(path, "--count", "1")


def test_that_nobody_reads_the_output_is_no_problem_of_the_file(
    segment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    echo = click.echo

    def closed(message: str, *, err: bool = False) -> None:
        if not err:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        echo(message, err=True)

    monkeypatch.setattr("click.echo", closed)
    done = CliRunner().invoke(dump, [str(segment), "-o", "json"])
    assert (done.exit_code, done.output) == (1, "")
