"""What DeleteRecords leaves on the disk of a broker."""

import time
from pathlib import Path

from logfleet.records.record import Record, build_batch
from logfleet.wire import messages as m
from logfleet.wire.errors import ErrorCode

from e2e.compare import requests as r
from e2e.compare.side import MadeTopic, Side
from e2e.harness.processes import Broker
from e2e.harness.wire_connection import error_codes

RECORDS = 10
NOW = time.time_ns() // 1_000_000


def asker(broker: Broker) -> Side:
    return Side("ours", broker.port, str(broker.data))


def test_what_was_deleted_stays_so_after_sigkill(rig) -> None:
    broker = rig.broker()
    side = asker(broker)
    names = ("plain", "both", "three")
    for name, partitions, policy in zip(
        names, (1, 1, 3), ("delete", "compact,delete", "delete"), strict=True
    ):
        made = side.make_topic(name, partitions, {"cleanup.policy": policy})
        r.fill(side, MadeTopic(name, made), r.batch(RECORDS))
    for name, offset in (("plain", 4), ("both", -1)):
        assert not any(error_codes(side.get(r.delete_records(name, offset))))
    side.close()
    broker.kill()
    broker.start()
    side = asker(broker)
    answers = [side.get(r.list_offsets(MadeTopic(name, b""), -2)) for name in names]
    side.close()
    starts = [answer.topics[0].partitions[0].offset for answer in answers]
    assert starts == [4, RECORDS, 0]


def test_segments_that_hold_nothing_else_go(rig) -> None:
    """With the next look at retention; what is left of the segment that was cut is not shown."""
    broker = rig.broker({"log.retention.check.interval.ms": "50"})
    side = asker(broker)
    topic = MadeTopic("t", side.make_topic("t", 1, {"segment.ms": "1", "retention.ms": "-1"}))
    for number in range(4):  # a later record of a later time begins a segment
        records = [Record(b"k", b"v", NOW + 10 * number)] * 5
        r.fill(side, topic, bytes(build_batch(records)))
    folder = broker.data / "t-0"
    assert len(list(folder.glob("*.log"))) == 4
    side.get(r.delete_records("t", 12))
    give_up_s = time.monotonic() + 60
    while len(list(folder.glob("*.log"))) > 2:
        assert time.monotonic() < give_up_s
        time.sleep(0.01)
    side.close()
    assert sorted(file.name[18:20] for file in folder.glob("*.log")) == ["10", "15"]


def test_a_log_directory_that_fails_is_told_while_the_broker_lives_on(rig, tmp_path: Path) -> None:
    """Appends to partitions on it fail; DescribeLogDirs names it, and the partitions of the other directory go on."""
    one, two = tmp_path / "one", tmp_path / "two"
    broker = rig.broker({"log.dirs": f"{one},{two}"})
    side = asker(broker)
    topic = MadeTopic("t", side.make_topic("t", 2))
    for index in (0, 1):
        r.fill(side, topic, r.batch(RECORDS), index=index)
    (one / "log-start-offset-checkpoint.tmp").mkdir()  # nothing can be written there any more
    request, other = (r.delete_records("t", 1, index=index) for index in (0, 1))
    request.topics += other.topics
    assert sorted(error_codes(side.get(request))) == [0, ErrorCode.KAFKA_STORAGE_ERROR]
    results = side.get(m.DescribeLogDirsRequest(topics=None), 5).results
    side.close()
    assert {result.log_dir: result.error_code for result in results} == {
        str(one): ErrorCode.KAFKA_STORAGE_ERROR,
        str(two): 0,
    }
