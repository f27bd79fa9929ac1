import pytest
from logfleet.coordinators.records import UnknownRecord
from logfleet.transactions.records import TransactionRecord, decode, encode
from logfleet.transactions.state import State, TopicPartition, Transaction
from logfleet.types import ProducerEpoch
from logfleet.wire.errors import MalformedMessage

KEY = b"\0\0\0\x02tx"

# Written out by hand from the schemas of Kafka's TransactionLogKey and TransactionLogValue.
GOLDEN: list[tuple[str, Transaction, bytes]] = [
    (
        "an id without a transaction",
        Transaction(7, ProducerEpoch(0), 60_000, State.EMPTY, 9, previous_producer_id=7),
        b"\0\x01\0\0\0\0\0\0\0\x07\0\0\0\0\xea\x60\0\0\0\0\0\0\0\0\0\x09"
        + b"\xff" * 8
        + b"\x01\0\x08\0\0\0\0\0\0\0\x07",
    ),
    (
        "a commit that uses up the producer id",
        Transaction(
            7,
            ProducerEpoch(32767),
            60_000,
            State.PREPARE_COMMIT,
            9,
            partitions=frozenset(
                {TopicPartition("t", 3), TopicPartition("s", 1), TopicPartition("t", 0)}
            ),
            start_ms=5,
            previous_producer_id=6,
            next_producer_id=8,
            client_version=2,
        ),
        bytes.fromhex(
            "0001 0000000000000007 7fff 0000ea60 02"
            "03 0273 02 00000001 00 0274 03 00000000 00000003 00"
            "0000000000000009 0000000000000005"
            "03 00 08 0000000000000006 01 08 0000000000000008 02 02 0002"
        ),
    ),
    (
        "a complete transaction",
        Transaction(7, ProducerEpoch(1), 60_000, State.COMPLETE_ABORT, 9, start_ms=5),
        b"\0\x01\0\0\0\0\0\0\0\x07\0\x01\0\0\xea\x60\x05\x01\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\x05\0",
    ),
]


@pytest.mark.parametrize(
    "transaction,value", [row[1:] for row in GOLDEN], ids=[row[0] for row in GOLDEN]
)
def test_a_record_is_what_kafka_writes(transaction, value):
    record = TransactionRecord("tx", transaction)

    assert encode(record) == (KEY, value)
    assert decode(memoryview(KEY), memoryview(value)) == record


def test_a_tombstone_forgets_the_id():
    record = TransactionRecord("tx", None)

    assert encode(record) == (KEY, None)
    assert decode(memoryview(KEY), None) == record


def test_a_record_of_the_first_version_is_read():
    value = (
        b"\0\0\0\0\0\0\0\0\0\x07\0\x03\0\0\xea\x60\x01"
        b"\0\0\0\x01\0\x01t\0\0\0\x01\0\0\0\x02"
        b"\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\x05"
    )

    assert decode(memoryview(KEY), memoryview(value)).transaction == Transaction(
        7,
        ProducerEpoch(3),
        60_000,
        State.ONGOING,
        9,
        partitions=frozenset({TopicPartition("t", 2)}),
        start_ms=5,
    )


def test_the_epoch_before_is_not_in_the_log():
    transaction = Transaction(7, ProducerEpoch(3), 1, State.EMPTY, 9, last_epoch=ProducerEpoch(2))

    _, value = encode(TransactionRecord("tx", transaction))

    assert value is not None
    decoded = decode(memoryview(KEY), memoryview(value)).transaction
    assert decoded is not None
    assert decoded.last_epoch == -1


@pytest.mark.parametrize(
    "key,value",
    [(b"\0\x01\0\x02tx", None), (KEY, b"\0\x02")],
    ids=["another kind of key", "a newer value"],
)
def test_a_record_of_a_newer_broker_is_unknown(key, value):
    with pytest.raises(UnknownRecord):
        decode(memoryview(key), None if value is None else memoryview(value))


@pytest.mark.parametrize(
    "key,value",
    [
        (b"\0", None),
        (b"\0\0\0\x05tx", None),
        (KEY, b"\0"),
        (KEY, GOLDEN[0][2][:20]),
        (KEY, GOLDEN[0][2][:16] + b"\x06" + GOLDEN[0][2][17:]),
    ],
    ids=["no version", "short id", "no value version", "short value", "Dead"],
)
def test_invalid_bytes_are_malformed(key, value):
    with pytest.raises(MalformedMessage):
        decode(memoryview(key), None if value is None else memoryview(value))
