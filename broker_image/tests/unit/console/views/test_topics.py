from logfleet.client.admin import ConfigEntry, ConfigSource
from logfleet.client.offsets import TopicPartition
from logfleet.console.history import History
from logfleet.console.views.topics import settings, topic, topics
from logfleet.telemetry.flows import Flow

from broker_image.tests.unit.console import samples


def test_internal_topics_are_found_by_name_only() -> None:
    sample = samples.fleet()
    assert [row["name"] for row in topics(sample, History(), {})["topics"]] == ["orders"]
    assert [row["name"] for row in topics(sample, History(), {"filter": "OFF"})["topics"]] == [
        "__offsets"
    ]


def test_a_topic_has_size_records_rate_and_what_it_lacks() -> None:
    history = History()
    history.ends.add("orders", 0, 100)
    history.ends.add("orders", 10, 150)
    sample = samples.fleet(topics={"orders": samples.topic("orders", (1, (1, 2)), (-1, ()))})
    (row,) = topics(sample, history, {"only": "issues"})["topics"]
    assert (row["bytes"], row["records"], row["rate"]) == (5120, 140, 5.0)
    assert row["issues"] == {"offline": 1, "under_min_isr": 1, "under_replicated": 2}
    assert row["cleanup"] == "delete, 7 days"


def test_the_list_is_sorted_and_cut_into_pages() -> None:
    many = {f"t{i:03}": samples.topic(f"t{i:03}", (1, (1, 2, 3))) for i in range(250)}
    sample = samples.fleet(topics=many, sizes={"t007": [5], "t200": [9]})
    data = topics(sample, History(), {"sort": "bytes", "page": "1"})
    assert [row["name"] for row in data["topics"][:3]] == ["t200", "t007", "t000"]
    assert (data["count"], data["pages"], len(data["topics"])) == (250, 3, 100)
    last = topics(sample, History(), {"page": "9"})
    assert (last["page"], len(last["topics"])) == (3, 50)
    assert topics(sample, History(), {"page": "0"})["page"] == 1
    assert topics(sample, History(), {"page": "x"})["page"] == 1


def test_a_topics_page_names_its_groups_clients_and_partitions() -> None:
    flow = Flow("orders", 1, 10.0, 20.0, "writer", "reader")
    sample = samples.fleet(
        flows={TopicPartition("orders", 1): flow}, moving=(TopicPartition("orders", 0),)
    )
    data = topic(sample, History(), "orders", {})
    assert data is not None
    assert (data["groups"], data["writers"], data["readers"]) == (
        ["billing"],
        ["writer"],
        ["reader"],
    )
    assert data["moving"] == [0]
    rows = data["partition_rows"]["rows"]
    assert [(row["begin"], row["end"], row["bytes"], row["bytes_in"]) for row in rows] == [
        (10, 110, 4096, None),
        (0, 40, 1024, 10.0),
    ]
    assert topic(sample, History(), "none", {}) is None


def test_what_is_not_sampled_yet_is_unknown() -> None:
    data = topic(samples.fleet(ends={"orders": [-1]}, begins={}, sizes={}), History(), "orders", {})
    assert data is not None
    assert data["bytes"] is None
    assert [row["end"] for row in data["partition_rows"]["rows"]] == [None, None]


def test_settings_of_the_topic_come_first_and_secrets_are_not_shown() -> None:
    rows = settings(
        [
            ConfigEntry("b", "2", ConfigSource.DEFAULT_CONFIG, False, False),
            ConfigEntry("a", "s", ConfigSource.STATIC_BROKER_CONFIG, False, True),
            ConfigEntry("c", "3", ConfigSource.DYNAMIC_TOPIC_CONFIG, False, False),
        ]
    )
    assert [(row["key"], row["value"], row["source"]) for row in rows] == [
        ("c", "3", "dynamic topic"),
        ("a", "(hidden)", "static broker"),
        ("b", "2", "default"),
    ]
