"""`logfleet produce` and `logfleet consume` on a real broker, each judged by another client."""

import json
from pathlib import Path

import pytest
from confluent_kafka import Message, Producer
from logfleet.testing import Broker

from e2e.harness.clients import CLIENTS, CODECS, Sent, free_of_time, kcat, run
from e2e.harness.command_line import (
    PATIENCE_S,
    refused,
    said,
    started,
)


@pytest.fixture
def broker(kafka_broker: Broker) -> Broker:
    return kafka_broker


KEYED = [Sent(b"k1", b"v1", 0), Sent(b"k2", b"v:2", 0), Sent(b"", b"", 0)]


def read_back(broker: Broker, topic: str, count: int) -> list[Sent]:
    """What confluent-kafka reads there."""
    return CLIENTS["confluent-kafka"].read(broker.bootstrap, topic, count)


def test_produce_writes_lines_with_every_codec_and_acks(one_topic: Broker) -> None:
    said(one_topic, "topic", "create", "lines", "-p", "1")
    expected = []
    for codec in CODECS:
        for acks in ("all", "1", "0"):
            text = f"{codec} {acks}\n\nno end"
            arguments = ("lines", "-z", codec, "-a", acks)
            assert said(one_topic, "produce", *arguments, stdin=text.encode()) == ""
            expected += [(None, line.encode(), ()) for line in text.split("\n")]
            # with acks=0 nobody says when the records are there
            assert free_of_time(read_back(one_topic, "lines", len(expected))) == expected


def test_produce_takes_keys_headers_nulls_and_partitions(one_topic: Broker) -> None:
    said(one_topic, "produce", "t", "-p", "1", "-K:", stdin=b"k1:v1\nk2:v:2\n:\n")
    assert free_of_time(read_back(one_topic, "t", 3)) == free_of_time(KEYED)
    (described,) = json.loads(said(one_topic, "topic", "describe", "t", "-o", "json"))
    assert [each["end"] for each in described["partitions"]] == [0, 3]

    said(one_topic, "topic", "create", "u", "-p", "1")
    options = ("-K", r"\t", "-D", "|", "--null", "-", "-H", "a=b", "-H", "c=")
    said(one_topic, "produce", "u", *options, stdin=b"k\tv\nw|k\t-|")
    headers = (("a", b"b"), ("c", b""))
    assert free_of_time(read_back(one_topic, "u", 2)) == [
        (b"k", b"v\nw", headers),
        (b"k", None, headers),
    ]

    line = (
        b'{"key": null, "value": {"base64": "/w=="}, "headers": [["h", null]], "timestamp": 17}\n'
    )
    (told,) = said(one_topic, "produce", "u", "--json", "-o", "json", stdin=line).splitlines()
    assert json.loads(told) == {"topic": "u", "partition": 0, "offset": 2, "timestamp": 17}
    assert read_back(one_topic, "u", 3)[2] == Sent(None, b"\xff", 17, (("h", None),))


def test_keys_go_where_javas_and_librdkafkas_murmur2_puts_them(broker: Broker) -> None:
    said(broker, "topic", "create", "t", "-p", "7")
    keys = [f"key-{number}" for number in range(50)]
    lines = said(
        broker,
        "produce",
        "t",
        "-K=",
        "-o",
        "json",
        stdin="".join(f"{key}=v\n" for key in keys).encode(),
    )
    ours = [json.loads(line)["partition"] for line in lines.splitlines()]
    placed: dict[bytes | None, int | None] = {}

    def delivered(_: object, message: Message) -> None:
        placed[message.key()] = message.partition()

    producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random"})
    for key in keys:
        producer.produce(
            "t",
            key=key,
            on_delivery=delivered,
        )
    assert producer.flush(PATIENCE_S) == 0
    assert ours == [placed[key.encode()] for key in keys]


