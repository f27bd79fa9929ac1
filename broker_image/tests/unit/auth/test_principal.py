import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.default_principal_data.v0.data import DefaultPrincipalData
from kio.serial import entity_reader, entity_writer
from logfleet.auth.principal import ANONYMOUS, Principal, decode_principal, encode_principal
from logfleet.wire.errors import MalformedMessage

PRINCIPALS = st.builds(Principal, st.text(max_size=300), st.text(max_size=300), st.booleans())


@given(PRINCIPALS)
def test_its_bytes_are_those_of_kafka(principal: Principal) -> None:
    """A version in two bytes, and the message of the schema."""
    encoded = encode_principal(principal)
    theirs = DefaultPrincipalData(
        type_=principal.type,
        name=principal.name,
        token_authenticated=principal.is_token_authenticated,
    )
    with io.BytesIO() as buffer:
        entity_writer(DefaultPrincipalData)(buffer, theirs)
        assert encoded == b"\0\0" + buffer.getvalue()
    assert entity_reader(DefaultPrincipalData)(encoded, 2)[0] == theirs
    assert decode_principal(encoded) == decode_principal(memoryview(encoded)) == principal


def test_the_bytes_of_an_unauthenticated_client() -> None:
    assert encode_principal(ANONYMOUS) == b"\0\0\x05User\x0aANONYMOUS\0\0"
    assert str(ANONYMOUS) == "User:ANONYMOUS"


def test_what_lies_behind_it_is_ignored() -> None:
    assert decode_principal(encode_principal(ANONYMOUS) + b"more") == ANONYMOUS


@pytest.mark.parametrize(
    "data", [b"", b"\0", b"\0\1\x05User\x02a\0\0", b"\xff\xff", b"\0\0", b"\0\0\x05Use"]
)
def test_other_versions_and_cut_ones_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_principal(data)
