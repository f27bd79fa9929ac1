import pytest
from logfleet.log.names import (
    DELETE_DIRECTORY,
    NAME_BYTES_MAX,
    SNAPSHOT,
    STRAY_DIRECTORY,
    TopicPartition,
    future_directory,
    leaving_directory,
    leaving_suffix,
    offset_file,
    parse_future_directory,
    parse_offset_file,
    parse_partition_directory,
)

HEX = "0123456789abcdef" * 2


def test_files_are_named_by_twenty_digits():
    assert offset_file(4711, SNAPSHOT) == "00000000000000004711.snapshot"
    assert parse_offset_file("00000000000000004711.snapshot") == (4711, ".snapshot")


@pytest.mark.parametrize(
    "name",
    [
        "4711.log",
        "00000000000000004711.log.deleted",
        "00000000000000004711",
        "leader-epoch-checkpoint",
    ],
)
def test_other_names_are_no_offset_files(name):
    assert parse_offset_file(name) is None


@pytest.mark.parametrize("topic", ["t", "a-1", "a.b_c-2-3", "x" * 249])
def test_a_partition_is_found_again_from_its_directory(topic):
    partition = TopicPartition(topic, 12)
    assert parse_partition_directory(str(partition)) == partition


@pytest.mark.parametrize(
    "name", ["lost+found", "topic", "topic-", "-1", "t-x", f"t-0.{HEX}-delete"]
)
def test_other_directories_are_no_partitions(name):
    assert parse_partition_directory(name) is None


@pytest.mark.parametrize("suffix", [DELETE_DIRECTORY, STRAY_DIRECTORY])
@pytest.mark.parametrize("topic", ["t", "x" * 249])
def test_a_leaving_directorys_name_has_the_reason_and_fits_the_file_system(topic, suffix):
    name = leaving_directory(TopicPartition(topic, 0), HEX, suffix)
    assert name.startswith(topic[:150])
    assert len(name) <= NAME_BYTES_MAX
    assert leaving_suffix(name) == suffix
    assert parse_partition_directory(name) is None


def test_a_topic_may_be_called_as_if_it_were_leaving():
    assert leaving_suffix("my-delete") is None
    assert parse_partition_directory("x-stray-0") == TopicPartition("x-stray", 0)


@pytest.mark.parametrize("topic, fits", [("t", True), ("x" * 213, True), ("x" * 214, False)])
def test_the_directory_of_a_copy_names_its_partition_or_there_is_none(topic, fits):
    """Kafka refuses the move of a topic whose name is too long (KAFKA-4893)."""
    partition = TopicPartition(topic, 0)
    name = future_directory(partition, HEX)
    assert (name is not None) == fits
    if name is not None:
        assert parse_future_directory(name) == partition
        assert parse_partition_directory(name) is None
        assert leaving_suffix(name) is None


def test_a_topic_may_be_called_as_if_it_were_a_copy():
    assert parse_future_directory("x-future-0") is None
    assert parse_partition_directory("x-future-0") == TopicPartition("x-future", 0)
