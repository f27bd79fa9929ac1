"""The topics that the fuzzer finds, each made so that the broker looks at batches in another way."""

from collections.abc import Mapping
from typing import Final

from logfleet.wire import messages as m

from e2e.fuzz.values import SAFE_TOPICS, VICTIM

DECOMPRESSED_BYTES_MAX: Final = 4 * 1024 * 1024
CREATE_VERSION: Final = 7
TIMEOUT_MS: Final = 30_000
_BUDGET: Final = {"max.decompressed.message.bytes": str(DECOMPRESSED_BYTES_MAX)}
CONFIGS: Final[Mapping[str, Mapping[str, str]]] = {
    "plain": _BUDGET,
    "compacted": {"cleanup.policy": "compact", **_BUDGET},
    "recompressed": {"compression.type": "zstd", **_BUDGET},
    "timed": {"message.timestamp.before.max.ms": "3600000", **_BUDGET},
    VICTIM: {},
}


def creation() -> m.CreateTopicsRequest:
    """The request that makes them."""
    kind = m.CreateTopicsRequest
    topics = [
        kind.CreatableTopic(
            name=name,
            num_partitions=1,
            replication_factor=1,
            configs=[kind.CreatableTopicConfig(name=k, value=v) for k, v in configs.items()],
        )
        for name, configs in CONFIGS.items()
    ]
    return kind(topics=topics, timeout_ms=TIMEOUT_MS)


def ids_of(answer: m.CreateTopicsResponse) -> dict[str, bytes]:
    """Of the topics that must stay; all of them were made."""
    assert not any(row.error_code for row in answer.topics), answer
    return {row.name: row.topic_id for row in answer.topics if row.name in SAFE_TOPICS}
