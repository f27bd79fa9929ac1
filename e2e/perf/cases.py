"""The rows of the table."""

from e2e.perf.spec import Case, Kind

BATCH_BYTES = 64 * 1024
SMALL_BATCH = BATCH_BYTES // 110  # a record of 100 bytes takes about 110 in a batch
BIG_BATCH = BATCH_BYTES // 1036
ANSWER_BYTES = 1024 * 1024
"""What consumers ask for by default per partition (max.partition.fetch.bytes)."""

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
)
