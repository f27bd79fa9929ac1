from e2e.pages.reader import ACTIVATE, Block, blocks

PAGE = """# Title
Here:

```sh
one
serve --port 1   # until Ctrl-C
```

In a second terminal:
```sh
two
```

```python
not for a shell
```

On Kubernetes, elsewhere:

```sh
kubectl apply
```
"""


def test_blocks_are_found_with_what_stands_before_them() -> None:
    first, second, third = blocks(PAGE)
    assert first == Block("Here:", "one\nserve --port 1   # until Ctrl-C\n")
    assert second == Block("In a second terminal:", "two\n")
    assert third.lead == "On Kubernetes, elsewhere:"
    assert [each.is_for_here for each in (first, second, third)] == [True, True, False]
    assert [each.runs_on for each in (first, second, third)] == [True, False, False]


def test_a_page_may_name_what_it_is_read_with() -> None:
    broker, first, *_ = blocks("<!-- with: logfleet broker -->\n" + PAGE)
    assert broker.runs_on
    assert broker.commands == f"{ACTIVATE}logfleet broker   # until Ctrl-C\n"
    assert first == Block("Here:", f"{ACTIVATE}one\nserve --port 1   # until Ctrl-C\n")


def test_a_block_that_cannot_run_here_says_why() -> None:
    (never,) = blocks("<!-- run: never: needs a disk that failed -->\n```sh\nlogfleet mend\n```\n")
    assert not never.is_for_here
