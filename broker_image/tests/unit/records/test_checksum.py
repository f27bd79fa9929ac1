import pytest
from logfleet.records.checksum import crc32c


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_the_check_value_of_crc_32c(kind):
    # RFC 3720 B.4 and the CRC catalogue's check value
    assert crc32c(kind(b"123456789")) == 0xE3069283
    assert crc32c(kind(bytes(32))) == 0x8A9136AA
    assert crc32c(kind(b"")) == 0
