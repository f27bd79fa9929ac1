import pytest
from hypothesis import given
from hypothesis import strategies as st
from logfleet.wire import uuids


@given(st.binary(min_size=16, max_size=16))
def test_text_and_bytes_are_the_same_uuid(raw: bytes) -> None:
    text = uuids.to_text(raw)
    assert len(text) == 22
    assert uuids.from_text(text) == raw


def test_text_is_kafkas() -> None:
    assert uuids.to_text(uuids.ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert uuids.to_text(uuids.ONE_UUID) == "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.mark.parametrize("text", ["", "AAAA", "A" * 23, "!" * 22, "é" * 22])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a uuid"):
        uuids.from_text(text)


def test_reserved_ids_and_those_that_look_like_options_are_not_for_topics() -> None:
    assert not uuids.usable_as_id(uuids.ZERO_UUID)
    assert not uuids.usable_as_id(uuids.ONE_UUID)
    assert not uuids.usable_as_id(b"\xf8" + bytes(15))  # base64url of 0b111110 is "-"
    assert uuids.usable_as_id(b"\x01" * 16)
