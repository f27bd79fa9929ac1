"""The schema table (`table/messages.json`) as data, and what a field means in a version.

`broker_image/tools/wire_table.py` makes the table from Kafka's own message schemas; their meaning
is described in Kafka's clients/src/main/resources/common/message/README.md and KIP-482 (flexible
versions, tagged fields).
"""

import re
from functools import cache
from pathlib import Path

import msgspec

VERSION_MAX = 32767
ZERO_UUID = bytes(16)

# struct format of each fixed-width type, big-endian
FIXED_FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
FIXED_BYTES = {
    "?": 1, "b": 1, "B": 1, "x": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "d": 8, "16s": 16,
}  # fmt: skip
_IMPLICIT_DEFAULTS: dict[str, object] = {
    "bool": False,
    "float64": 0.0,
    "uuid": ZERO_UUID,
    "string": "",
    "bytes": b"",
    "records": None,
}


class Field(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row of the table; a key that is left out has the usual value."""

    name: str
    type: str
    versions: str = "0+"
    tagged: str = "none"
    tag: int | None = None
    nullable: str = "none"
    flexible: str | None = None
    default: bool | int | str | msgspec.UnsetType | None = msgspec.UNSET
    ignorable: bool = False

    @property
    def python_name(self) -> str:
        """`topicId` and `TopicId` are `topic_id` in Python."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", self.name).lower()

    @property
    def is_array(self) -> bool:
        return self.type.startswith("[]")

    @property
    def element_type(self) -> str:
        return self.type.removeprefix("[]")

    @property
    def struct_name(self) -> str | None:
        """Name of the nested struct that is the type of the field or of its elements."""
        return self.element_type if self.element_type[0].isupper() else None

    @property
    def is_struct(self) -> bool:
        return not self.is_array and self.struct_name is not None

    @property
    def ever_tagged(self) -> bool:
        return self.tag is not None

    def exists(self, version: int) -> bool:
        return within(self.versions, version)

    def is_tagged(self, version: int) -> bool:
        return within(self.tagged, version)

    def is_nullable(self, version: int) -> bool:
        return within(self.nullable, version)

    def scalar_default(self) -> object:
        """The default, None if it is a list or a struct (see messages.py)."""
        if self.default is not msgspec.UNSET:
            # null is the only explicit default that a bytes field has
            return self.default
        if self.is_array or self.is_struct:
            return None
        return _IMPLICIT_DEFAULTS.get(self.type, 0)


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Schema of one message; `versions` is inclusive at both ends."""

    kind: str
    versions: tuple[int, int]
    fields: tuple[Field, ...]
    key: int | None = None
    flexible: int = VERSION_MAX + 1
    structs: dict[str, tuple[Field, ...]] = {}
    advertised: bool = False
    advertised_from: int | None = None

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible


@cache
def _span(versions: str) -> tuple[int, int]:
    if versions == "none":
        return (1, 0)
    if versions.endswith("+"):
        return (int(versions[:-1]), VERSION_MAX)
    low, _, high = versions.partition("-")
    return (int(low), int(high or low))


def within(versions: str, version: int) -> bool:
    """True if `version` lies in a range of the schemas: "0+", "3-5", "2" or "none"."""
    low, high = _span(versions)
    return low <= version <= high


@cache
def load_table() -> dict[str, Message]:
    """All messages by name; 100 KB of JSON, about a millisecond."""
    text = (Path(__file__).parent / "table" / "messages.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, Message])
