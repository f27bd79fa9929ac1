"""Conditions on records in Python's own notation, as `value.dest == "LAX" and "x" in key`.

`ast` parses the text, and only a few kinds of nodes are accepted: names, fields, indexes,
constants, comparisons, `in`, `and`, `or`, `not`. There are no calls and no arithmetic, so a
condition from a stranger ends after a time that is linear in text and record, and reads nothing but
the record. Each node becomes one closure.

    key, value          the text; bytes that are not UTF-8 have lone surrogates (PEP 383)
    value.a["b c"][0]   a field of the document that the bytes hold, JSON by default; None if there
                        is no such field
    value > 30          beside a number, a bare key or value is its document too
    headers["name"]     the text of the last header of that name; headers.name is the same
    timestamp           milliseconds since 1970
    offset, partition   numbers

A comparison of things without an order, such as a text with a number, is false.
"""

import ast
import operator
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

from logfleet.records.record import Record

TEXT_MAX: Final = 1000
"""Longest condition, in characters, so that the nesting of its closures stays below Python's."""
FORMS: Final = "write names, fields, indexes, constants, comparisons, in, and, or, not"


class WhereError(ValueError):
    """A malformed condition; the message names the column, from 1, and says what to write."""


Document: TypeAlias = Callable[[bytes], object]
"""Reads bytes into dicts, lists, texts and numbers; None for bytes that are no document."""


def json_document(data: bytes) -> object:
    """The document in JSON; None for anything else."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


class Where:
    """A condition. Raises WhereError for a text that is none.

    document: how the bytes of keys and values are read for their fields.
    """

    def __init__(self, text: str, *, document: Document = json_document) -> None:
        self.text = text
        self._document = document
        self._test = _compile(text)

    def holds(self, record: Record, partition: int = -1) -> bool:
        """Whether the record of this partition fulfils the condition. Never raises."""
        return bool(self._test(_Subject(record, partition, self._document)))


class _Subject:
    """A record under test. Its documents are read at most once."""

    __slots__ = ("_documents", "_read", "partition", "record")

    def __init__(self, record: Record, partition: int, read: Document) -> None:
        self.record, self.partition = record, partition
        self._read = read
        self._documents: dict[str, object] = {}

    def document(self, name: str) -> object:
        if name not in self._documents:
            data = self.record.key if name == "key" else self.record.value
            self._documents[name] = None if data is None else self._read(data)
        return self._documents[name]


_Term: TypeAlias = Callable[[_Subject], object]


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="surrogateescape")


def _headers(subject: _Subject) -> dict[str, str | None]:
    return {name: _text(value) for name, value in subject.record.headers}


_NAMES: Final[dict[str, _Term]] = {
    "key": lambda subject: _text(subject.record.key),
    "value": lambda subject: _text(subject.record.value),
    "headers": _headers,
    "timestamp": lambda subject: subject.record.timestamp,
    "offset": lambda subject: subject.record.offset,
    "partition": lambda subject: subject.partition,
}
_DOCUMENTS: Final[dict[str, _Term]] = {
    "key": lambda subject: subject.document("key"),
    "value": lambda subject: subject.document("value"),
}
_CONTAINERS: Final = _DOCUMENTS | {"headers": _headers}
_Compare: TypeAlias = Callable[[Any, Any], object]
_COMPARISONS: Final[dict[type[ast.cmpop], _Compare]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.eq,  # of None, True and False; identity means nothing for what was decoded
    ast.IsNot: operator.ne,
    ast.In: lambda left, right: operator.contains(right, left),
    ast.NotIn: lambda left, right: not operator.contains(right, left),
}


def _compile(text: str) -> _Term:
    if len(text) > TEXT_MAX:
        raise WhereError(f"a condition of {len(text)} characters, the limit is {TEXT_MAX}")
    stripped = text.strip()
    if not stripped:
        raise WhereError(f"an empty condition: {FORMS}")
    try:
        tree = ast.parse(stripped, mode="eval")
        return _term(tree.body, stripped)
    except SyntaxError as error:
        column = error.offset or len(stripped) + 1  # 0: at the end
        raise WhereError(f"column {column}: {error.msg}; {FORMS}") from None
    except (RecursionError, MemoryError):
        raise WhereError("the condition is nested too deeply") from None


def _term(node: ast.expr, text: str) -> _Term:
    match node:
        case ast.BoolOp(op=ast.And(), values=values):
            terms = [_term(each, text) for each in values]
            return lambda subject: all(term(subject) for term in terms)
        case ast.BoolOp(values=values):
            terms = [_term(each, text) for each in values]
            return lambda subject: any(term(subject) for term in terms)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            term = _term(operand, text)
            return lambda subject: not term(subject)
        case ast.Compare():
            return _comparisons(node, text)
        case ast.Name(id=name):
            if name not in _NAMES:
                raise _refused(node, text, f"there is no name {name}; {', '.join(_NAMES)} are")
            return _NAMES[name]
        case ast.Attribute() | ast.Subscript():
            return _field(node, text)
    constant = _constant(node, text)
    return lambda _: constant


def _constant(node: ast.expr, text: str) -> object:
    """A text, number, True, False, None, or a list of them."""
    match node:
        case ast.Constant(value=str() | int() | float() | None as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
            return [_constant(each, text) for each in items]
    raise _refused(node, text, FORMS)


def _field(node: ast.Attribute | ast.Subscript, text: str) -> _Term:
    """A field or element of a document, or a header."""
    match node.value:
        case ast.Name(id=name) if name in _CONTAINERS:
            container = _CONTAINERS[name]
        case ast.Attribute() | ast.Subscript() as inner:
            container = _field(inner, text)
        case _:
            raise _refused(node, text, f"only {', '.join(_CONTAINERS)} have fields")
    if isinstance(node, ast.Attribute):
        index: object = node.attr
    else:
        index = _constant(node.slice, text)
    if not isinstance(index, str | int) or isinstance(index, bool):
        raise _refused(node, text, "an index is a text or a whole number")
    return lambda subject: _element(container(subject), index)


def _element(container: object, name: str | int) -> object:
    if isinstance(container, dict):
        return container.get(name)
    if isinstance(container, list) and isinstance(name, int):
        return container[name] if -len(container) <= name < len(container) else None
    return None


def _comparisons(node: ast.Compare, text: str) -> _Term:
    operands = [node.left, *node.comparators]
    has_number = any(_is_number(each) for each in operands)
    terms = [
        _DOCUMENTS[each.id]
        if has_number and isinstance(each, ast.Name) and each.id in _DOCUMENTS
        else _term(each, text)
        for each in operands
    ]
    tests = [
        _comparison(left, _COMPARISONS[type(op)], right)
        for left, op, right in zip(terms, node.ops, terms[1:], strict=False)
    ]
    if len(tests) == 1:
        return tests[0]
    return lambda subject: all(test(subject) for test in tests)


def _is_number(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp):
        node = node.operand
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, int | float)
        and not isinstance(node.value, bool)
    )


def _comparison(left: _Term, compare: _Compare, right: _Term) -> _Term:
    def test(subject: _Subject) -> object:
        try:
            return compare(left(subject), right(subject))
        except TypeError:  # a text and a number, a missing field and anything
            return False

    return test


def _refused(node: ast.expr, text: str, why: str) -> WhereError:
    """An error that names the node's place; `ast` counts columns in bytes of UTF-8."""
    column = len(text.encode()[: node.col_offset].decode(errors="replace")) + 1
    source = ast.get_source_segment(text, node) or text
    return WhereError(f"column {column}, {source!r}: {why}")
