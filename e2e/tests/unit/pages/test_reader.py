from e2e.pages.reader import Block, blocks

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
