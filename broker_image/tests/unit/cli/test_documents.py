from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest
from logfleet.cli.documents import STDIN, Document, DocumentError, read_documents


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_file_may_hold_several_documents_and_empty_ones_are_none(tmp_path: Path) -> None:
    path = written(tmp_path / "a.yaml", "---\nkind: A\n---\n# nothing\n---\nkind: B\n")
    assert read_documents([path]) == [
        Document(f"{path} document 1", {"kind": "A"}),
        Document(f"{path} document 3", {"kind": "B"}),
    ]


def test_a_folder_stands_for_its_files_in_alphabetical_order(tmp_path: Path) -> None:
    written(tmp_path / "b.yml", "kind: B")
    written(tmp_path / "a.json", '{"kind": "A"}')
    written(tmp_path / "notes.txt", "no: document")
    (tmp_path / "c.yaml").mkdir()
    assert [each.content for each in read_documents([tmp_path])] == [{"kind": "A"}, {"kind": "B"}]


def test_standard_input_is_a_file_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO("name: ü".encode())))
    assert read_documents([STDIN]) == [Document("standard input", {"name": "ü"})]


def test_a_list_is_taken_apart(tmp_path: Path) -> None:
    path = written(tmp_path / "a.yaml", "kind: List\nitems: [{kind: A}, {kind: B}]")
    assert read_documents([path]) == [
        Document(f"{path} items[0]", {"kind": "A"}),
        Document(f"{path} items[1]", {"kind": "B"}),
    ]


def test_a_date_is_a_text_as_it_is_on_kubernetes(tmp_path: Path) -> None:
    path = written(tmp_path / "a.yaml", "at: 2013-01-01T00:00:00Z\nday: 2013-01-01")
    (document,) = read_documents([path])
    assert document.content == {"at": "2013-01-01T00:00:00Z", "day": "2013-01-01"}


@pytest.mark.parametrize(
    "text, words",
    [
        ("a: [1", "line 1: "),
        ("a: 1\nb: {c: 1, d: 2, c: 3}", "line 2: c stands there twice, leave one out"),
        ("? [a]\n: b", "line 1: "),
        ("a: !!python/object:os.system {}", "line 1: "),
        ("a: \x00", "this is no YAML"),
        ("[" * 5000, "is nested too deeply"),
        ("a: !!int x", "this is no YAML"),
        ("kind: List\nitems: 3", "items: is missing or no list"),
    ],
)
def test_what_is_no_document_is_told_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    path = written(tmp_path / "a.yaml", text)
    with pytest.raises(DocumentError) as wrong:
        read_documents([path])
    assert str(wrong.value).startswith(str(path))
    assert words in str(wrong.value)
    assert "\n" not in str(wrong.value)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"a: \xff\xfe\xfd")
    with pytest.raises(DocumentError, match="this is no YAML"):
        read_documents([tmp_path / "a.yaml"])


def test_an_empty_folder_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=r"no \.json, \.yaml, \.yml file"):
        read_documents([tmp_path])
