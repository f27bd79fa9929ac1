"""Modules of commands load what does the work when a command runs, not for its options.

`--help`, a wrong command line and the shell's completion need a command's options alone, while
asyncio and the client cost more than twice the time of click. So while a command's module is
loaded, `from logfleet.client.admin import Admin` binds a `Late` in its place. Before the command's
function runs, `load` imports all modules that wait and puts the real objects where the `Late` are.

As with the lazy imports of Python 3.15 (PEP 810), the first use of a `Late` loads it, so a module
that uses one at its top level works, and saves nothing. mypy and tests import the modules as usual.
"""

import builtins
import contextlib
import functools
import gc
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

PACKAGE: Final = "logfleet.cli."
"""Imports by modules in here may wait."""
WITHOUT_OPTIONS: Final = (
    "logfleet.cli.advice",
    "logfleet.cli.contexts.model",
    "logfleet.cli.documents",
    "logfleet.cli.record_text",
)
"""Modules in here that wait as those elsewhere do."""
OTHERS: Final = frozenset(
    {"aiohttp", "asyncio", "difflib", "json", "msgspec", "structlog", "yaml", *WITHOUT_OPTIONS}
)
"""Modules that wait, beside those of logfleet outside the command line."""

LIGHT: Final = frozenset(
    {"logfleet.balance.limits", "logfleet.log.names", "logfleet.resources.limits"}
)
"""Modules that cost little and that modules of commands use while they are loaded.

The sets of file names in `machine.dump_files`, for one: a `Late` in a set is equal to no name.
"""


class Late:
    """Stands for a module, or an object of it, that is loaded at its first use."""

    __slots__ = ("_module", "_name")

    def __init__(self, module: str, name: str = "") -> None:
        self._module = module
        self._name = name

    def real(self) -> Any:
        """The object itself; its module is imported. Raises ImportError."""
        module = importlib.import_module(self._module)
        if not self._name:
            return module
        try:
            return getattr(module, self._name)
        except AttributeError:
            return importlib.import_module(f"{self._module}.{self._name}")

    def __getattr__(self, name: str) -> Any:
        return getattr(_loaded(self), name)

    def __call__(self, *args: Any, **options: Any) -> Any:
        return _loaded(self)(*args, **options)

    def __iter__(self) -> Iterator[Any]:
        return iter(_loaded(self))

    def __getitem__(self, key: Any) -> Any:
        return _loaded(self)[key]

    def __index__(self) -> int:
        return int(_loaded(self))

    def __str__(self) -> str:
        return str(_loaded(self))

    def __bool__(self) -> bool:
        return bool(_loaded(self))

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, _loaded(self))

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[Any, ...]:
        """The class itself, where it is the base of another (PEP 560)."""
        del bases
        return (_loaded(self),)

    def __or__(self, other: object) -> "_Union":
        return _Union()

    __ror__ = __or__


class _Union:
    """`Client | None` while Client is a `Late`: good for annotations, and for nothing else."""

    def __or__(self, other: object) -> "_Union":
        return self

    __ror__ = __or__


class _Module:
    """What a module that waits is to the statement `from module import name`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Late:
        return Late(self._name, name)


@contextlib.contextmanager
def loading_quickly() -> Iterator[None]:
    """Import modules inside. This saves a fifth of the processor time of a broker's start.

    Imports create hardly any garbage, so the collector is off. structlog imports rich if it is
    installed, for tracebacks that we do not use; None in its place is Python's way to mark it as
    missing.
    """
    if sys.modules.get("rich", "") is None:
        yield  # inside of another
        return
    gc.disable()
    hidden = sys.modules.get("rich")
    sys.modules["rich"] = None  # type: ignore[assignment]  # importlib's documented meaning
    try:
        yield
    finally:
        del sys.modules["rich"]
        if hidden is not None:
            sys.modules["rich"] = hidden
        gc.enable()


_waiting: list[dict[str, Any]] = []
"""Namespaces of the modules that may hold a `Late`."""


def load() -> None:
    """Import everything that waits, and put it where the `Late` are. Raises ImportError."""
    with loading_quickly():
        while _waiting:
            namespace = _waiting.pop()  # its module may still be loading, and add itself again
            for name, value in list(namespace.items()):
                if isinstance(value, Late):
                    namespace[name] = value.real()


def _loaded(late: Late) -> Any:
    load()  # all of them: an `except` of the same module must not meet a Late
    return late.real()


@contextlib.contextmanager
def late_imports() -> Iterator[None]:
    """Inside, imports by modules of the command line wait (see the module)."""
    importing = builtins.__import__

    def late_import(
        name: str,
        into: Mapping[str, object] | None = None,
        local: Mapping[str, object] | None = None,
        wanted: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        by = into.get("__name__") if into is not None else None
        if (
            isinstance(into, dict)
            and isinstance(by, str)
            and by.startswith(PACKAGE)
            and into is local  # at the top of the module, not in a function
            and level == 0
            and _may_wait(name)
        ):
            if not any(into is each for each in _waiting):
                _waiting.append(into)
            return _Module(name) if wanted else Late(name)
        return importing(name, into, local, wanted or (), level)

    builtins.__import__ = late_import  # type: ignore[assignment]
    try:
        with loading_quickly():
            yield
    finally:
        builtins.__import__ = importing


def _may_wait(name: str) -> bool:
    if name in sys.modules or name in LIGHT:
        return False
    return name in OTHERS or (name.startswith("logfleet.") and not name.startswith(PACKAGE))


def loading(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which loads what waits before it runs."""

    @functools.wraps(function)
    def run(*args: Any, **options: Any) -> Any:
        load()
        return function(*args, **options)

    return run
