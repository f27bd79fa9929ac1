"""An answer as plain data in which two brokers that behave the same are equal.

What a broker chooses itself (ids, its ports and directories, the time) is replaced by a name: the kind of the value and the
number of its first appearance within the case. So it still shows whether two fields hold the same id. Texts for people are the
broker's own, too; whether there is one is compared, and where a case wants it every word (`error_message_words`). All else stays as it is.
"""

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from logfleet.records.batch import iterate_headers
from logfleet.records.errors import RecordsError
from logfleet.records.record import read_records
from logfleet.wire.apis import API_BY_KEY
from logfleet.wire.schema import load_table
from logfleet.wire.uuids import to_text

ZERO_UUID: Final = bytes(16)
CLOSED: Final = "<connection closed>"
NO_ANSWER: Final = "<no answer>"
UUID_TEXT: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TIME: Final = re.compile(r"-?\b\d{13,19}\b")
_OBJECT: Final = re.compile(r"@[0-9a-f]+")
TEXTS: Final = {"error_message", "batch_index_error_message", "documentation"}
TIMES: Final = {
    "timestamp",
    "log_append_time_ms",
    "max_timestamp",
    "base_timestamp",
    "last_timestamp",
    "transaction_start_time_ms",
}
ORDERS: Final = {"transaction_states": "transactional_id", "active_producers": "producer_id"}
"""Rows with producers that may be new: those are numbered in this order, not in that of Kafka's hash tables."""
ABORTED: Final = "aborted_transactions"
DISKS: Final = {"total_bytes", "usable_bytes"}
SETS: Final = {
    "isr_nodes",
    "eligible_leader_replicas",
    "last_known_elr",
    "offline_replicas",
    "partitions",
}
"""Numbers in an order that says nothing. Of replicas the first is preferred."""
OF_CASES: Final = ("name", "topic", "topic_name", "group_id", "resource_name", "transactional_id")
OTHER_CASES: Final = "oracle-"
"""What the names of everything that a case makes begin with; what other cases have made is left out of its answers."""


@dataclass
class Names:
    """What one broker's own values are called during one case.

    known: value -> name, from the start. now_from_ms: a time from then on is "now". prefix: of what this case makes.
    exact_texts: texts for people are compared word by word. fixed: topic ids that are not called after a topic.
    """

    prefix: str = ""
    now_from_ms: int = 2**63
    exact_texts: bool = False
    fixed: set[bytes] = field(default_factory=set)
    known: dict[object, str] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)

    def name(self, kind: str, value: object) -> str:
        """The name of a value, a new one if it has none yet."""
        if value not in self.known:
            number = self._counts[kind] = self._counts.get(kind, 0) + 1
            self.known[value] = f"<{kind} {number}>"
        return self.known[value]

    def text(self, value: str) -> str:
        """A text with the ids in it named."""
        for known, name in self.known.items():
            if isinstance(known, str) and len(known) > 2:
                value = value.replace(known, name)
        return UUID_TEXT.sub(lambda found: self.name("uuid", found.group()), value)

    def is_of_another_case(self, row: object) -> bool:
        if not isinstance(row, msgspec.Struct):
            return isinstance(row, str) and self._foreign(row)
        return any(
            isinstance(value := getattr(row, each, None), str) and self._foreign(value)
            for each in OF_CASES
        )

    def _foreign(self, value: str) -> bool:
        return value.startswith(OTHER_CASES) and not value.startswith(self.prefix)


def plain(answer: msgspec.Struct, version: int, names: Names) -> dict[str, Any]:
    """The answer's fields of that version as dicts, lists and scalars. Learns the ids that stand beside names."""
    schema = load_table()[type(answer).__name__]

    def struct(value: msgspec.Struct, fields: tuple[Any, ...]) -> dict[str, Any]:
        _learn(value, names)
        found = {
            each.python_name: one(each, getattr(value, each.python_name))
            for each in fields
            if each.exists(version)
        }
        if found.get("error_code") and getattr(value, "producer_id", None) == 0:
            found["producer_id"] = 0  # of nobody
        if found.get(ABORTED):
            found[ABORTED] = _overlapping(found)
        if names.exact_texts:
            texts = {name: getattr(value, name) for name in TEXTS & found.keys()}
            found |= {f"{name}_words": _words(text, names) for name, text in texts.items() if text}
        return found

    def one(each: Any, value: Any) -> Any:
        if value is None:
            return None
        if each.is_array:
            rows = [row for row in value if not names.is_of_another_case(row)]
            if each.python_name in SETS and each.struct_name is None:
                rows.sort()
            if each.python_name in ORDERS:
                rows.sort(key=operator.attrgetter(ORDERS[each.python_name]))
            return [element(each, row) for row in rows]
        return element(each, value)

    def element(each: Any, value: Any) -> Any:
        if each.struct_name is not None:
            return struct(value, schema.structs[each.struct_name])
        if each.element_type == "records":
            return batches(bytes(value), names)
        return _scalar(each.python_name, value, names)

    return struct(answer, schema.fields)


