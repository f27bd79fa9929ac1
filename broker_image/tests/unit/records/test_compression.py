import subprocess
import sys
import tracemalloc
import zlib

import cramjam
import lz4.frame
import pytest
import zstandard
from aiokafka import codec as aiokafka
from hypothesis import given
from hypothesis import strategies as st
from kafka import codec as kafka_python
from logfleet.records.compression import XERIAL_BLOCK_BYTES, Codec, compress, decompress
from logfleet.records.errors import CorruptRecords, DecompressedTooLarge, RecordsError

TEXT = b"all work and no play makes jack a dull boy; " * 5000
COMPRESSED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
MIB = 1 << 20


@pytest.mark.parametrize("codec", list(Codec))
@given(data=st.binary(max_size=200_000) | st.just(TEXT))
def test_a_codec_gives_back_what_it_was_given(codec, data):
    assert decompress(codec, compress(codec, data), len(data)) == data


@pytest.mark.parametrize("codec", list(Codec))
def test_a_budget_smaller_than_the_output_is_refused(codec):
    with pytest.raises(DecompressedTooLarge) as refused:
        decompress(codec, compress(codec, TEXT), len(TEXT) - 1)
    assert refused.value.budget_bytes == len(TEXT) - 1


@pytest.mark.parametrize("codec, level", [(Codec.GZIP, 9), (Codec.LZ4, 12), (Codec.ZSTD, 19)])
def test_a_level_is_honoured(codec, level):
    data = b"".join(b"%d=%d;" % (n, n * n % 7919) for n in range(20_000))
    assert len(compress(codec, data, level)) < len(compress(codec, data, 1))
    assert decompress(codec, compress(codec, data, level), len(data)) == data


def bombs():
    zeros = bytes(256 * MIB)
    yield "gzip", Codec.GZIP, zlib.compress(zeros, wbits=31)
    raw = bytes(cramjam.snappy.compress_raw(zeros))
    yield "raw snappy", Codec.SNAPPY, raw
    framed = compress(Codec.SNAPPY, b"")[:16] + len(raw).to_bytes(4, "big") + raw
    yield "xerial snappy", Codec.SNAPPY, framed
    yield "lz4", Codec.LZ4, lz4.frame.compress(zeros, block_linked=False)
    yield "zstd of declared size", Codec.ZSTD, zstandard.ZstdCompressor().compress(zeros)
    streamed = zstandard.ZstdCompressor(write_content_size=False).compress(zeros)
    yield "zstd of unknown size", Codec.ZSTD, streamed


EXPAND = """
import resource, sys
from logfleet.records.compression import Codec, decompress
from logfleet.records.errors import DecompressedTooLarge
stream = open(sys.argv[1], "rb").read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decompress(Codec(int(sys.argv[2])), stream, 1 << 20)
except DecompressedTooLarge:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_bombs_take_no_memory_outside_of_python_either(tmp_path):
    """The codecs allocate in C and Rust, where tracemalloc does not look."""
    for name, codec, bomb in bombs():
        (tmp_path / name).write_bytes(bomb)
        done = subprocess.run(
            [sys.executable, "-c", EXPAND, tmp_path / name, str(int(codec))],
            capture_output=True,
            text=True,
            check=True,
        )
        assert int(done.stdout) < 16 * 1024, name  # KiB


def test_bombs_are_stopped_while_they_stream():
    for name, codec, bomb in bombs():
        tracemalloc.start()
        with pytest.raises(DecompressedTooLarge):
            decompress(codec, bomb, MIB)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 8 * MIB, name


def test_a_snappy_preamble_that_promises_gigabytes_allocates_nothing():
    with pytest.raises(DecompressedTooLarge):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f", MIB)


@pytest.mark.parametrize("codec", COMPRESSED)
@given(garbage=st.binary(max_size=2000))
def test_garbage_raises_nothing_but_the_typed_errors(codec, garbage):
    try:
        output = decompress(codec, garbage, 100_000)
    except RecordsError:
        return
    assert len(output) <= 100_000


@pytest.mark.parametrize("codec", COMPRESSED)
@given(data=st.data())
def test_a_damaged_stream_raises_nothing_but_the_typed_errors(codec, data):
    stream = bytearray(compress(codec, TEXT[:3000]))
    at = data.draw(st.integers(0, len(stream) - 1))
    stream[at] ^= data.draw(st.integers(1, 255))
    try:
        decompress(codec, stream[: data.draw(st.integers(0, len(stream)))], 100_000)
    except RecordsError:
        return


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_a_stream_cut_short_is_corrupt(codec):
    stream = compress(codec, TEXT)
    for cut in (len(stream) // 2, len(stream) - 1):
        with pytest.raises(CorruptRecords):
            decompress(codec, stream[:cut], len(TEXT))


def test_gzip_members_follow_each_other():
    stream = compress(Codec.GZIP, b"one ") + compress(Codec.GZIP, b"two")
    assert decompress(Codec.GZIP, stream, 7) == b"one two"


def test_snappy_is_written_in_the_blocks_of_xerial():
    stream = compress(Codec.SNAPPY, TEXT)
    assert stream[:16] == b"\x82SNAPPY\0" + b"\0\0\0\1" * 2
    first = int.from_bytes(stream[16:20], "big")
    assert len(bytes(cramjam.snappy.decompress_raw(stream[20 : 20 + first]))) == XERIAL_BLOCK_BYTES


def test_a_bare_snappy_block_is_read():
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)), len(TEXT)) == TEXT


def test_lz4_blocks_are_independent_since_the_java_reader_refuses_linked_ones():
    assert compress(Codec.LZ4, TEXT)[4] & 0x20
    linked = lz4.frame.compress(TEXT, block_linked=True, block_size=lz4.frame.BLOCKSIZE_MAX64KB)
    assert not linked[4] & 0x20
    assert decompress(Codec.LZ4, linked, len(TEXT)) == TEXT


def test_zstd_is_written_without_a_content_size_as_java_does():
    stream = compress(Codec.ZSTD, TEXT)
    assert zstandard.frame_content_size(stream) == -1


def test_zstd_of_the_highest_level_is_read():
    writer = zstandard.ZstdCompressor(level=22, write_content_size=False).compressobj()
    stream = writer.compress(TEXT) + writer.flush()
    assert zstandard.get_frame_parameters(stream).window_size == 1 << 27
    assert decompress(Codec.ZSTD, stream, len(TEXT)) == TEXT


ORACLES = [
    (Codec.GZIP, kafka_python.gzip_encode, kafka_python.gzip_decode),
    (Codec.LZ4, kafka_python.lz4_encode, kafka_python.lz4_decode),
    (Codec.ZSTD, kafka_python.zstd_encode, kafka_python.zstd_decode),
    (Codec.SNAPPY, aiokafka.snappy_encode, aiokafka.snappy_decode),
    (Codec.GZIP, aiokafka.gzip_encode, aiokafka.gzip_decode),
    (Codec.LZ4, aiokafka.lz4_encode, aiokafka.lz4_decode),
    (Codec.ZSTD, aiokafka.zstd_encode, aiokafka.zstd_decode),
]


@pytest.mark.parametrize("codec, encode, decode", ORACLES)
def test_streams_are_those_of_the_python_clients(codec, encode, decode):
    assert decompress(codec, encode(TEXT), len(TEXT)) == TEXT
    assert decode(compress(codec, TEXT)) == TEXT