def test_produce_names_the_line_that_cannot_be_written(one_topic: Broker) -> None:
    line = refused(one_topic, "produce", "t", "-K:", stdin=b"a:b\nc:d\nno key\ne:f\n")
    assert line.startswith("Error: line 3: has no ':'")
    assert len(read_back(one_topic, "t", 2)) == 2
    huge = b"x" * 2_000_000
    line = refused(one_topic, "produce", "t", "-p", "0", stdin=b"small\n" + huge + b"\nafter\n")
    assert line.startswith("Error: line 2: t-0: ")
    assert "t-9" in refused(one_topic, "produce", "t", "-p", "9", stdin=b"x\n")
    assert "topic nope: there is no such topic" in refused(one_topic, "produce", "nope")
    said(one_topic, "produce", "made", "--create", stdin=b"x\n")
    assert free_of_time(read_back(one_topic, "made", 1)) == [(None, b"x", ())]


def test_records_are_written_while_the_input_is_still_open(one_topic: Broker) -> None:
    with started(one_topic, "produce", "t", "-o", "json") as running:
        for number in range(3):
            running.give(b"%d\n" % number)
            json.loads(running.stdout.readline())
            assert len(read_back(one_topic, "t", number + 1)) == number + 1
        assert running.interrupted() == (130, "")


SOME = [
    Sent(b"k%d" % number, b"v%d" % number, 1_000_000 + number, (("h", b"%d" % number),))
    for number in range(10)
]


@pytest.fixture
def ten(broker: Broker) -> Broker:
    """With the topic t of two partitions and SOME in it, five in each, in order."""
    said(broker, "topic", "create", "t", "-p", "2", "-c", "retention.ms=-1")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number, record in enumerate(SOME):
        producer.produce(
            "t",
            partition=number % 2,
            key=record.key,
            value=record.value,
            timestamp=record.timestamp,
            headers=list(record.headers),
        )
    assert producer.flush(PATIENCE_S) == 0
    return broker


def values(text: str) -> list[int]:
    """The numbers of SOME in what was printed, sorted."""
    return sorted(int(line.removeprefix("v")) for line in text.splitlines())


def test_consume_prints_records_as_they_were_sent(ten: Broker) -> None:
    everything = ("consume", "t", "--from-beginning", "--exit-at-end")
    form = r"%t %p %o %T %k %s %h %K %S\n"
    lines = said(ten, *everything, "-f", form).splitlines()
    kcats = [kcat(), "-C", "-b", ten.bootstrap, "-t", "t", "-o", "beginning", "-e", "-q"]
    assert sorted(run([*kcats, "-f", form]).splitlines()) == sorted(lines)
    assert sorted(lines, key=lambda line: int(line.split()[3])) == [
        f"t {number % 2} {number // 2} {1_000_000 + number} k{number} v{number} h={number} 2 2"
        for number in range(10)
    ]
    assert sorted(said(ten, *everything, "-K", "=").splitlines()) == [
        f"k{number}=v{number}" for number in range(10)
    ]
    rows = [json.loads(line) for line in said(ten, *everything, "-o", "json").splitlines()]
    assert sorted(rows, key=lambda row: row["timestamp"])[9] == {
        "topic": "t",
        "partition": 1,
        "offset": 4,
        "timestamp": 1_000_009,
        "headers": [["h", "9"]],
        "key": "k9",
        "value": "v9",
    }


def test_what_is_consumed_in_json_can_be_produced_again(ten: Broker) -> None:
    said(ten, "topic", "create", "copy", "-p", "2")
    odd = Sent(b"\xff", None, 2_000_000, (("", b""), ("ü", None)))
    CLIENTS["confluent-kafka"].write(ten.bootstrap, "t", [odd], "zstd")
    lines = said(ten, "consume", "t", "--from-beginning", "-e", "-o", "json")
    assert said(ten, "produce", "copy", "--json", stdin=lines.encode()) == ""
    assert sorted(read_back(ten, "copy", 11), key=lambda each: each.timestamp) == [*SOME, odd]


