"""Translates Java's `sasl.jaas.config` to librdkafka's settings."""

from __future__ import annotations

import re
from typing import Final

from connectors.config.errors import RefusedValueError

_ENTRY = re.compile(r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(.*?);?\s*", re.DOTALL | re.IGNORECASE)
_OPTION = re.compile(r"\s*([\w.]+)\s*=\s*(?:\"((?:\\.|[^\"\\])*)\"|'((?:\\.|[^'\\])*)'|([^\s;\"']+))", re.DOTALL)
_PASSWORDS: Final = {"username": "sasl.username", "password": "sasl.password"}
_MODULES: Final[dict[str, dict[str, str]]] = {
    "PlainLoginModule": _PASSWORDS,
    "ScramLoginModule": _PASSWORDS,
    "OAuthBearerLoginModule": {
        "clientId": "sasl.oauthbearer.client.id",
        "clientSecret": "sasl.oauthbearer.client.secret",
        "scope": "sasl.oauthbearer.scope",
    },
}
_EXTENSION: Final = "extension_"


def parse_jaas(text: str) -> dict[str, str]:
    """Reads the settings of one JAAS entry: `…PlainLoginModule required username="u" password="p";`.

    Raises ValueError, which never holds the entry's values, for another module, an unknown option or bad form.
    """
    entry = _ENTRY.fullmatch(text)
    if not entry:
        raise RefusedValueError('it must have the form MODULE required NAME="VALUE" …;')
    names = _MODULES.get(entry[1].rpartition(".")[2])
    if names is None:
        raise RefusedValueError(f"the login modules known are {', '.join(_MODULES)}.")
    return _settings(names, _options(entry[2]))


def _options(text: str) -> dict[str, str]:
    options: dict[str, str] = {}
    at = 0
    while text[at:].strip():
        option = _OPTION.match(text, at)
        if not option:
            raise RefusedValueError('an option after the module\'s name does not have the form NAME="VALUE".')
        options[option[1]] = _value(option)
        at = option.end()
    return options


def _value(option: re.Match[str]) -> str:
    quoted = option[2] if option[2] is not None else option[3]
    return option[4] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)


def _settings(names: dict[str, str], options: dict[str, str]) -> dict[str, str]:
    extensions = [f"{n.removeprefix(_EXTENSION)}={v}" for n, v in options.items() if n.startswith(_EXTENSION)]
    strange = [name for name in options if name not in names and not name.startswith(_EXTENSION)]
    if strange:
        raise RefusedValueError(f"librdkafka has no equal for options besides {', '.join(names)}.")
    translated = {names[name]: value for name, value in options.items() if name in names}
    return translated | ({"sasl.oauthbearer.extensions": ",".join(extensions)} if extensions else {})
