"""A context: the name of a cluster, its addresses, and whether it may be changed."""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from logfleet.client.bootstrap import parse_bootstrap

BOOTSTRAP: Final = "bootstrap.servers"
READ_ONLY: Final = "read_only"
CLUSTER: Final = "cluster"
PROTOCOL: Final = "security.protocol"
PLAINTEXT: Final = "PLAINTEXT"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
SETTINGS: Final = frozenset(
    {
        PROTOCOL,
        "sasl.mechanism",
        "ssl.endpoint.identification.algorithm",
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.truststore.location",
        "ssl.truststore.type",
    }
)
"""Kafka's keys of a client's security (org.apache.kafka.common.config.SslConfigs, SaslConfigs)."""
SECRETS: Final = frozenset(
    {
        "sasl.jaas.config",
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.password",
        "ssl.truststore.certificates",
        "ssl.truststore.password",
    }
)
"""Such keys whose values are secrets: a context has the file that holds one, never the value."""
REFERENCE: Final = re.compile(r"\$\{file:(?P<path>/[^:}]+):(?P<key>[^:}]+)\}")
"""Kafka's reference to a key of a properties file (KIP-297, FileConfigProvider)."""


class Context(msgspec.Struct, frozen=True):
    """bootstrap: "host:port,...". cluster: the id of the cluster that answered there, if one did.

    settings: of security, by Kafka's keys.
    """

    name: str
    bootstrap: str
    is_read_only: bool = False
    cluster: str | None = None
    settings: Mapping[str, str] = {}

    def objection(self) -> str | None:
        """A sentence why this version cannot connect with these settings; None if it can."""
        for key, value in sorted(self.settings.items()):
            if (key, value.upper()) != (PROTOCOL, PLAINTEXT):
                return (
                    f"context {self.name} has {key}, and connections with TLS or SASL are not "
                    "built yet: nothing was sent"
                )
        return None


class Contexts(msgspec.Struct, frozen=True):
    """All contexts by name, and the name of the one that commands use if none is named."""

    all: Mapping[str, Context] = {}
    current: str | None = None


class WrongContext(ValueError):
    """A context cannot be so; the message says why."""


def make_context(name: str, fields: Mapping[str, Any]) -> Context:
    """The context of these fields, as they stand in the file. Raises WrongContext."""
    if not _NAME.fullmatch(name):
        raise WrongContext(f"{name!r} is no name: write up to 63 of a-z A-Z 0-9 . _ -")
    fields = dict(fields)
    bootstrap = fields.pop(BOOTSTRAP, None)
    is_read_only, cluster = fields.pop(READ_ONLY, False), fields.pop(CLUSTER, None)
    if not isinstance(bootstrap, str):
        raise WrongContext(f"context {name} lacks {BOOTSTRAP}")
    if not isinstance(is_read_only, bool):
        raise WrongContext(f"context {name}: {READ_ONLY} is true or false")
    if not isinstance(cluster, str | None):
        raise WrongContext(f"context {name}: {CLUSTER} is a text")
    try:
        parse_bootstrap(bootstrap)
    except ValueError as error:
        raise WrongContext(f"context {name}: {BOOTSTRAP}: {error}") from error
    for key, value in fields.items():
        check_setting(key, value)
    return Context(name, bootstrap, is_read_only, cluster, fields)


def check_setting(key: str, value: object) -> None:
    """Raises WrongContext for a key that clients do not have, and for a secret's value."""
    if key not in SETTINGS | SECRETS:
        known = ", ".join(sorted(SETTINGS | SECRETS))
        raise WrongContext(f"{key} is no key of a context; there are {known}")
    if not isinstance(value, str) or not value.isprintable():
        raise WrongContext(f"{key}: write a text")
    if key in SECRETS and not REFERENCE.fullmatch(value):
        raise WrongContext(
            f"{key} is a secret, and stays in a file of its own: write ${{file:PATH:{key}}} with "
            "the absolute path of a properties file that has it"
        )


def fields_of(context: Context) -> dict[str, str | bool]:
    """The fields as they stand in the file; `make_context` makes the same context of them."""
    fields: dict[str, str | bool] = {BOOTSTRAP: context.bootstrap}
    if context.is_read_only:
        fields[READ_ONLY] = True
    if context.cluster is not None:
        fields[CLUSTER] = context.cluster
    return {**fields, **context.settings}
