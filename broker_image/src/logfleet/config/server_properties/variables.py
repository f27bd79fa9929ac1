"""Variables in values, `${provider:path:key}`, as in Kafka (KIP-297; ConfigTransformer).

Unlike in Kafka, a variable without a value is refused. In Kafka its text stays, and three brokers
end up in one zone called `${env:RACK}`.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from logfleet.config.keys import ConfigError, parse_list

PROVIDERS: Final = "config.providers"
_VARIABLE: Final = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")

Lookup = Callable[[str, str], str]
"""The text for (path, key); path is empty if not given.

Raises ConfigError, whose key is ignored.
"""


def is_about_providers(name: str) -> bool:
    """Whether a key configures a provider."""
    return name == PROVIDERS or name.startswith(f"{PROVIDERS}.")


def named_providers(properties: Mapping[str, str]) -> dict[str, tuple[str, Mapping[str, str]]]:
    """Class and parameters of each provider, by its name.

    Raises ConfigError if a class is missing.
    """
    found: dict[str, tuple[str, Mapping[str, str]]] = {}
    for name in parse_list(properties.get(PROVIDERS, "")):
        key = f"{PROVIDERS}.{name}.class"
        if key not in properties:
            raise ConfigError(
                PROVIDERS, f"{PROVIDERS} names {name}, and {key} is not there: add it"
            )
        prefix = f"{PROVIDERS}.{name}.param."
        params = {
            key.removeprefix(prefix): value
            for key, value in properties.items()
            if key.startswith(prefix)
        }
        found[name] = properties[key].strip(), params
    return found


def resolve(properties: Mapping[str, str], lookups: Mapping[str, Lookup]) -> dict[str, str]:
    """The properties with variables replaced, without the keys about providers.

    A replacement is not searched for variables again. lookups: by the provider's name; a variable
    with another name is text. Raises ConfigError.
    """
    resolved = {}
    for name, value in properties.items():
        if is_about_providers(name):
            continue

        def replaced(match: re.Match[str], name: str = name) -> str:
            lookup = lookups.get(match[1])
            if lookup is None:
                return match[0]
            try:
                return lookup(match[2] or "", match[3])
            except ConfigError as error:
                raise ConfigError(name, f"{name}: {match[0]}: {error.message}") from error

        resolved[name] = _VARIABLE.sub(replaced, value)
    return resolved


def refuse_providers(names: Iterable[str]) -> None:
    """Raise ConfigError for a key about providers, where variables are not supported."""
    for name in names:
        if is_about_providers(name):
            raise ConfigError(name, f"{name}: {_NOT_HERE}")


def refuse_variables(values: Mapping[str, str]) -> None:
    """As `refuse_providers`; also raise ConfigError for a value with a variable of any provider."""
    refuse_providers(values)
    for name, value in values.items():
        if match := _VARIABLE.search(value):
            raise ConfigError(name, f"{name}: {match[0]}: {_NOT_HERE}")


_NOT_HERE: Final = (
    "variables such as ${env:NAME} are looked up in server.properties only, when a broker "
    "starts; write the value itself here"
)
