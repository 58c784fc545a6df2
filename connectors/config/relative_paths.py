"""Makes relative paths in a file absolute when it is read: they count from the folder that the file is in."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from connectors.config.definitions import Definition
from connectors.config.fields import is_folder, local_path
from connectors.placeholders import UNLIMITED, Limits, resolve

_FAMILIES: Final = re.compile(r"(consumer|producer|admin)\.")
_FILES: Final = (".location", ".file")
"""What the names of clients' settings end in that hold paths, Java's and librdkafka's."""
_PROVIDED: Final = re.compile(r"\$\{(file|directory):([^}/][^}]*)\}")


def folder_of(path: Path) -> Path:
    """Returns the folder that paths in the file `path` count from; for a pipe (`<(…)`) the current folder."""
    return path.absolute().parent if path.is_file() else Path.cwd()


def anchored(
    raw: Mapping[str, Any], keys: Mapping[str, Definition], folder: Path, limits: Limits = UNLIMITED
) -> dict[str, Any]:
    """Makes relative paths in `raw` count from `folder`: folders, files of clients' settings, placeholders of files.

    Settings of Spark stay as they are but for placeholders. A text that is wrong stays too: its validator refuses it.
    `limits` are those of the placeholders.
    """
    return {name: _anchored(name, value, keys, folder, limits) for name, value in raw.items()}


def _anchored(name: str, value: Any, keys: Mapping[str, Definition], folder: Path, limits: Limits) -> Any:
    if not isinstance(value, str):
        return value
    end = value.rfind("}") + 1  # up to there each search ends soon, whatever a value holds
    text = _PROVIDED.sub(lambda provided: f"${{{provided[1]}:{folder}/{provided[2]}}}", value[:end]) + value[end:]
    place = _place(name, keys)
    return text if place is None else _from(text, folder, place, limits)


def _place(name: str, keys: Mapping[str, Definition]) -> Callable[[str], Path] | None:
    """Returns how the path in the setting `name` is read; None if it holds none."""
    if name in keys:
        return _folder if keys[name].is_folder else None
    return _clients_file if _FAMILIES.match(name) and name.endswith(_FILES) else None


def _folder(text: str) -> Path:
    if text.lower() == "none" or not is_folder(text):
        raise ValueError("no path")
    return local_path(text)


def _clients_file(text: str) -> Path:
    if text in ("", "probe"):  # librdkafka's word for the system's certificates
        raise ValueError("no path")
    return Path(text)


def _from(text: str, folder: Path, place: Callable[[str], Path], limits: Limits) -> str:
    try:
        meant = resolve(text, limits, is_shown=True).strip()
        path = place(meant)
    except ValueError:
        return text
    if path.is_absolute():
        return text
    is_url = path != Path(meant)
    return str(folder / path) if is_url else f"{folder}/{text.strip()}"
