"""What a snapshot of the metadata store holds, and what of it is restored."""

import msgspec
import pytest
from logfleet.metadata.kinds.brokers import BROKER, DIRECTORIES, FENCE, SINCE_THEN, DirectoriesValue
from logfleet.metadata.kinds.cluster import CLUSTER_ID, CONTROLLER, RECEIPT
from logfleet.metadata.kinds.producer_ids import NEXT_PRODUCER_ID, PRODUCER_IDS_UP
from logfleet.metadata.kinds.topics import EPOCHS_UP, NO_LEADER, PARTITION, TOPIC, PartitionValue
from logfleet.metadata.snapshot_file import DamagedSnapshot, decode, encode, restored
from logfleet.metadata.store import KeyValue, Snapshot
from logfleet.types import BrokerEpoch, LeaderEpoch, PartitionEpoch

STATE = PartitionValue(
    (1, 2, 3),
    ((1, BrokerEpoch(10)), (3, BrokerEpoch(30))),
    1,
    LeaderEpoch(4),
    PartitionEpoch(9),
    2,
    elr=(2,),
    last_leader=1,
)
ITEMS = {
    CLUSTER_ID.prefix: b"abc",
    f"{PARTITION.prefix}uuid/0": PARTITION.encode(STATE),
    NEXT_PRODUCER_ID.prefix: b"3000",
    TOPIC.key("t\n"): b"\x00\xff",
}


def snapshot(items: dict[str, bytes] = ITEMS) -> Snapshot:
    bound = [
        KeyValue(BROKER.key(1), b"{}", 7, 7, 1, lease=5),
        KeyValue(FENCE.key(1), b"{}", 7, 7, 1),
        KeyValue(CONTROLLER.prefix, b"{}", 7, 7, 1, lease=5),
        KeyValue(RECEIPT.key((1, 0)), b"7/1", 8, 8, 1),
    ]
    return Snapshot(41, (*(KeyValue(key, value, 3, 7, 2) for key, value in items.items()), *bound))


def test_all_is_in_it_but_what_is_about_registrations_and_terms() -> None:
    head, items = decode(encode("fleet", snapshot(), "2026-01-01T00:00:00Z"))
    assert (head.cluster, head.revision, head.taken, head.keys) == (
        "fleet",
        41,
        "2026-01-01T00:00:00Z",
        4,
    )
    assert items == ITEMS


def test_every_broker_that_is_restored_misses_a_directory() -> None:
    key = DIRECTORIES.key(2)
    (put, _) = restored({key: DIRECTORIES.encode(DirectoriesValue(("disk",)))})
    assert put.key == key
    assert msgspec.json.decode(put.value, type=DirectoriesValue).ids == ("disk", SINCE_THEN)


@pytest.mark.parametrize("where", [0, 1, 40, -1, -20, -70, -90])
def test_one_wrong_byte_is_noticed(where: int) -> None:
    data = bytearray(encode("fleet", snapshot(), "now"))
    data[where] ^= 1
    with pytest.raises(DamagedSnapshot):
        decode(bytes(data))


def test_what_was_cut_off_anywhere_is_noticed() -> None:
    data = encode("fleet", snapshot(), "now")
    for end in range(len(data) - 1):
        with pytest.raises(DamagedSnapshot):
            decode(data[:end])


def test_another_format_is_refused() -> None:
    data = encode("fleet", snapshot(), "now").replace(b'"format":1', b'"format":2')
    with pytest.raises(DamagedSnapshot):
        decode(data)


def test_epochs_and_producer_ids_are_raised_and_nobody_is_in_sync() -> None:
    puts = list(restored(ITEMS))
    assert puts[-1].key == CLUSTER_ID.prefix, "brokers refuse to start without it"
    values = {put.key: put.value for put in puts}
    assert int(values[NEXT_PRODUCER_ID.prefix]) == 3000 + PRODUCER_IDS_UP
    state = msgspec.json.decode(values[f"{PARTITION.prefix}uuid/0"], type=PartitionValue)
    assert (state.isr, state.elr, state.leader) == ((), (1, 2, 3), NO_LEADER)
    assert state.restored, "some of them may have fallen behind since"
    assert (state.leader_epoch, state.partition_epoch) == (4 + EPOCHS_UP, 10)
    assert values[TOPIC.key("t\n")] == b"\x00\xff"


def test_producer_ids_begin_high_also_if_none_was_given_away_before_the_snapshot() -> None:
    values = {put.key: put.value for put in restored({CLUSTER_ID.prefix: b"abc"})}
    assert int(values[NEXT_PRODUCER_ID.prefix]) == PRODUCER_IDS_UP
