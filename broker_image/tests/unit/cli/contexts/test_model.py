from typing import Any

import pytest
from logfleet.cli.contexts.model import Context, WrongContext, fields_of, make_context

JAAS = "${file:/etc/client.properties:sasl.jaas.config}"


def test_a_context_is_made_of_the_fields_that_it_is_written_as() -> None:
    context = Context(
        "prod",
        "a:1,b:2",
        is_read_only=True,
        cluster="c",
        settings={"security.protocol": "SASL_SSL", "sasl.jaas.config": JAAS},
    )
    assert make_context("prod", fields_of(context)) == context
    plain = Context("plain", "a:1")
    assert fields_of(plain) == {"bootstrap.servers": "a:1"}
    assert make_context("plain", fields_of(plain)) == plain


@pytest.mark.parametrize(
    "name, fields, sentence",
    [
        ("", {}, "'' is no name: write up to 63 of a-z A-Z 0-9 . _ -"),
        ("a b", {}, "'a b' is no name: write up to 63 of a-z A-Z 0-9 . _ -"),
        ("p", {}, "context p lacks bootstrap.servers"),
        ("p", {"read_only": "yes"}, "context p: read_only is true or false"),
        ("p", {"cluster": 5}, "context p: cluster is a text"),
        (
            "p",
            {"bootstrap.servers": "a:b"},
            "context p: bootstrap.servers: 'a:b' is no address: write host:port",
        ),
        ("p", {"ssl.truststore.location": 5}, "ssl.truststore.location: write a text"),
        ("p", {"ssl.truststore.location": "a\nb"}, "ssl.truststore.location: write a text"),
    ],
)
def test_a_context_that_cannot_be_so_is_refused_in_a_sentence(
    name: str, fields: dict[str, Any], sentence: str
) -> None:
    fields = fields if "lacks" in sentence or not name else {"bootstrap.servers": "a:1", **fields}
    with pytest.raises(WrongContext) as found:
        make_context(name, fields)
    assert str(found.value) == sentence


def test_a_key_that_clients_do_not_have_is_refused_with_those_there_are() -> None:
    with pytest.raises(WrongContext, match=r"^ssl\.trust is no key of a context; .*truststore"):
        make_context("p", {"bootstrap.servers": "a:1", "ssl.trust": "x"})


@pytest.mark.parametrize("value", ["secret", "${env:SECRET}", "${file:relative:key}", ""])
def test_a_secret_is_named_by_the_file_that_has_it(value: str) -> None:
    with pytest.raises(WrongContext, match=r"is a secret.*write \$\{file:PATH:ssl\.key\.password"):
        make_context("p", {"bootstrap.servers": "a:1", "ssl.key.password": value})


@pytest.mark.parametrize(
    "settings, is_refused",
    [
        ({}, False),
        ({"security.protocol": "plaintext"}, False),
        ({"security.protocol": "SASL_PLAINTEXT"}, True),
        ({"ssl.truststore.location": "/ca.pem"}, True),
    ],
)
def test_a_context_for_a_protected_cluster_says_that_nothing_is_sent(
    settings: dict[str, str], is_refused: bool
) -> None:
    objection = Context("p", "a:1", settings=settings).objection()
    assert (objection is not None) == is_refused
