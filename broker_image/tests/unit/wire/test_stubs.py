import ast

from logfleet.wire import messages, stubs
from logfleet.wire.schema import load_table


def test_the_stub_names_every_class_and_every_field() -> None:
    tree = ast.parse(stubs.text())
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    assert classes.keys() == load_table().keys()
    for name, node in classes.items():
        cls = getattr(messages, name)
        assert annotated(node) == list(cls.__struct_fields__)
        for inner in node.body:
            if isinstance(inner, ast.ClassDef):
                assert annotated(inner) == list(getattr(cls, inner.name).__struct_fields__)


def annotated(node: ast.ClassDef) -> list[str]:
    return [
        item.target.id
        for item in node.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    ]


def test_nullable_fields_are_optional() -> None:
    text = stubs.text()
    assert "    topics: list[MetadataRequest.MetadataRequestTopic] | None\n" in text
    assert "    current_leader: ProduceResponse.LeaderIdAndEpoch | None\n" in text
    assert "        records: bytes | memoryview | Sized | None\n" in text
