import pytest
from logfleet.cli.log_dirs import bytes_text


@pytest.mark.parametrize(
    "size, text",
    [
        (-1, "-"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536 * 1024, "1.5 MiB"),
        (3 << 40, "3.0 TiB"),
        (5 << 50, "5120.0 TiB"),
    ],
)
def test_bytes_are_told_as_people_read_them(size: int, text: str) -> None:
    assert bytes_text(size) == text
