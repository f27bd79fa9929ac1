from logfleet.checks import Finding, Severity
from logfleet.client.offsets import TopicPartition
from logfleet.console.history import History
from logfleet.console.sample import Directory, Sample
from logfleet.console.views.overview import health, overview
from msgspec.structs import replace

from broker_image.tests.unit.console.samples import NOW_S, fleet, topic


def sentence(sample: Sample) -> tuple[str, str]:
    state = overview(sample, History(), NOW_S, 60)["state"]
    return state["level"], state["sentence"]


def test_the_worst_is_named_first() -> None:
    sample = fleet(directories=())
    assert sentence(sample) == ("ok", "All is well: 3 brokers, 3 partitions, all replicas in sync.")
    full = replace(sample, directories=(Directory(3, "/d", None, 100, 5, 1, 1),))
    assert sentence(full) == ("warning", "Broker 3: disk 95 % full.")
    lacking = fleet(
        topics={"t": topic("t", (1, (1, 2)), (1, (1, 2)))}, directories=full.directories
    )
    assert sentence(lacking) == ("warning", "2 partitions are under-replicated.")
    assert lacking.cluster is not None
    fenced = replace(lacking, cluster=replace(lacking.cluster, fenced=frozenset({3})))
    assert sentence(fenced) == ("warning", "Broker 3: fenced; the others serve.")
    failed = replace(fenced, directories=(Directory(2, "/d", "KAFKA_STORAGE_ERROR", -1, -1, 0, 0),))
    assert sentence(failed) == ("error", "Broker 2: a log directory has failed.")
    few = fleet(topics={"orders": topic("orders", (1, (1,)))})
    assert sentence(few)[1].startswith("1 partition is below min.insync.replicas")
    offline = fleet(topics={"orders": topic("orders", (-1, ()), (1, (1,)))})
    assert sentence(offline)[1] == "1 partition is offline: no records in or out."
    assert sentence(replace(offline, failures={"cluster": "refused"})) == (
        "error",
        "No broker answers: refused",
    )
    assert sentence(Sample())[0] == "warning"


def test_what_the_checks_find_is_named_while_all_replicas_are_in_sync() -> None:
    hint = Finding("LF501", Severity.HINT, "a", "no idempotence", "enable.idempotence=true")
    error = Finding("LF103", Severity.ERROR, "orders", "no broker may restart", "logfleet ...")
    sample = fleet(directories=(), findings=(error, hint))
    assert sentence(sample) == ("error", "orders: no broker may restart.")
    assert sentence(replace(sample, findings=(hint,)))[0] == "ok"
    assert health(sample)["counts"] == {"error": 1, "warning": 0, "hint": 1}
    assert health(Sample())["at_s"] is None


def test_brokers_are_shown_by_zone_also_those_that_do_not_run() -> None:
    sample = fleet(topics={"t": topic("t", (1, (1,)))})
    assert sample.cluster is not None
    two = replace(sample.cluster, brokers=sample.cluster.brokers[:2])
    data = overview(replace(sample, cluster=two), History(), NOW_S, 60)
    assert [(zone["zone"], [row["id"] for row in zone["brokers"]]) for zone in data["zones"]] == [
        ("a", [1]),
        ("b", [2]),
        (None, [3]),
    ]
    assert [row["state"] for row in data["brokers"]] == ["active", "active", "unregistered"]
    assert [row["cordoned"] for row in data["brokers"]] == [False, True, False]
    assert data["brokers"][0]["disk"] == 90


def test_a_group_whose_lag_grows_is_named() -> None:
    history = History()
    for second in range(0, 60, 5):
        history.lags.add("billing", NOW_S - 60 + second, second)
        history.lags.add("calm", NOW_S - 60 + second, second % 10)
    data = overview(fleet(moving=(TopicPartition("orders", 1),)), history, NOW_S, 60)
    assert [row["name"] for row in data["growing"]] == ["billing"]
    assert data["moving"] == ["orders-1"]
    assert data["events"][0]["about"] == "broker 3"
