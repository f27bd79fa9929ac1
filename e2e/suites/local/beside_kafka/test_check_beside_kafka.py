"""`logfleet check` finds the same in an Apache Kafka as in a broker of ours, and names what it cannot ask there."""

import contextlib
import json
from collections.abc import Iterator

import pytest

from e2e.harness.command_line import Reachable, logfleet, said
from e2e.harness.kafka import KafkaBroker
from e2e.harness.processes import Broker, Rig

pytestmark = [pytest.mark.xdist_group("beside-kafka"), pytest.mark.timeout(600)]
CONFIG = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}
ADMIN_PORT_ONLY = {"LF403", "LF404", "LF408", "LF503"}


@pytest.fixture(params=["kafka", "logfleet"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaBroker | Broker]:
    directory = tmp_path_factory.mktemp(request.param)
    if request.param == "kafka":
        with KafkaBroker(directory / "kafka", **CONFIG) as kafka:
            yield kafka
    else:
        with contextlib.closing(Rig(directory)) as rig:
            yield rig.broker(CONFIG)


def test_the_same_is_found_in_both(broker: Reachable) -> None:
    said(broker, "topic", "create", "orders", "-p", "2", "-c", "flush.messages=1")
    said(broker, "topic", "create", "empty", "-p", "1")
    lines = "".join(f"{'x' * 900}{number}\n" for number in range(10))
    said(broker, "produce", "orders", "--partition", "0", stdin=lines.encode())
    said(broker, "consume", "orders", "--group", "job", "--from-beginning", "-n", "4")
    done = logfleet(broker, "check", "-o", "json", "--ignore", "LF402")
    assert (done.returncode, done.stderr) == (0, b""), "one broker can have one replica"
    found = json.loads(done.stdout)
    # how much a client reads ahead decides what it commits: the sentence of LF301 is not compared
    assert {(each["code"], each["subject"]) for each in found["findings"]} == {
        ("LF110", "fleet"),
        ("LF301", "job"),
        ("LF502", "orders"),
        ("LF601", "empty"),
    }
    not_checked = {each["code"]: each["reason"] for each in found["not_checked"]}
    if isinstance(broker, KafkaBroker):
        assert set(not_checked) == ADMIN_PORT_ONLY
        assert all("admin port" in reason for reason in not_checked.values())
    else:
        assert not_checked == {}
