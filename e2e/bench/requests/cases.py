"""The rows of the table."""

from logfleet.records.compression import Codec

from e2e.bench.requests.spec import Case, Kind

BATCH_BYTES = 64 * 1024
SMALL_BATCH = BATCH_BYTES // 110  # a record of 100 bytes takes about 110 in a batch
BIG_BATCH = BATCH_BYTES // 1036
ANSWER_BYTES = 1024 * 1024
"""What consumers ask for by default per partition (max.partition.fetch.bytes)."""

READING_RECORDS = tuple(
    Case(
        f"produce {size}, 64 KiB batches, {name}",
        Kind.PRODUCE,
        record_bytes,
        records,
        requests=1000,
        depth=5,
        codec=codec,
        reads_records=reads_records,
    )
    for size, record_bytes, records in (("100 B", 100, SMALL_BATCH), ("1 KiB", 1024, BIG_BATCH))
    for name, codec, reads_records in (
        ("all read", Codec.NONE, True),
        ("lz4", Codec.LZ4, False),
        ("lz4, all read", Codec.LZ4, True),
    )
)
"""What logfleet.record.validation=full costs, beside the rows of the same batches without it."""

CASES = (
    Case("produce 100 B, 64 KiB batches", Kind.PRODUCE, 100, SMALL_BATCH, requests=3000, depth=5),
    Case(
        "produce 1 KiB, 64 KiB batches",
        Kind.PRODUCE,
        1024,
        BIG_BATCH,
        requests=3000,
        depth=5,
        aim=1.8,
    ),
    Case(
        "produce one 1 KiB, 1 in flight", Kind.PRODUCE, 1024, 1, requests=10_000, depth=1, aim=2.0
    ),
    Case("produce one 1 KiB, 5 in flight", Kind.PRODUCE, 1024, 1, requests=20_000, depth=5),
    Case(
        "fetch 100 B, 1 MiB answers",
        Kind.FETCH,
        100,
        SMALL_BATCH,
        requests=1500,
        depth=1,
        answer_bytes=ANSWER_BYTES,
    ),
    Case(
        "fetch 1 KiB, 1 MiB answers",
        Kind.FETCH,
        1024,
        BIG_BATCH,
        requests=1500,
        depth=1,
        answer_bytes=ANSWER_BYTES,
        aim=1.8,
    ),
    Case(
        "fetch 1 KiB, 64 KiB answers",
        Kind.FETCH,
        1024,
        BIG_BATCH,
        requests=8000,
        depth=1,
        answer_bytes=BATCH_BYTES,
    ),
    Case(
        "fetch the newest 1 KiB, 1 in flight",
        Kind.FETCH,
        1024,
        1,
        requests=10_000,
        depth=1,
        answer_bytes=ANSWER_BYTES,
        aim=2.0,
        newest=True,
    ),
    *READING_RECORDS,
)
