"""What a JVM that this process starts is told of its surroundings, because it would not find that out for itself.

A container may run under a user id without an account, without a home and with a read-only root. Java then has `?` for
a home and for a name, and it never looks at TMPDIR.
"""

from __future__ import annotations

import os
import pwd
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_LOCALE: Final = "LC_ALL"
_ASCII_ONLY: Final = ("C", "POSIX")
_UTF_8: Final = "C.UTF-8"
_JAVAS_FOLDER: Final = "/tmp"  # noqa: S108  # what Java takes by itself
_NAMELESS: Final = "keyfold"
_ROOT: Final = Path("/")


def java_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables in which a JVM's environment differs from `environment`.

    With LC_ALL=C Java cannot open a file with a name that is not ASCII. Python overrides the weaker LC_CTYPE and LANG
    itself (PEP 538), for its child processes as well.
    """
    return {_LOCALE: _UTF_8} if environment.get(_LOCALE) in _ASCII_ONLY else {}


def java_properties(environment: Mapping[str, str], spare_home: Path) -> list[str]:
    """Returns the options that tell a JVM its home, its user and the folder for its temporary files.

    None for what Java finds out itself. `spare_home` is the home of an account that has none.
    """
    options = []
    if (folder := tempfile.gettempdir()) != _JAVAS_FOLDER:
        options.append(f"-Djava.io.tmpdir={folder}")
    if nameless_user(environment) is not None:
        options.append(f"-Duser.name={nameless_user(environment)}")
    usable = [home for home in homes(environment) if home.is_dir() and os.access(home, os.W_OK | os.X_OK)]
    if Path(_known_home() or _ROOT) not in usable:
        options.append(f"-Duser.home={next(iter(usable), spare_home)}")
    return options


def nameless_user(environment: Mapping[str, str]) -> str | None:
    """Returns a name for the user of this process if the system has none; None if it has one."""
    if _account() is not None:
        return None
    names = (environment.get(name) for name in ("HADOOP_USER_NAME", "USER", "LOGNAME"))
    return next(filter(None, names), _NAMELESS)


def homes(environment: Mapping[str, str]) -> list[Path]:
    """Returns the home folders by HOME and by the system's accounts; not `/`, which is set for who has none."""
    named = map(Path, filter(None, (environment.get("HOME"), _known_home())))
    return [home for home in named if home.is_absolute() and home != _ROOT]


def _known_home() -> str | None:
    account = _account()
    return None if account is None else account.pw_dir


def _account() -> pwd.struct_passwd | None:
    try:
        return pwd.getpwuid(os.getuid())
    except KeyError:
        return None
