"""The record of a classic group."""

from dataclasses import dataclass
from typing import Final

from logfleet.groups.records import GroupRecord, RecordType
from logfleet.wire.messages import GroupMetadataKey, GroupMetadataValue

GROUP_METADATA_KEY = 2
GROUP_METADATA_VERSION = 3


@dataclass(frozen=True, slots=True)
class GroupMetadataRecord(GroupRecord):
    """The members and assignments of a group's generation. value: None deletes the group."""

    key: GroupMetadataKey
    value: GroupMetadataValue | None


def _version(_value: GroupMetadataValue) -> int:
    return GROUP_METADATA_VERSION


GROUP_METADATA: Final = RecordType(
    GroupMetadataRecord,
    GroupMetadataKey,
    GroupMetadataValue,
    key_version=GROUP_METADATA_KEY,
    value_version=_version,
    value_newest=GROUP_METADATA_VERSION + 1,
)
