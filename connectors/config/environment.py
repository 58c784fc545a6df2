"""The worker's settings in the environment: `KEYFOLD_BOOTSTRAP_SERVERS` is `bootstrap.servers`; it wins over it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Final

from pydantic.fields import FieldInfo
from pydantic_settings import PydanticBaseSettingsSource

from connectors.config import suggest
from connectors.config.keys import WORKER_KEYS, WORKER_PREFIXES

PREFIX: Final = "KEYFOLD_"
OTHERS: Final = frozenset({"KEYFOLD_FAILPOINTS", "KEYFOLD_IVY_SETTINGS"})
"""Variables of keyfold that are no settings of a worker."""
_KUBERNETES: Final = re.compile(
    r"KEYFOLD_(\w+_)?(SERVICE_HOST=.*|SERVICE_PORT(_\w+)?=\d*|PORT(_\d+_(TCP|UDP|SCTP))?=\w+://.*"
    r"|PORT_\d+_(TCP|UDP|SCTP)_(PROTO|PORT|ADDR)=.*)"
)
"""What Kubernetes sets in each container for a service that is named `keyfold` or `keyfold-…`, with its value."""


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
    stand in the file. Other variables that begin with `KEYFOLD_` set nothing.
    """
    return {found: text for name, text in environ.items() if (found := _name(name, text))}


def strange(environ: Mapping[str, str]) -> tuple[str, ...]:
    """A sentence for each variable that begins with `KEYFOLD_` and is nothing of keyfold's, perhaps misspelt.

    Those that Kubernetes sets for its services are nobody's mistake.
    """
    return tuple(
        f"{name}: {suggest.unknown(name, _variables(), 'variable')} It sets nothing."
        for name, text in sorted(environ.items())
        if name.startswith(PREFIX) and name not in OTHERS and not _name(name, text) and not _of_kubernetes(name, text)
    )


def _name(name: str, text: str) -> str | None:
    """The setting that the variable `name` with the value `text` is."""
    if not name.startswith(PREFIX) or name in OTHERS:
        return None
    found = name.removeprefix(PREFIX).lower().replace("_", ".")
    if found in WORKER_KEYS:
        return found
    families = any(found.startswith(prefix.name) and found != prefix.name for prefix in WORKER_PREFIXES)
    return found if families and not _of_kubernetes(name, text) else None


def _of_kubernetes(name: str, text: str) -> bool:
    return _KUBERNETES.fullmatch(f"{name}={text}") is not None


def _variables() -> tuple[str, ...]:
    return (*OTHERS, *map(variable, WORKER_KEYS))
