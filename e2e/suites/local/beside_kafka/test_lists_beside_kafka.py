"""Lists, totals and completion on Apache Kafka 4.4.0 and on a broker of ours: the same columns, the same figures."""

import contextlib
import json
from collections.abc import Iterator

import pytest
from logfleet.cli.completion import names
from logfleet.cli.contexts.address import Address

from e2e.harness.command_line import Reachable, logfleet, refused, said
from e2e.harness.kafka import KafkaBroker
from e2e.harness.processes import Rig

pytestmark = [pytest.mark.xdist_group("beside-kafka"), pytest.mark.timeout(600)]
CONFIG = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}


@pytest.fixture(scope="module", params=["kafka", "logfleet"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Reachable]:
    directory = tmp_path_factory.mktemp(request.param)
    if request.param == "kafka":
        with KafkaBroker(directory / "kafka", **CONFIG) as kafka:
            yield kafka
    else:
        with contextlib.closing(Rig(directory)) as rig:
            yield rig.broker(CONFIG)


def test_lists_have_sizes_and_lags_and_shells_the_names(broker: Reachable) -> None:
    said(broker, "topic", "create", "orders", "empty", "-p", "2")
    said(broker, "produce", "orders", "-p", "0", stdin=b"\n".join(b"%d" % n for n in range(10)))
    said(broker, "consume", "orders", "-g", "billing", "--from-beginning", "-e", "-n", "4")

    rows = {row["name"]: row for row in json.loads(said(broker, "topic", "list", "-o", "json"))}
    assert set(rows) == {"orders", "empty"}
    assert (rows["orders"]["records"], rows["empty"]["records"]) == (10, 0)
    assert rows["orders"]["bytes"] > rows["empty"]["bytes"] == 0
    assert rows["orders"]["issues"] == []
    assert said(broker, "topic", "list", "--empty", "-o", "name") == "empty\n"
    assert said(broker, "topic", "list", "--like", "ord*", "-o", "name") == "orders\n"
    table = said(broker, "topic", "list", "--sort", "records", "--rates", "100ms").splitlines()
    assert table[0].split() == [
        *("NAME", "PARTITIONS", "REPLICAS", "BYTES", "RECORDS", "RATE", "ISSUES")
    ]
    assert [line.split()[0] for line in table[1:]] == ["orders", "empty"]

    (group,) = json.loads(said(broker, "group", "list", "-o", "json"))
    assert (group["name"], group["members"], group["lag"]) == ("billing", 0, 6)
    (described,) = json.loads(
        said(broker, "group", "describe", "billing", "--time-lag", "-o", "json")
    )
    assert described["lag"] == 6
    assert 0 < described["timeLagMs"] < 600_000
    assert described["topics"][0]["topic"] == "orders"

    found = names.asked_names(Address(broker.bootstrap, "-b"))
    if found is not None:  # half a second is not always enough on a busy machine
        assert {"orders", "empty"} <= set(found["topics"])
        assert found["groups"] == ["billing"]
        assert "retention.ms" in found["topicKeys"]


def test_what_is_misspelt_is_answered_with_the_nearest(broker: Reachable) -> None:
    logfleet(broker, "topic", "create", "payments")
    assert "(do you mean payments?)" in refused(broker, "topic", "describe", "paymants")
    assert "(do you mean payments?)" in refused(broker, "consume", "paymets", "-e")
    line = refused(broker, "config", "set", "topic", "payments", "retnetion.ms=5")
    assert "(do you mean retention.ms?)" in line
    line = refused(broker, "config", "delete", "topic", "payments", "retnetion.ms")
    assert "there is no key retnetion.ms (do you mean retention.ms?)" in line


def test_a_dry_run_changes_nothing(broker: Reachable) -> None:
    said(broker, "topic", "create", "stays")
    before = said(broker, "topic", "list", "-o", "json", "--like", "stays")
    for arguments in (
        ("create", "never", "--dry-run"),
        ("alter", "stays", "-p", "5", "-c", "retention.ms=5", "--dry-run"),
        ("delete", "stays", "--dry-run"),
    ):
        assert said(broker, "topic", *arguments).endswith("(dry run)\n")
    assert said(broker, "topic", "list", "-o", "json", "--like", "stays") == before
    assert "never" not in said(broker, "topic", "list", "-o", "name")
