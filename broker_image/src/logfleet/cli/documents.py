"""Resource documents from files, folders and standard input: strict YAML, each with its place."""

from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from logfleet.cli.session import standard_input

SUFFIXES: Final = (".json", ".yaml", ".yml")
STDIN: Final = Path("-")


class DocumentError(ValueError):
    """A file is unreadable or not YAML; the message names the file and the line."""


class Document(NamedTuple):
    """where: file and number of the document in it, for messages. content: as YAML parses it."""

    where: str
    content: object


class _Loader(yaml.SafeLoader):
    """YAML as the Kubernetes API server reads it: no duplicate keys, and dates are strings."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag.endswith(":merge"):
                continue
            if key_node.value in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"{key_node.value} stands there twice, leave one out",
                    problem_mark=key_node.start_mark,
                )
            seen.add(key_node.value)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_documents(paths: Iterable[Path]) -> list[Document]:
    """All documents of these files, in order. Raises DocumentError.

    A folder stands for its .yaml, .yml and .json files, - for stdin. Empty documents are left out;
    the items of a List are documents.
    """
    return [document for path in paths for file in _files(path) for document in _read(file)]


def _files(path: Path) -> list[Path]:
    if path == STDIN or not path.is_dir():
        return [path]
    found = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES and file.is_file())
    if not found:
        raise DocumentError(f"{path}: no {', '.join(SUFFIXES)} file in this folder")
    return found


def _read(file: Path) -> list[Document]:
    name = "standard input" if file == STDIN else str(file)
    try:
        data = standard_input().read() if file == STDIN else file.read_bytes()
    except OSError as error:
        raise DocumentError(f"{name}: {error.strerror}") from error
    try:
        contents = list(yaml.load_all(data, Loader=_Loader))
    except yaml.MarkedYAMLError as error:
        raise DocumentError(f"{name}{_line(error)}: {error.problem}") from error
    except (yaml.YAMLError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise DocumentError(f"{name}: this is no YAML: {reason}") from error
    except RecursionError as error:
        raise DocumentError(f"{name}: is nested too deeply") from error
    documents = []
    for number, content in enumerate(contents, 1):
        where = name if len(contents) == 1 else f"{name} document {number}"
        documents += _documents_in(where, content)
    return documents


def _line(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    return "" if mark is None else f" line {mark.line + 1}"


def _documents_in(where: str, content: object) -> list[Document]:
    if content is None:
        return []
    if not (isinstance(content, dict) and content.get("kind") == "List"):
        return [Document(where, content)]
    items = content.get("items")
    if not isinstance(items, list):
        raise DocumentError(f"{where}: items: is missing or no list")
    return [Document(f"{where} items[{index}]", item) for index, item in enumerate(items)]