def _learn(value: msgspec.Struct, names: Names) -> None:
    """A topic's id is called after its topic wherever one answer has told both."""
    topic_id = getattr(value, "topic_id", ZERO_UUID)
    name = getattr(value, "name", None) or getattr(value, "topic", None)
    if topic_id != ZERO_UUID and name and topic_id not in names.fixed:
        names.known[topic_id] = f"<id of {name}>"
        names.known[to_text(topic_id)] = f"<id of {name}>"


def _overlapping(partition: dict[str, Any]) -> list[dict[str, Any]]:
    """The aborted transactions that begin before the end of the records beside them.

    Kafka's list reaches to the next entry of its offset index.
    """
    batches = partition["records"] or []
    end = max((each["base_offset"] + each["last_offset_delta"] + 1 for each in batches), default=0)
    return [each for each in partition[ABORTED] if each["first_offset"] < end]


def _words(text: str, names: Names) -> str:
    """A text without what differs between runs: times, and addresses of Java's objects."""
    return names.text(_OBJECT.sub("@", _TIME.sub("TIME", text)))


def _scalar(name: str, value: Any, names: Names) -> Any:
    rule = _RULES.get(name)
    if rule is not None:
        return rule(value, names)
    if name in TEXTS:
        return "<text>"
    if name in DISKS:
        return "<size of the disk>" if value >= 0 else value
    if name in TIMES:
        return "<now>" if value >= names.now_from_ms and value < 2**62 else value
    if isinstance(value, str):
        return names.text(value)
    if isinstance(value, bytes | bytearray | memoryview):
        held = bytes(value)
        return names.known.get(held) or names.text(held.decode("latin-1"))
    return value


def _numbered(kind: str) -> Callable[[Any, Names], Any]:
    """A rule for ids: 0, negative and empty ones mean that there is none."""

    def rule(value: Any, names: Names) -> Any:
        if isinstance(value, int):
            return names.name(kind, (kind, value)) if value > 0 else value
        return names.name(kind, value) if value and value != ZERO_UUID else value

    return rule


def _producer(value: int, names: Names) -> Any:
    return names.name("producer", ("producer", value)) if value >= 0 else value


_RULES: Mapping[str, Callable[[Any, Names], Any]] = {
    "port": _numbered("port"),
    "controller_id": _numbered("controller"),
    "cluster_id": _numbered("cluster"),
    "topic_id": _numbered("topic"),
    "session_id": _numbered("session"),
    "log_dir": _numbered("directory"),
    "producer_id": _producer,
    "api_key": lambda value, _: API_BY_KEY[value].name,
    "finalized_features_epoch": lambda value, _: "<epoch>" if value >= 0 else value,
}


def batches(records: bytes, names: Names) -> list[dict[str, Any]]:
    """What a fetch returned, batch by batch. A batch cut off at the end is left out, as clients do (KIP-74)."""
    found = []
    for position, header in iterate_headers(records):
        try:
            inside: Any = [_record(each, names) for each in read_records(records, position)]
        except RecordsError as error:
            inside = f"<{type(error).__name__}>"
        found.append(
            {
                "base_offset": header.base_offset,
                "leader_epoch": header.leader_epoch,
                "attributes": header.attributes,
                "last_offset_delta": header.last_offset_delta,
                "base_timestamp": _scalar("base_timestamp", header.base_timestamp, names),
                "max_timestamp": _scalar("max_timestamp", header.max_timestamp, names),
                "producer_id": _producer(header.producer_id, names),
                "producer_epoch": header.producer_epoch,
                "base_sequence": header.base_sequence,
                "size": header.size,
                "records": inside,
            }
        )
    return found


def _record(record: Any, names: Names) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp": _scalar("timestamp", record.timestamp, names),
        "key": record.key,
        "value": record.value,
        "headers": [list(header) for header in record.headers],
    }
