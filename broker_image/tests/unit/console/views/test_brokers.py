from logfleet.console.sample import Sample
from logfleet.console.views.brokers import broker, brokers

from broker_image.tests.unit.console.samples import fleet


def test_a_broker_has_its_directories_and_topics() -> None:
    data = broker(fleet(), 1)
    assert data is not None
    assert (data["controller"], data["leads"], data["replicas"]) == (True, 1, 3)
    assert data["directories"] == [
        {
            "path": "/d",
            "error": None,
            "bytes": 500,
            "free": 100,
            "total": 1000,
            "used": 90,
            "partitions": 2,
        }
    ]
    assert [(row["topic"], row["leads"], row["replicas"]) for row in data["topics"]] == [
        ("orders", 1, 2),
        ("__offsets", 0, 1),
    ]


def test_space_that_is_not_reported_is_unknown() -> None:
    data = broker(fleet(), 2)
    assert data is not None
    assert (data["directories"][0]["free"], data["directories"][0]["used"], data["disk"]) == (
        None,
        None,
        None,
    )
    assert broker(fleet(), 3)["bytes"] is None  # type: ignore[index]


def test_a_broker_that_is_not_there_has_no_page() -> None:
    assert broker(fleet(), 9) is None
    assert brokers(Sample()) == {"brokers": [], "zones": []}
