"""What all Logfleet documents share: kind and metadata, decoding, and errors that name a field.

A document is the plain mapping that YAML or the Kubernetes API gives. `decode` turns it into a
struct and reports every mistake of form as a `Problem` whose path is as in the document
(`spec.pools[0].storage.size`) and whose message tells what to write instead.
"""

import functools
import re
from collections.abc import Mapping
from typing import Final, TypeVar, get_args

import msgspec

GROUP: Final = "logfleet.dev"
VERSION: Final = "v1beta1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

# RFC 1123 label, and RFC 1035 label (a Service's name must begin with a letter).
DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
SERVICE_LABEL: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


class Problem(msgspec.Struct, frozen=True):
    """One mistake: `path` as in the document ("" is the whole), `message` tells what to do."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class InvalidResourceError(ValueError):
    """An unusable document; `problems` holds at least one mistake, in order."""

    def __init__(self, problems: list[Problem]) -> None:
        assert problems
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of a Kubernetes ObjectMeta that we use; others are ignored.

    In a file on a laptop only `name` is set; namespace is then "default" and uid is "".
    """

    name: str
    namespace: str = "default"
    uid: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


Decoded = TypeVar("Decoded", bound=msgspec.Struct)


def decode(document: object, kind: str, shape: type[Decoded]) -> Decoded:
    """Return `document` as a `shape`; unknown fields are refused.

    Raises InvalidResourceError if it is not a mapping, of another kind or version, or has the wrong
    form. The caller checks its meaning (names, sums, references between fields).
    """
    if not isinstance(document, dict):
        raise InvalidResourceError(
            [Problem("", "a resource is a mapping with apiVersion, kind, spec")]
        )
    for field, wanted in (("apiVersion", API_VERSION), ("kind", kind)):
        if document.get(field) != wanted:
            found = document.get(field)
            raise InvalidResourceError([Problem(field, f"is {found!r}, write {wanted}")])
    try:
        return msgspec.convert(document, shape)
    except msgspec.ValidationError as error:
        raise InvalidResourceError([_problem(str(error), shape)]) from None


def without_unknown(value: object, shape: object) -> tuple[object, list[str]]:
    """A copy of a document without the fields that `shape` lacks, and their paths.

    For documents that the schema of another version accepted. shape: a struct, or a list or an
    optional of one. Other values are returned unchanged, and `decode` refuses them.
    """
    unknown: list[str] = []
    return _known(value, shape, "", unknown), unknown


def _known(value: object, hint: object, path: str, unknown: list[str]) -> object:
    struct = _struct_in(hint)
    if struct is None:
        return value
    if isinstance(value, list):
        return [
            _known(each, struct, f"{path}[{index}]", unknown) for index, each in enumerate(value)
        ]
    if not isinstance(value, dict):
        return value
    fields = _types(struct)
    kept = {}
    for name, inner in value.items():
        where = _join(path, str(name))
        if name in fields:
            kept[name] = _known(inner, fields[name], where, unknown)
        elif struct.__struct_config__.forbid_unknown_fields:
            unknown.append(where)
    return kept


_AT = re.compile(r"^(?P<message>.*?)(?: - at `\$?\.?(?P<path>.*)`)?$", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>.*)`")
_MISSING = re.compile(r"Object missing required field `(?P<name>.*)`")


def _problem(text: str, shape: type[msgspec.Struct]) -> Problem:
    """Turn msgspec's "what - at `$.where`" into a path and a sentence."""
    match = _AT.match(text)
    assert match is not None
    message, path = match["message"], match["path"] or ""
    if unknown := _UNKNOWN.match(message):
        known = ", ".join(sorted(_fields_at(shape, path)))
        return Problem(_join(path, unknown["name"]), f"no such field; there are: {known}")
    if missing := _MISSING.match(message):
        return Problem(_join(path, missing["name"]), "is missing and has no default")
    message = message[0].lower() + message[1:]
    if "[...]" in path and "config" in path:
        message += "; write other values in quotes"
    return Problem(path, message)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _fields_at(shape: type, path: str) -> tuple[str, ...]:
    """The field names of the struct at `path`, starting at `shape`."""
    for step in filter(None, path.split(".")):
        name = step.partition("[")[0]
        found = _struct_in(_types(shape).get(name))
        if found is None:
            return ()
        shape = found
    return tuple(_types(shape))


@functools.cache
def _types(shape: type[msgspec.Struct]) -> Mapping[str, object]:
    """The type of each field of a struct, by its name in a document."""
    return {field.encode_name: field.type for field in msgspec.structs.fields(shape)}


def _struct_in(hint: object) -> type[msgspec.Struct] | None:
    """The struct inside `X`, `X | None` or `list[X]`."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return hint
    for argument in get_args(hint):
        if found := _struct_in(argument):
            return found
    return None


def config_values(config: dict[str, str | int]) -> dict[str, str]:
    """The configuration with all values as strings, as Kafka stores it."""
    return {key: str(value) for key, value in config.items()}
