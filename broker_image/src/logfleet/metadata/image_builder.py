"""Builds cluster images from the revisions of the store's watch.

A new image rebuilds only what the revisions changed: a topic whose partition changed, never all
topics. `logfleet.metadata.kinds` has the rules of each kind of key.
"""

import msgspec

from logfleet.metadata.image import FIELDS, ClusterImage
from logfleet.metadata.image_draft import Changes, ImageDraft
from logfleet.metadata.registry import KINDS, Kinds
from logfleet.metadata.store import Event


class CorruptMetadataError(Exception):
    """A key has a value that no version of Logfleet writes. The message names the key."""


class ImageBuilder:
    """Applies events to an image.

    `add` each event of a revision, or each item of a snapshot, then `build`.

    base: the previous image; an empty image before a snapshot. kinds: what the store may hold;
    other keys (of other versions, of tools) are ignored.
    """

    def __init__(self, base: ClusterImage, kinds: Kinds = KINDS) -> None:
        self._base = base
        self._kinds = kinds
        self._draft = ImageDraft(base)

    def add(self, event: Event) -> None:
        """Apply one key's new state. Raises CorruptMetadataError."""
        kind = self._kinds.of(event.key)
        if kind is not None:
            try:
                kind.follow(self._draft, event)
            except ValueError as error:
                raise CorruptMetadataError(f"{event.key}: {error}") from error

    def build(self, revision: int) -> tuple[ClusterImage, Changes]:
        """The image at `revision`, and what may differ from the previous one."""
        replaced = self._draft.finish()
        if not replaced.keys() <= FIELDS:
            others = {name: replaced.pop(name) for name in replaced.keys() - FIELDS}
            replaced["parts"] = {**self._base.parts, **others}
        image = msgspec.structs.replace(self._base, revision=revision, **replaced)
        return image, self._draft.changes


__all__ = ["Changes", "CorruptMetadataError", "ImageBuilder"]
