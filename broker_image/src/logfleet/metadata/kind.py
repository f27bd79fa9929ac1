"""A kind of key in the metadata store: one declaration has everything that the code knows of it.

    USER: Final = Kind(
        "user/NAME",
        TEXT,
        json_of(UserValue),
        image=Rows(USERS, lambda name, value, item: User(name, value.digest, item.mod_revision)),
        notifies="users",
    )

That gives the keys (`USER.key`), the values (`USER.encode`, `USER.decode`), the writes (`USER.put`,
`USER.change` ...), the part of the image (`USERS.of(image)`), the changes that subscribers see
(`"users" in changes.parts`) and what snapshot files do with it. `logfleet.metadata.kinds` has a
module per noun; `logfleet.metadata.registry` lists the kinds.

Values are JSON, so that a person with etcdctl can read them. Versions can be mixed: a version
ignores keys and fields that it does not have, and a field of a later version has a default.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from logfleet.metadata.image_draft import ImageDraft, Part
from logfleet.metadata.packing import Step
from logfleet.metadata.store import Delete, Event, KeyValue, Put, modified_at
from logfleet.wire import uuids

K = TypeVar("K")
V = TypeVar("V")
K_contra = TypeVar("K_contra", contravariant=True)
V_contra = TypeVar("V_contra", contravariant=True)
E = TypeVar("E")
A = TypeVar("A")
B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class KeyForm(Generic[K]):
    """The rest of a key after the prefix of its kind. parse: inverse of text; raises ValueError."""

    text: Callable[[K], str]
    parse: Callable[[str], K]


def _nothing(rest: str) -> None:
    assert not rest


ONLY: Final[KeyForm[None]] = KeyForm(lambda _: "", _nothing)
"""Of a kind that has one key."""
TEXT: Final[KeyForm[str]] = KeyForm(str, str)
NUMBER: Final[KeyForm[int]] = KeyForm(str, int)
UUID: Final[KeyForm[bytes]] = KeyForm(uuids.to_text, uuids.from_text)
"""Kafka's text form of 16 bytes."""


def pair(one: KeyForm[A], other: KeyForm[B]) -> KeyForm[tuple[A, B]]:
    """Two parts with a slash between them."""

    def text(key: tuple[A, B]) -> str:
        return f"{one.text(key[0])}/{other.text(key[1])}"

    def parse(rest: str) -> tuple[A, B]:
        first, _, second = rest.partition("/")
        return one.parse(first), other.parse(second)

    return KeyForm(text, parse)


@dataclass(frozen=True, slots=True)
class Format(Generic[V]):
    """The bytes of a value. decode: raises ValueError."""

    encode: Callable[[V], bytes]
    decode: Callable[[bytes], V]


_ENCODER: Final = msgspec.json.Encoder()


def json_of(type_: type[V]) -> Format[V]:
    return Format(_ENCODER.encode, msgspec.json.Decoder(type_).decode)


PLAIN: Final[Format[str]] = Format(str.encode, bytes.decode)
"""Text as it is."""
RAW: Final[Format[bytes]] = Format(bytes, bytes)


class ImageRule(Protocol[K_contra, V_contra]):
    """How the keys of a kind change an image."""

    def put(self, draft: ImageDraft, key: K_contra, value: V_contra, item: KeyValue, /) -> None: ...

    def remove(self, draft: ImageDraft, key: K_contra, /) -> None: ...


class Rows(Generic[K, V, E]):
    """Each key is a row in a mapping of the image. row: its value there."""

    __slots__ = ("part", "row")

    def __init__(self, part: Part[Mapping[K, E]], row: Callable[[K, V, KeyValue], E]) -> None:
        self.part = part
        self.row = row

    def put(self, draft: ImageDraft, key: K, value: V, item: KeyValue, /) -> None:
        draft.own(self.part)[key] = self.row(key, value, item)

    def remove(self, draft: ImageDraft, key: K, /) -> None:
        draft.own(self.part).pop(key, None)


