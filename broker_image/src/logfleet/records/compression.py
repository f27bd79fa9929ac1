"""The codecs of record batches; each decompresses within a byte budget.

A few kilobytes can expand to hundreds of megabytes, and some codecs trust the size that the stream
declares. So output is produced piece by piece and stopped at the budget: memory never holds more
than `budget_bytes` plus one piece.

Formats of Kafka's clients (`org.apache.kafka.common.compress`):
- gzip: RFC 1952, one or more members.
- snappy: the xerial stream (16 bytes of header, then blocks of [int32 length, raw snappy]);
  librdkafka and others also send one bare raw block, so that is read as well.
- lz4: the LZ4 frame format with *independent* blocks; the Java reader refuses linked ones, so none
  are written. Both are read.
- zstd: frames without a content size (the Java writer streams), so the output size is never known
  beforehand.
"""

import io
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum

import cramjam
import lz4.frame

from logfleet.records.checksum import Buffer
from logfleet.records.errors import CorruptRecords, DecompressedTooLarge

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd  # the same module, for the Pythons before it

PIECE_BYTES = 256 * 1024
"""Size of output pieces: large enough to be cheap, small enough not to allocate the budget in
advance."""

ZSTD_WINDOW_LOG_MAX = 27
"""Logarithm of the largest accepted window for back-references in bytes: level 22's, which is also
the zstd library's limit."""

ZSTD_LIMITS: Mapping[int, int] = {zstd.DecompressionParameter.window_log_max: ZSTD_WINDOW_LOG_MAX}

XERIAL_HEADER = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
XERIAL_MAGIC = XERIAL_HEADER[:8]
XERIAL_BLOCK_BYTES = 32 * 1024
"""Block size of snappy-java's SnappyOutputStream."""


class Codec(IntEnum):
    """Compression codecs: bits 0-2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Compress `data`.

    level: the codec's own scale (gzip 1-9, lz4 1-17, zstd -131072-22), None for its default.
    """
    return _COMPRESS[codec](data, level)


def decompress(codec: Codec, data: Buffer, budget_bytes: int) -> Buffer:
    """Expand `data` to at most `budget_bytes`, in one buffer; raises as `decompressed_pieces`."""
    pieces = decompressed_pieces(codec, data, budget_bytes)
    first = next(pieces, b"")
    second = next(pieces, None)
    if second is None:
        return first
    output = io.BytesIO()  # unlike a bytearray it returns its content without a copy
    output.write(first)
    output.write(second)
    for piece in pieces:
        output.write(piece)
    return output.getvalue()


def decompressed_pieces(codec: Codec, data: Buffer, budget_bytes: int) -> Iterator[Buffer]:
    """The decompressed `data`, piece by piece.

    A zstd stream that ends early yields what it held: the caller counts the records. Raises
    DecompressedTooLarge as soon as a piece exceeds the budget, and CorruptRecords for a stream that
    the codec cannot read.
    """
    total = 0
    for piece in _DECOMPRESS[codec](data, budget_bytes):
        total += len(piece)
        if total > budget_bytes:
            raise DecompressedTooLarge(budget_bytes)
        yield piece


def _store(data: Buffer, _level: int | None) -> bytes:
    return bytes(data)


def _compress_gzip(data: Buffer, level: int | None) -> bytes:
    compressor = zlib.compressobj(-1 if level is None else level, wbits=31)
    return compressor.compress(data) + compressor.flush()


def _compress_snappy(data: Buffer, _level: int | None) -> bytes:
    view = memoryview(data)
    parts = [XERIAL_HEADER]
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + XERIAL_BLOCK_BYTES]))
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    compressed: bytes = lz4.frame.compress(
        data,
        compression_level=0 if level is None else level,
        block_linked=False,
        store_size=False,
    )
    return compressed


def _compress_zstd(data: Buffer, level: int | None) -> bytes:
    compressor = zstd.ZstdCompressor(
        options={
            zstd.CompressionParameter.compression_level: 3 if level is None else level,
            zstd.CompressionParameter.content_size_flag: 0,
        }
    )
    return compressor.compress(data, zstd.ZstdCompressor.FLUSH_FRAME)


def _stored(data: Buffer, _budget_bytes: int) -> Iterator[Buffer]:
    yield data


def _decompress_gzip(data: Buffer, _budget_bytes: int) -> Iterator[Buffer]:
    rest: Buffer = data
    while rest:
        member = zlib.decompressobj(wbits=31)
        while not member.eof:
            if not rest:
                raise CorruptRecords("gzip stream ends early")
            try:
                piece = member.decompress(rest, PIECE_BYTES)
            except zlib.error as error:
                raise CorruptRecords(f"gzip: {error}") from error
            rest = member.unconsumed_tail
            yield piece
        rest = member.unused_data


def _decompress_snappy(data: Buffer, budget_bytes: int) -> Iterator[Buffer]:
    view = memoryview(data)
    if view[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        yield _snappy_block(view, budget_bytes, budget_bytes)
        return
    position, room = len(XERIAL_HEADER), budget_bytes
    while position < len(view):
        size = int.from_bytes(view[position : position + 4], "big")
        position += 4
        if size > len(view) - position:
            raise CorruptRecords("snappy block ends early")
        piece = _snappy_block(view[position : position + size], room, budget_bytes)
        position += size
        room -= len(piece)
        yield piece


def _snappy_block(block: memoryview, room: int, budget_bytes: int) -> bytes:
    """One raw block.

    Its preamble declares the output size; the decoder writes exactly that or fails.
    """
    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > room:
        raise DecompressedTooLarge(budget_bytes)
    try:
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CorruptRecords(f"{error}") from error


def _decompress_lz4(data: Buffer, _budget_bytes: int) -> Iterator[Buffer]:
    frame = lz4.frame.LZ4FrameDecompressor()
    rest: Buffer = data
    while not frame.eof:
        try:
            piece: bytes = frame.decompress(rest, max_length=PIECE_BYTES)
        except RuntimeError as error:  # lz4.frame raises it for every error in the stream
            raise CorruptRecords(f"lz4: {error}") from error
        if frame.needs_input and not frame.eof and not piece:
            raise CorruptRecords("lz4 frame ends early")
        yield piece
        rest = b""


def _decompress_zstd(data: Buffer, _budget_bytes: int) -> Iterator[Buffer]:
    rest: Buffer = data
    while rest:
        frame = zstd.ZstdDecompressor(options=ZSTD_LIMITS)
        while not frame.eof:
            try:
                piece = frame.decompress(rest, PIECE_BYTES)
            except zstd.ZstdError as error:
                raise CorruptRecords(f"zstd: {error}") from error
            if not piece and frame.needs_input:
                return  # the stream ends early
            rest = b""
            yield piece
        rest = frame.unused_data


_COMPRESS: dict[Codec, Callable[[Buffer, int | None], bytes]] = {
    Codec.NONE: _store,
    Codec.GZIP: _compress_gzip,
    Codec.SNAPPY: _compress_snappy,
    Codec.LZ4: _compress_lz4,
    Codec.ZSTD: _compress_zstd,
}
_DECOMPRESS: dict[Codec, Callable[[Buffer, int], Iterator[Buffer]]] = {
    Codec.NONE: _stored,
    Codec.GZIP: _decompress_gzip,
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: _decompress_lz4,
    Codec.ZSTD: _decompress_zstd,
}
