"""Record batches as no client would make them: cut, with lies in lengths and counts, with streams that expand without end."""

import random
import struct
import time
import zlib
from collections.abc import Callable
from functools import cache
from typing import Final

import cramjam
import lz4.frame
import zstandard
from logfleet.records.batch import HEADER_SIZE, write_crc
from logfleet.records.compression import Codec, compress
from logfleet.records.record import ProducerStamp, Record, build_batch
from logfleet.records.varint import append_varint

FIELDS: Final = {
    0: ">q", 8: ">i", 12: ">i", 16: ">b", 17: ">I", 21: ">h", 23: ">i", 27: ">q", 35: ">q", 43: ">q", 51: ">h", 53: ">i", 57: ">i",
}  # fmt: skip
"""Position and format of each field of a batch's header (KIP-98)."""
CRC_AT: Final = 17
LENGTH_AT: Final = 8
BOMB_BYTES: Final = 24 * 1024 * 1024
RECORD_COUNTS: Final = (0, 1, 2, 5, 1000, -1, 2**31 - 1)


def good_batch(dice: random.Random, codec: Codec | None = None) -> bytearray:
    """A batch that a broker takes."""
    if codec is None:
        codec = dice.choice(list(Codec))
    now = time.time_ns() // 1_000_000
    records = [
        Record(
            dice.choice([None, b"", b"key", b"k" * 50]),
            dice.choice([None, b"", b"value", bytes(500)]),
            now - dice.randrange(1000),
            dice.choice([(), (("h", None),), (("h", b"1"), ("", b""))]),
        )
        for _ in range(dice.choice([1, 1, 2, 10]))
    ]
    stamp = None
    if dice.random() < 0.5:
        stamp = ProducerStamp(
            dice.choice([0, 5, 2**63 - 1]), dice.choice([0, 1]), dice.choice([0, 1, 2**31 - 1])
        )
    return bytearray(build_batch(records, codec=codec, producer=stamp))


def with_body(codec: int, body: bytes, count: int) -> bytearray:
    """A batch with a right checksum around these compressed bytes; count: of records, as the header says."""
    batch = bytearray(build_batch([Record(b"k", b"v", time.time_ns() // 1_000_000)])[:HEADER_SIZE])
    batch += body
    struct.pack_into(">i", batch, LENGTH_AT, len(batch) - 12)
    struct.pack_into(">h", batch, 21, codec)
    struct.pack_into(">i", batch, 23, max(count - 1, 0))
    struct.pack_into(">i", batch, 57, count)
    write_crc(batch)
    return batch


def lie_in_header(dice: random.Random, batch: bytearray) -> bytearray:
    """One field of the header is something else, and the checksum fits it, mostly."""
    position, form = dice.choice(list(FIELDS.items()))
    bits = 8 * struct.calcsize(form)
    value = dice.choice(
        [0, 1, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), dice.getrandbits(bits - 1)]
    )
    if form == ">I":
        value &= 2**32 - 1
    struct.pack_into(form, batch, position, value)
    if position != CRC_AT and dice.random() < 0.9:
        write_crc(batch)
    return batch


def lie_in_records(dice: random.Random) -> bytearray:
    """Records whose varints lie, in any codec; the checksum is right."""
    body = bytearray()
    for _ in range(dice.choice([1, 2, 3])):
        inner = bytearray(b"\0")
        for number in (0, 0, 3, 3, 0):
            append_varint(inner, dice.choice([number, -1, -2, 5, 2**31 - 1, 2**62, -(2**31)]))
        inner += dice.randbytes(dice.choice([0, 3, 10]))
        append_varint(body, dice.choice([len(inner), 0, -1, 10**6, 2**31 - 1]))
        body += inner
    codec = dice.choice(list(Codec))
    return with_body(codec, compress(codec, bytes(body)), dice.choice(RECORD_COUNTS))


def broken_stream(dice: random.Random) -> bytearray:
    """A compressed stream that is cut, flipped, of another codec, or not one at all."""
    codec = dice.choice([Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
    plain = bytes(good_batch(dice, Codec.NONE)[HEADER_SIZE:])
    stream = bytearray(dice.choice([compress(codec, plain), raw_snappy(plain), with_size(plain)]))
    for _ in range(dice.choice([0, 1, 3])):
        stream[dice.randrange(len(stream))] ^= 1 << dice.randrange(8)
    if dice.random() < 0.4:
        del stream[dice.randrange(len(stream)) :]
    if dice.random() < 0.2:
        stream += dice.randbytes(20)
    bits = codec if dice.random() < 0.8 else dice.randrange(8)
    return with_body(bits, bytes(stream), dice.choice(RECORD_COUNTS))


def raw_snappy(plain: bytes) -> bytes:
    """One bare block, as librdkafka sends it."""
    return bytes(cramjam.snappy.compress_raw(plain))


def with_size(plain: bytes) -> bytes:
    """A zstd frame that declares how much comes out, unlike Java's."""
    return zstandard.ZstdCompressor(write_content_size=True).compress(plain)


@cache
def bomb(codec: int) -> bytes:
    """A few kilobytes that expand to BOMB_BYTES of zeros, or say so."""
    zeros = bytes(BOMB_BYTES)
    match codec:
        case Codec.GZIP:
            packer = zlib.compressobj(9, wbits=31)
            return packer.compress(zeros) + packer.flush()
        case Codec.SNAPPY:  # the preamble of a raw block alone: 2 GiB
            return b"\xff\xff\xff\xff\x07" + bytes(30)
        case Codec.LZ4:
            return bytes(lz4.frame.compress(zeros, block_linked=False, store_size=False))
        case Codec.ZSTD:
            return zstandard.ZstdCompressor(write_content_size=False).compress(zeros)
    return compress(Codec.SNAPPY, zeros)


def expanding(dice: random.Random) -> bytearray:
    codec = dice.choice([1, 2, 3, 4, 0])
    return with_body(codec or Codec.SNAPPY, bomb(codec), dice.choice(RECORD_COUNTS))


def hostile_batches(dice: random.Random) -> bytes | None:
    """What a Produce request may carry for a partition."""
    make: Callable[[], bytearray] = dice.choice(
        [
            lambda: good_batch(dice),
            lambda: lie_in_header(dice, good_batch(dice)),
            lambda: lie_in_records(dice),
            lambda: broken_stream(dice),
            lambda: good_batch(dice) + good_batch(dice),
            lambda: good_batch(dice)[: dice.randrange(90)],
            lambda: bytearray(dice.randbytes(dice.choice([0, 1, 60, 61, 200]))),
        ]
    )
    if dice.random() < 0.01:
        return bytes(expanding(dice))
    return None if dice.random() < 0.02 else bytes(make())
