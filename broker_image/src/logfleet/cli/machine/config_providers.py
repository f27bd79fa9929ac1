"""Resolves variables in a server.properties by `config.providers` (KIP-297, KIP-421).

Kafka's own three providers are supported, by their class names and with their parameters:
EnvVarConfigProvider, FileConfigProvider, DirectoryConfigProvider. Any other is Java code, which
cannot run here.
"""

import os
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from logfleet.config.keys import ConfigError
from logfleet.config.server_properties.text import read_properties
from logfleet.config.server_properties.variables import (
    PROVIDERS,
    Lookup,
    named_providers,
    resolve,
)

_PACKAGE: Final = "org.apache.kafka.common.config.provider."
ALLOWLIST: Final = "allowlist.pattern"
ALLOWED_PATHS: Final = "allowed.paths"


def resolved(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties with variables replaced.

    Raises ConfigError, naming the key, if one has no value.
    """
    return resolve(
        properties,
        {name: _lookup(name, *given) for name, given in named_providers(properties).items()},
    )


def _lookup(name: str, class_name: str, params: Mapping[str, str]) -> Lookup:
    match class_name.removeprefix(_PACKAGE):
        case "EnvVarConfigProvider":
            return partial(_of_environment, _allowlist(name, params))
        case "FileConfigProvider":
            return partial(_of_file, _allowed(name, params))
        case "DirectoryConfigProvider":
            return partial(_of_directory, _allowed(name, params))
    key = f"{PROVIDERS}.{name}.class"
    raise ConfigError(
        key,
        f"{key}={class_name}: a Java class cannot be loaded here; of {_PACKAGE} there are "
        f"EnvVarConfigProvider, FileConfigProvider and "
        "DirectoryConfigProvider",
    )


def _allowlist(name: str, params: Mapping[str, str]) -> re.Pattern[str] | None:
    """Kafka: EnvVarConfigProvider.ALLOWLIST_PATTERN_CONFIG. None for all."""
    try:
        return re.compile(params[ALLOWLIST]) if params.get(ALLOWLIST) else None
    except re.error as error:
        key = f"{PROVIDERS}.{name}.param.{ALLOWLIST}"
        raise ConfigError(key, f"{key}={params[ALLOWLIST]} is no pattern: {error}") from error


def _allowed(name: str, params: Mapping[str, str]) -> tuple[Path, ...]:
    """Kafka: AllowedPaths. Empty for all."""
    paths = tuple(Path(path) for path in params.get(ALLOWED_PATHS, "").split(",") if path)
    for path in paths:
        if not path.is_absolute() or not path.exists():
            key = f"{PROVIDERS}.{name}.param.{ALLOWED_PATHS}"
            raise ConfigError(key, f"{key}: {path} must be absolute and exist")
    return tuple(_normal(path) for path in paths)


def _normal(path: Path) -> Path:
    """Without `..`; links are not followed (Kafka: Path.normalize)."""
    return Path(os.path.normpath(path))


def _of_environment(pattern: re.Pattern[str] | None, path: str, key: str) -> str:
    if path:
        raise ConfigError(key, f"a variable of the environment has no path, take {path}: out")
    if pattern and not pattern.fullmatch(key):
        raise ConfigError(key, f"{ALLOWLIST}={pattern.pattern} does not allow it")
    if key not in os.environ:
        raise ConfigError(key, "the environment has no such variable: set it")
    return os.environ[key]


def _of_file(allowed: tuple[Path, ...], path: str, key: str) -> str:
    found = read_properties(_read(allowed, Path(path)))
    if key not in found:
        raise ConfigError(key, f"{path} has no key {key}")
    return found[key]


def _of_directory(allowed: tuple[Path, ...], path: str, key: str) -> str:
    return _read(allowed, Path(path) / key).decode(errors="replace")


def _read(allowed: tuple[Path, ...], path: Path) -> bytes:
    if allowed and not any(_normal(path).is_relative_to(each) for each in allowed):
        raise ConfigError("", f"{path} is in none of {ALLOWED_PATHS}")
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError("", f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:  # a zero in the name
        raise ConfigError("", f"{str(path)!r} cannot be read: {error}") from error
