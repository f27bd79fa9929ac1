"""A kind of its own, declared here: one declaration gives keys, values, image, snapshots and writes."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import pytest
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.image_builder import Changes, CorruptMetadataError, ImageBuilder
from logfleet.metadata.image_draft import Part
from logfleet.metadata.keyspace import Keyspace
from logfleet.metadata.kind import NUMBER, TEXT, Kind, Rows, SnapshotRule, json_of, pair
from logfleet.metadata.packing import pack_steps
from logfleet.metadata.registry import KINDS, Kinds
from logfleet.metadata.snapshot_file import decode, encode, restored
from logfleet.metadata.store import Delete, KeyValue, Operation, Put, Txn, modified_at


class UserValue(msgspec.Struct, frozen=True, omit_defaults=True):
    salt: str
    rounds: int = 4096


class User(msgspec.Struct, frozen=True):
    name: str
    rounds: int
    revision: int


def doubled(value: UserValue) -> UserValue:
    return msgspec.structs.replace(value, rounds=value.rounds * 2)


def row(name: str, value: UserValue, item: KeyValue) -> User:
    return User(name, value.rounds, item.mod_revision)


USERS: Final = Part[Mapping[str, User]]("users", {})
USER: Final = Kind(
    "user/NAME",
    TEXT,
    json_of(UserValue),
    image=Rows(USERS, row),
    notifies="users",
    snapshot=SnapshotRule(restored=doubled),
)
WITH_USERS: Final = Kinds((*KINDS, USER))


class Cluster:
    """A store's keyspace, and the image that follows it."""

    def __init__(self) -> None:
        self.keyspace = Keyspace()
        self.image = ClusterImage()
        self.changes = Changes()

    def commit(self, txn: Txn, kinds: Kinds = WITH_USERS) -> bool:
        result, batch = self.keyspace.evaluate(txn)
        if batch is not None:
            self.keyspace.apply(batch)
            builder = ImageBuilder(self.image, kinds)
            for event in batch.events:
                builder.add(event)
            self.image, self.changes = builder.build(batch.revision)
        return result.succeeded

    def write(self, *operations: Operation) -> None:
        assert self.commit(Txn(success=operations))


def test_its_keys_and_values_come_from_the_declaration():
    assert USER.key("alice") == "user/alice"
    assert USER.parse("user/alice") == "alice"
    assert USER.encode(UserValue("x")) == b'{"salt":"x"}'
    assert USER.decode(b'{"salt":"x","of":"a later version"}') == UserValue("x")
    assert WITH_USERS.of("user/alice") is USER
    assert KINDS.of("user/alice") is None


def test_its_writes_change_its_part_of_the_image_and_are_seen_by_its_name():
    cluster = Cluster()
    assert USERS.of(cluster.image) == {}
    cluster.write(USER.put("alice", UserValue("x")))
    assert USERS.of(cluster.image) == {"alice": User("alice", 4096, 2)}
    assert cluster.changes == Changes(parts={"users"})
    before = cluster.image
    cluster.write(USER.put("bob", UserValue("y", 1)))
    assert set(USERS.of(cluster.image)) == {"alice", "bob"}
    assert set(USERS.of(before)) == {"alice"}, "an image does not change"
    cluster.write(USER.delete("alice"))
    assert set(USERS.of(cluster.image)) == {"bob"}


def test_a_change_is_made_only_if_the_key_is_as_it_was_seen():
    cluster = Cluster()
    cluster.write(USER.put("alice", UserValue("x")))
    seen = USERS.of(cluster.image)["alice"]
    stronger = USER.change("alice", UserValue("x", 8192), seen.revision)
    assert stronger.compares == (modified_at("user/alice", 2),)
    (txn,) = pack_steps([stronger], first=(), rest=())
    assert cluster.commit(txn)
    assert USERS.of(cluster.image)["alice"].rounds == 8192
    assert not cluster.commit(txn), "it is of an older revision"
    gone = USER.change("alice", None, 3)
    assert isinstance(gone.write, Delete)
    assert cluster.commit(Txn(gone.compares, (gone.write,)))
    assert USERS.of(cluster.image) == {}


def test_a_snapshot_has_it_and_its_rule_restores_it():
    cluster = Cluster()
    cluster.write(USER.put("alice", UserValue("x")), Put("of/a/tool", b"?"))
    _, items = decode(encode("fleet", cluster.keyspace.range(""), "now", WITH_USERS))
    assert items == {"user/alice": b'{"salt":"x"}', "of/a/tool": b"?"}
    again = Cluster()
    again.write(*restored(items, WITH_USERS))
    assert USERS.of(again.image)["alice"].rounds == 8192
    assert again.keyspace.get("of/a/tool") is not None


def test_a_version_without_the_kind_leaves_its_keys_alone():
    cluster = Cluster()
    cluster.commit(Txn(success=(USER.put("alice", UserValue("x")),)), KINDS)
    assert cluster.image == ClusterImage(revision=2)
    assert cluster.changes == Changes()
    _, items = decode(encode("fleet", cluster.keyspace.range(""), "now"))
    assert {put.key: put.value for put in restored(items)}["user/alice"] == b'{"salt":"x"}'


def test_a_value_that_it_cannot_read_is_an_error_that_names_the_key():
    with pytest.raises(CorruptMetadataError, match="user/alice"):
        Cluster().write(Put("user/alice", b"{}"))


def test_a_kind_may_be_left_out_of_snapshots_and_of_images():
    hint: Kind[tuple[int, str], dict[str, str]] = Kind(
        "hint/ID/NAME",
        pair(NUMBER, TEXT),
        json_of(dict[str, str]),
        snapshot=SnapshotRule(is_kept=False),
    )
    kinds = Kinds((*KINDS, hint))
    cluster = Cluster()
    put = hint.put((3, "a/b"), {"c": "d"}, lease=0)
    assert (put.key, hint.parse(put.key)) == ("hint/3/a/b", (3, "a/b"))
    cluster.commit(Txn(success=(put,)), kinds)
    assert cluster.image == ClusterImage(revision=2)
    assert decode(encode("fleet", cluster.keyspace.range(""), "now", kinds))[1] == {}


@pytest.mark.parametrize("pattern", ["user/NAME", "user/x/NAME", "broker/ID", "features"])
def test_no_key_may_belong_to_two_kinds(pattern: str):
    other: Kind[Any, Any] = Kind(pattern, TEXT, json_of(dict))
    with pytest.raises(AssertionError, match=pattern):
        Kinds((*WITH_USERS, other))