class Single(Generic[V, E]):
    """The only key of the kind is a part of the image. row: that part."""

    __slots__ = ("part", "row")

    def __init__(self, part: Part[E], row: Callable[[V, KeyValue], E]) -> None:
        self.part = part
        self.row = row

    def put(self, draft: ImageDraft, _key: None, value: V, item: KeyValue, /) -> None:
        draft.set(self.part, self.row(value, item))

    def remove(self, draft: ImageDraft, _key: None, /) -> None:
        draft.set(self.part, self.part.empty)


@dataclass(frozen=True, slots=True)
class SnapshotRule(Generic[V]):
    """What `logfleet.metadata.snapshot_file` does with the keys of a kind.

    is_kept: snapshots have them, unless they have a lease. restored: the value to restore instead
    of the one in the snapshot. otherwise: the value to restore if the snapshot lacks the kind's
    only key. is_last: restored after all other keys.
    """

    is_kept: bool = True
    restored: Callable[[V], V] | None = None
    otherwise: V | None = None
    is_last: bool = False


KEPT: Final[SnapshotRule[Any]] = SnapshotRule()
LEFT_OUT: Final[SnapshotRule[Any]] = SnapshotRule(is_kept=False)


@dataclass(frozen=True, eq=False, slots=True)
class Kind(Generic[K, V]):
    """K: what a key names. V: the values.

    pattern: a key, with a word in capitals for each part that differs, as in `part/UUID/INDEX`.
    image: how the keys change the image; None if they are no part of it. notifies: the name that is
    added to `Changes.parts` when a key changes; empty if no subscriber acts on it.
    """

    pattern: str
    form: KeyForm[K]
    format: Format[V]
    image: ImageRule[K, V] | None = None
    notifies: str = ""
    snapshot: SnapshotRule[V] = KEPT
    prefix: str = field(init=False)
    is_single: bool = field(init=False)
    """Whether the kind has one key: its prefix."""

    def __post_init__(self) -> None:
        found = re.match(r"[a-z/]+", self.pattern)
        assert found is not None, self.pattern
        object.__setattr__(self, "prefix", found.group())
        object.__setattr__(self, "is_single", found.group() == self.pattern)

    # -- keys and values

    def key(self, key: K) -> str:
        return self.prefix + self.form.text(key)

    def parse(self, key: str) -> K:
        """What a key of this kind names. Raises ValueError."""
        return self.form.parse(key[len(self.prefix) :])

    def encode(self, value: V) -> bytes:
        return self.format.encode(value)

    def decode(self, value: bytes) -> V:
        """Raises ValueError."""
        return self.format.decode(value)

    # -- writes

    def put(self, key: K, value: V, lease: int = 0) -> Put:
        return Put(self.key(key), self.encode(value), lease)

    def delete(self, key: K) -> Delete:
        return Delete(self.key(key))

    def change(self, key: K, value: V | None, revision: int) -> Step:
        """Write the value, or delete the key if it is None; if the key is unchanged since then.

        revision: of the key's last write, 0 if it is absent.
        """
        write = self.delete(key) if value is None else self.put(key, value)
        return Step(write, (modified_at(write.key, revision),))

    # -- images and snapshots

    def follow(self, draft: ImageDraft, event: Event) -> None:
        """Apply the new state of one key of this kind to a draft. Raises ValueError."""
        if self.image is None:
            return
        key = self.form.parse(event.key[len(self.prefix) :])
        if isinstance(event, KeyValue):
            self.image.put(draft, key, self.format.decode(event.value), event)
        else:
            self.image.remove(draft, key)
        if self.notifies:
            draft.changes.parts.add(self.notifies)

    def restored(self, value: bytes) -> bytes:
        """The bytes that are restored in place of a snapshot's."""
        if self.snapshot.restored is None:
            return value
        return self.encode(self.snapshot.restored(self.decode(value)))
