"""The file of contexts: ~/.config/logfleet/contexts.toml (XDG Base Directory Specification)."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from logfleet.cli.contexts.model import Contexts, WrongContext, fields_of, make_context

MODE: Final = 0o600
FOLDER_MODE: Final = 0o700


def xdg_folder(variable: str, default: str, environment: Mapping[str, str]) -> Path:
    """Our folder under an XDG folder. default: relative to the home directory.

    Raises OSError if there is no home directory.
    """
    given = Path(environment.get(variable, ""))
    if given.is_absolute():  # the specification: a relative path is ignored
        return given / "logfleet"
    try:
        return Path.home() / default / "logfleet"
    except RuntimeError as error:
        raise OSError("there is no home directory") from error


def contexts_path(environment: Mapping[str, str] = os.environ) -> Path:
    """The path of the file. Raises OSError if there is no home directory."""
    return xdg_folder("XDG_CONFIG_HOME", ".config", environment) / "contexts.toml"


def load_contexts() -> Contexts:
    """The contexts, none if there is no file. Raises WrongContext, naming the file."""
    try:
        path = contexts_path()
        text = path.read_text()
    except FileNotFoundError:
        return Contexts()
    except (OSError, UnicodeDecodeError) as error:
        raise WrongContext(f"contexts cannot be read: {error}") from error
    try:
        return parse_contexts(text)
    except WrongContext as error:
        raise WrongContext(f"{path}: {error}; correct or remove it") from error


def parse_contexts(text: str) -> Contexts:
    """The contexts of a file's text. Raises WrongContext."""
    import tomllib  # most commands find no file

    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise WrongContext(str(error)) from error
    tables, current = document.get("contexts", {}), document.get("current")
    if not isinstance(tables, dict) or not isinstance(current, str | None):
        raise WrongContext("it has [contexts.NAME] tables, and current is a name")
    found = {}
    for name, fields in tables.items():
        if not isinstance(fields, dict):
            raise WrongContext(f"contexts.{name} is no table")
        found[name] = make_context(name, fields)
    return Contexts(found, current if current in found else None)


def contexts_text(contexts: Contexts) -> str:
    """The text of the file, as `parse_contexts` reads it."""
    lines = [] if contexts.current is None else [f"current = {_quoted(contexts.current)}", ""]
    for name, context in sorted(contexts.all.items()):
        lines.append(f"[contexts.{_quoted(name)}]")
        for key, value in fields_of(context).items():
            shown = str(value).lower() if isinstance(value, bool) else _quoted(value)
            lines.append(f"{_quoted(key)} = {shown}")
        lines.append("")
    return "\n".join(lines)


def _quoted(text: str) -> str:
    """A basic string of TOML; of printable characters only, it is one of JSON."""
    return json.dumps(text, ensure_ascii=False)


def store_contexts(contexts: Contexts) -> None:
    """Replace the file, which only its owner can read. Raises OSError."""
    path = contexts_path()
    path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    write_privately(path, contexts_text(contexts))


def write_privately(path: Path, text: str) -> None:
    """Replace a file at once; only its owner can read it. Raises OSError."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, MODE)
    try:
        with os.fdopen(descriptor, "w") as file:
            os.fchmod(descriptor, MODE)  # whatever the umask and an older draft had
            file.write(text)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
