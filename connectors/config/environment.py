"""The worker's settings in the environment: `KEYFOLD_BOOTSTRAP_SERVERS` is `bootstrap.servers`; it wins over it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from pydantic.fields import FieldInfo
from pydantic_settings import PydanticBaseSettingsSource

from connectors.config import suggest
from connectors.config.faults import Fault, FaultyConfigError
from connectors.config.keys import WORKER_KEYS, WORKER_PREFIXES

PREFIX: Final = "KEYFOLD_"
OTHERS: Final = frozenset({"KEYFOLD_FAILPOINTS", "KEYFOLD_IVY_SETTINGS"})
"""Variables of keyfold that are no settings of a worker."""


class EnvironmentSource(PydanticBaseSettingsSource):
    """pydantic-settings' source of the variables above; gives the names of the file."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:  # noqa: ARG002  # theirs
        """Nothing: variables are not looked up field by field."""
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        """The settings of this process's environment."""
        return settings_of(os.environ)


def variable(name: str) -> str:
    """The variable of the setting `name`."""
    return PREFIX + name.replace(".", "_").upper()


def settings_of(environ: Mapping[str, str]) -> dict[str, str]:
    """The settings among `environ`, under their names in the file.

    An underscore of a variable is a dot of the name, so names with capitals or underscores (some of Spark's) can only
    stand in the file. Raises ConfigError for variables that begin with `KEYFOLD_` and are nothing of keyfold's.
    """
    names = {name: _name(name) for name in environ if name.startswith(PREFIX) and name not in OTHERS}
    strange = [name for name, found in names.items() if not found]
    faults = [Fault(name, suggest.unknown(name, _variables(), "variable")) for name in strange]
    if strange:
        raise FaultyConfigError("environment", faults)
    return {found: environ[name] for name, found in names.items() if found}


def _name(name: str) -> str | None:
    found = name.removeprefix(PREFIX).lower().replace("_", ".")
    families = any(found.startswith(prefix.name) and found != prefix.name for prefix in WORKER_PREFIXES)
    return found if found in WORKER_KEYS or families else None


def _variables() -> tuple[str, ...]:
    return (*OTHERS, *map(variable, WORKER_KEYS))
