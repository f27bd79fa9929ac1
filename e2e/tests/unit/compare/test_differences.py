"""Every field that differs is found, where it stands, and no other."""

from e2e.compare.differences import ABSENT, Difference, differences


def test_equal_answers_do_not_differ() -> None:
    answer = {"topics": [{"name": "t", "partitions": [{"partition_index": 0}]}]}
    assert list(differences(answer, answer)) == []


def test_a_field_is_found_by_the_identities_of_its_rows_whatever_their_order() -> None:
    def answer(*rows: tuple[str, int]) -> dict[str, object]:
        return {"topics": [{"name": name, "error_code": code} for name, code in rows]}

    assert list(differences(answer(("a", 0), ("b", 3)), answer(("b", 5), ("a", 0)))) == [
        Difference("topics[b].error_code", 3, 5)
    ]


def test_a_row_that_one_lacks_differs_as_a_whole() -> None:
    kafka, ours = {"keys": [{"api_key": "Fetch"}]}, {"keys": [{"api_key": "Produce"}]}
    assert list(differences(kafka, ours)) == [
        Difference("keys[Fetch]", {"api_key": "Fetch"}, ABSENT),
        Difference("keys[Produce]", ABSENT, {"api_key": "Produce"}),
    ]


def test_rows_that_share_an_identity_are_compared_in_their_order() -> None:
    same = [{"name": "t", "error_code": 0}, {"name": "t", "error_code": 3}]
    assert list(differences(same, same[::-1])) == [
        Difference("[0].error_code", 0, 3),
        Difference("[1].error_code", 3, 0),
    ]


def test_where_errors_differ_nothing_else_does() -> None:
    kafka = {"error_code": 3, "base_offset": -1, "rows": []}
    ours = {"error_code": 0, "base_offset": 7, "rows": [1]}
    assert list(differences({"row": kafka}, {"row": ours})) == [Difference("row.error_code", 3, 0)]


def test_values_of_other_types_differ_even_if_python_calls_them_equal() -> None:
    assert list(differences({"a": 0}, {"a": False})) == [Difference("a", 0, False)]
    assert list(differences("<connection closed>", {"a": 1})) == [
        Difference("", "<connection closed>", {"a": 1})
    ]
    assert list(differences({"a": None}, {"a": []})) == [Difference("a", None, [])]
