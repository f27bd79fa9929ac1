import pytest
from logfleet.client.partitioner import murmur2, partition_of_key


@pytest.mark.parametrize(
    "key,expected",
    [
        ("21", -973932308),
        ("foobar", -790332482),
        ("a-little-bit-long-string", -985981536),
        ("a-little-bit-longer-string", -1486304829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        ("abc", 479470107),
    ],
)
def test_the_hash_is_that_of_kafkas_java_clients(key: str, expected: int) -> None:
    # the values of Kafka's own UtilsTest, which are signed there
    assert murmur2(key.encode()) == expected & 0xFFFFFFFF


def test_every_key_has_a_place() -> None:
    places = {partition_of_key(str(number).encode(), 7) for number in range(1000)}
    assert places == set(range(7))
    assert partition_of_key(b"", 1) == 0