def test_consume_begins_where_it_is_told(ten: Broker) -> None:
    def from_offset(where: str, *more: str) -> list[int]:
        return values(said(ten, "consume", "t", "-e", "--offset", where, *more))

    assert from_offset("beginning") == list(range(10))
    assert from_offset("end") == []
    assert from_offset("3") == [6, 7, 8, 9]
    assert from_offset("-1") == [8, 9]
    assert from_offset("-100", "-p", "1") == [1, 3, 5, 7, 9]
    assert from_offset("@1000004") == [4, 5, 6, 7, 8, 9]
    assert from_offset("@1970-01-01T00:16:40.008+00:00") == [8, 9]
    assert from_offset("@9000000") == []
    assert from_offset("1", "-p", "0", "-n", "2") == [2, 4]


def test_consume_prints_what_is_searched_for_between_two_times(ten: Broker) -> None:
    def found(*more: str) -> list[int]:
        return values(said(ten, "consume", "t", "-e", *more))

    whole = ("--from-beginning",)
    assert found(*whole, "--grep", "v3") == [3]
    assert found(*whole, "--key-grep", "k", "--where", 'key > "k6" and partition == 0') == [8]
    assert found(*whole, "--where", 'headers.h in ("1", "2") or offset == 4') == [1, 2, 8, 9]
    assert found("--tail", "1") == [8, 9]
    assert found("--since", "1000004", "--until", "1000007") == [4, 5, 6]
    assert found(*whole, "--until", "1970-01-01T00:16:40.002Z") == [0, 1]


def test_consume_reports_what_it_read_and_shows_fields_in_other_ways(ten: Broker) -> None:
    lines = said(
        ten, "consume", "t", "--tail", "1", "-e", "-p", "1", "-f", r"%T{iso} %k{hex} %H{h}\n"
    )
    assert lines == "1970-01-01T00:16:40.009Z 6b39 9\n"
    pretty = said(ten, "consume", "t", "--tail", "1", "-e", "-p", "1", "-o", "pretty")
    assert pretty.startswith("t-1 @ 4  1970-01-01T00:16:40.009Z (")
    assert pretty.endswith("d)  k9\n  h: 9\n  v9\n\n")


def test_produce_reads_a_file_as_often_as_wanted(ten: Broker, tmp_path: Path) -> None:
    said(ten, "topic", "create", "lines", "-p", "3")
    given = tmp_path / "lines"
    given.write_text("".join(f"v{number}\n" for number in range(5000)))
    said(ten, "produce", "lines", "--file", str(given), "--repeat", "2", "-H", "h=x")
    found = values(said(ten, "consume", "lines", "--from-beginning", "-e"))
    assert found == sorted([*range(5000), *range(5000)])
    assert refused(ten, "produce", "nope", "--file", str(given)) == (
        "Error: topic nope: there is no such topic or partition; "
        "`logfleet topic create` makes a topic, and --create does here"
    )


def test_consume_tells_in_one_line_what_is_not_there(ten: Broker) -> None:
    assert "topic nope: there is no such topic" in refused(ten, "consume", "nope")
    assert "topic nope: there is no such topic" in refused(ten, "consume", "nope", "-g", "g")
    line = refused(ten, "consume", "t", "-p", "2")
    assert line == "Error: --partition 2: topic t has partitions 0 to 1"
    line = refused(ten, "consume", "t", "--offset", "6")
    assert line == "Error: offset 6: t-0 has offsets from 0, and 5 is the next one"


def test_new_records_are_printed_as_they_come(ten: Broker) -> None:
    with started(ten, "consume", "t", "--offset", "-1", "-p", "0") as running:
        assert running.stdout.readline() == b"v8\n"
        for number in range(3):
            said(ten, "produce", "t", "-p", "0", stdin=b"new %d\n" % number)
            assert running.stdout.readline() == b"new %d\n" % number
        assert running.interrupted() == (130, "")


def test_a_reader_that_goes_away_ends_it_quietly(ten: Broker) -> None:
    with started(ten, "consume", "t", "--from-beginning") as running:
        running.stdout.readline()
        running.stdout.close()
        # it notices at its next record
        said(ten, "produce", "t", stdin=b"one more\n")
        assert running.end() == (1, "")
