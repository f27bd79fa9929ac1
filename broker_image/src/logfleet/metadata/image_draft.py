"""An image while it is being built, and what may differ between two images.

An image consists of parts. A kind of the store (`logfleet.metadata.kind`) changes parts through a
draft: it replaces a part, changes its own copy of a mapping, or collects changes in a section.
Parts that no kind touches are shared with the previous image.
"""

from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

import msgspec

T = TypeVar("T")
I = TypeVar("I")  # noqa: E741  the type of an index
E = TypeVar("E")
S = TypeVar("S", bound="Section")


class Changes(msgspec.Struct):
    """What may differ between two images. everything: a snapshot came, so anything may differ.

    topics: ids of topics that were created, changed or deleted. parts: what else was changed, by
    the names in `Kind.notifies`.
    """

    everything: bool = False
    topics: set[bytes] = msgspec.field(default_factory=set)
    parts: set[str] = msgspec.field(default_factory=set)

    def add(self, later: "Changes") -> None:
        self.everything |= later.everything
        self.topics |= later.topics
        self.parts |= later.parts

    @property
    def brokers(self) -> bool:
        """Whether registrations, fences or suspects may differ."""
        return "brokers" in self.parts

    @property
    def broker_configs(self) -> bool:
        return "broker_configs" in self.parts

    @property
    def deleted(self) -> bool:
        """Whether deleted topics may differ."""
        return "deleted" in self.parts

    @property
    def controller(self) -> bool:
        return "controller" in self.parts

    @property
    def quotas(self) -> bool:
        return "quotas" in self.parts


class Image(Protocol):
    """What has parts: a ClusterImage."""

    def part(self, name: str, empty: T) -> T:
        """The part of that name; `empty` if the image has none."""


class Part(Generic[T]):
    """One part of an image: a field of ClusterImage or, if it has no such field, one of `parts`.

    empty: the part of an image of an empty store.
    """

    __slots__ = ("empty", "name")

    def __init__(self, name: str, empty: T) -> None:
        self.name = name
        self.empty = empty

    def of(self, image: Image) -> T:
        return image.part(self.name, self.empty)


class Section(Protocol):
    """Collects changes that several keys make to the same parts."""

    def finish(self, draft: "ImageDraft") -> None:
        """All keys were read: replace the parts."""


class ImageDraft:
    """base: the previous image, which does not change. changes: what may differ from it."""

    def __init__(self, base: Image) -> None:
        self.base = base
        self.changes = Changes()
        self._replaced: dict[str, Any] = {}
        self._owned: dict[str, dict[Any, Any]] = {}
        self._sections: dict[Callable[[Image], Section], Section] = {}

    def get(self, part: Part[T]) -> T:
        """The part as it is now."""
        if part.name in self._replaced:
            now: T = self._replaced[part.name]
            return now
        return part.of(self.base)

    def set(self, part: Part[T], value: T) -> None:
        self._replaced[part.name] = value

    def own(self, part: Part[Mapping[I, E]]) -> dict[I, E]:
        """The mapping to change: a copy of the previous image's."""
        owned = self._owned.get(part.name)
        if owned is None:
            owned = self._owned[part.name] = dict(part.of(self.base))
            self._replaced[part.name] = owned
        return owned

    def section(self, make: Callable[[Image], S]) -> S:
        """The draft's section of this class, made from the previous image at the first call."""
        made: Any = self._sections.get(make)
        if made is None:
            made = self._sections[make] = make(self.base)
        section: S = made
        return section

    def finish(self) -> dict[str, Any]:
        """The parts that were replaced, by name. Called once, after the last change."""
        for section in self._sections.values():
            section.finish(self)
        return self._replaced
