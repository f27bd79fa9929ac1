"""Requests that can be read and mean anything: every field holds a boundary, something known, or nonsense. No input or output here."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from logfleet.wire.apis import Api
from logfleet.wire.schema import FIXED_BYTES, FIXED_FORMATS, Field, load_table

from e2e.fuzz.batches import hostile_batches

SAFE_TOPICS: Final = ("plain", "compacted", "recompressed", "timed")
"""Which the fuzzer must not lose: each makes the broker look at batches in another way."""
VICTIM: Final = "victim"
OTHER_TOPICS: Final = ("missing", "", ".", "a b", "x" * 249, "x" * 250, "__consumer_offsets", "\0é")
CHANGING: Final = frozenset(
    {
        "DeleteTopics",
        "CreatePartitions",
        "AlterConfigs",
        "IncrementalAlterConfigs",
        "AlterPartitionReassignments",
        "UpdateFeatures",
    }
)
"""APIs that must only be let loose on VICTIM."""
GROUPS: Final = ("g1", "g2", "", "nobody's", "x" * 300)
CONFIGS: Final = (
    "retention.ms",
    "cleanup.policy",
    "segment.bytes",
    "no.such.key",
    "",
    "max.message.bytes",
)
TEXTS: Final = ("", "a", "range", "consumer", "-1", "100", "compact", "é" * 50, "\0", "x" * 2000)
TIMES_MS: Final = (0, 1, 20, 100, -1, 6000, 2**31 - 1)
ROWS_MAX: Final = 3
MANY_ROWS: Final = 40


@dataclass
class World:
    """What the fuzzer knows of the broker. topic_ids: of the topics by name; members: ids that a group gave."""

    topic_ids: Mapping[str, bytes] = field(default_factory=dict)
    members: list[str] = field(default_factory=lambda: ["", "unknown-member"])


class Requests:
    """Draws requests with `dice`."""

    def __init__(self, dice: random.Random, world: World) -> None:
        self._dice, self._world = dice, world
        self._changing = False

    def draw(self, api: Api, version: int) -> msgspec.Struct:
        """A request that `version` can carry."""
        self._changing = api.name in CHANGING
        schema = load_table()[api.name + "Request"]
        self._rows_left = MANY_ROWS
        return self._struct(api.request, api.request, schema.structs, schema.fields, version)

    def _struct(
        self,
        cls: type[msgspec.Struct],
        top: type[msgspec.Struct],
        structs: Mapping[str, tuple[Field, ...]],
        fields: tuple[Field, ...],
        version: int,
    ) -> msgspec.Struct:
        def of_row(row: Field) -> msgspec.Struct:
            assert row.struct_name is not None
            inner = getattr(top, row.struct_name)
            return self._struct(inner, top, structs, structs[row.struct_name], version)

        return cls(
            **{
                each.python_name: self._value(each, version, of_row)
                for each in fields
                if each.exists(version)
            }
        )

    def _value(self, row: Field, version: int, of_row: Callable[[Field], msgspec.Struct]) -> Any:
        if row.is_nullable(version) and self._dice.random() < 0.1:
            return None
        make = (lambda: of_row(row)) if row.struct_name else (lambda: self._scalar(row))
        if not row.is_array:
            return make()
        count = self._dice.choice([0, 1, 1, 1, 2, ROWS_MAX])
        self._rows_left -= count
        if self._rows_left < 0:
            return []
        rows = [make() for _ in range(count)]
        return rows * 2 if rows and self._dice.random() < 0.1 else rows

    def _scalar(self, row: Field) -> Any:
        dice, name = self._dice, row.python_name
        match row.element_type:
            case "string":
                return dice.choice(self._texts(name))
            case "uuid":
                safe = {} if self._changing else dict(self._world.topic_ids)
                return dice.choice([*safe.values(), bytes(16), dice.randbytes(16)])
            case "records":
                return hostile_batches(dice)
            case "bytes":
                return dice.randbytes(dice.choice([0, 1, 4, 30]))
            case "bool":
                return dice.random() < 0.5
            case "float64":
                return dice.choice([0.0, -1.0, 1e300, float("inf"), float("nan"), 0.5])
        return self._number(name, row.element_type)

    def _texts(self, name: str) -> tuple[str, ...]:
        if "group" in name or name == "key" or "coordinator" in name:
            return GROUPS
        if "member" in name or name == "leader" or "instance" in name:
            return tuple(self._world.members)
        if "topic" in name or name in ("name", "resource_name"):
            safe = () if self._changing else SAFE_TOPICS * 3
            return (*safe, VICTIM, *OTHER_TOPICS, *CONFIGS)
        return (*TEXTS, *CONFIGS)

    def _number(self, name: str, kind: str) -> int:
        if name.endswith("_ms") and self._dice.random() < 0.8:
            return (
                self._dice.choice(TIMES_MS)
                if kind == "int32"
                else self._dice.choice([-1, 0, 10**12])
            )
        if "partition" in name or name in ("index", "count", "num_partitions"):
            return self._dice.choice([0, 0, 0, 1, -1, 7, self._limit(kind)])
        if name == "replication_factor":
            return self._dice.choice([-1, 0, 1, 1, 2])
        if name == "resource_type":
            return self._dice.choice([2, 2, 2, 0, 8, 32, 127])
        if kind.startswith("u"):
            return self._dice.choice([0, 1, (1 << self._bits(kind)) - 1])
        limit = self._limit(kind)
        return self._dice.choice(
            [0, 0, 1, -1, 2, 5, -2, limit, -limit - 1, self._dice.randint(-limit, limit)]
        )

    def _limit(self, kind: str) -> int:
        return (1 << (self._bits(kind) - 1)) - 1

    @staticmethod
    def _bits(kind: str) -> int:
        return 8 * FIXED_BYTES[FIXED_FORMATS[kind]]
