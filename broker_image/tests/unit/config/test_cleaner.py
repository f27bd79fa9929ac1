import pytest
from logfleet.config.cleaner import cleaner_settings, settings_of
from logfleet.config.topic import BrokerLayers
from logfleet.metadata.image import ClusterImage


def settings(static=None, dynamic=None):
    layers = BrokerLayers(
        {f"log.cleaner.{key}": value for key, value in (static or {}).items()},
        {f"log.cleaner.{key}": value for key, value in (dynamic or {}).items()},
    )
    return cleaner_settings(layers)


def test_the_defaults_are_kafkas():
    found = settings()
    assert (found.threads, found.backoff_s, found.map_bytes, found.load_factor) == (
        1,
        15.0,
        128 << 20,
        0.9,
    )
    assert found.bytes_per_second > 1e300


def test_what_is_for_all_threads_is_shared_out():
    found = settings(
        {"threads": "4", "dedupe.buffer.size": "4000", "io.max.bytes.per.second": "1e6"}
    )
    assert (found.threads, found.map_bytes, found.bytes_per_second) == (4, 1000, 250_000)


def test_a_dynamic_value_goes_before_the_static_one():
    assert settings({"backoff.ms": "1"}, {"backoff.ms": "500"}).backoff_s == 0.5


@pytest.mark.parametrize("given, used", [("0", 0.01), ("1.0", 0.95), ("0.5", 0.5)])
def test_a_map_is_never_quite_full_nor_of_no_use(given, used):
    assert settings({"io.buffer.load.factor": given}).load_factor == used


def test_without_threads_there_is_one():
    assert settings({"threads": "0"}).threads == 1


def test_they_are_found_in_what_the_broker_was_started_with():
    found = settings_of({"log.cleaner.backoff.ms": "7000"}, ClusterImage(), 1)
    assert found.backoff_s == 7.0
