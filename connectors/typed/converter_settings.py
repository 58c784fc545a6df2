"""Says by which converters a typed snapshot is read and written again: those in its manifest, or those that are given.

A manifest is only as trustworthy as all who may write into `snapshot.location`. So nothing of it is a placeholder that
would be resolved here, a file that would be opened, or an address that would be sent a password of the reader's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from compactor.secret_forms import HIDDEN
from connectors.chain.connect_settings import OTHER_NAMES
from connectors.chain.spec import ChainSpec, ClassSpec, chain_faults, chain_spec
from connectors.converters.names import CONVERTERS
from connectors.credentials import without_logins
from connectors.errors import ConfigError
from connectors.options import Option
from connectors.placeholders import has_placeholder, resolve

CLASS: Final = "class"
"""The name of a converter's class among its settings in a manifest."""
SIDES: Final = ("key", "value")
GIVE: Final = (
    "Give the settings of the connector's converters: --connector CONNECTOR.json; in Python converters=, for example "
    '{"value.converter": "keyfold.Avro", "value.converter.schema.registry.url": "http://127.0.0.1:8081"}.'
)
"""What a person does if a manifest does not say how keys or values are read."""


def shown_settings(spec: ClassSpec) -> dict[str, str]:
    """Returns the settings of a converter that anybody may see: no password, file, placeholder, login or query."""
    options = _options(spec.name)
    return {name: text for name, text in spec.texts.items() if _is_shown(options.get(_own(name)), text)}


def settings_of(chain: ChainSpec) -> dict[str, str]:
    """Returns the settings of what writes the records of a connector with `chain`, as a connector file has them."""
    return {**_flat("key", chain.written_key), **_flat("value", chain.written_value)}


def stored_chain(kept: Mapping[str, Mapping[str, str]], given: Mapping[str, str]) -> ChainSpec:
    """Returns a chain of the converters of a snapshot's keys and values; of which nothing is known, they stay bytes.

    `kept` are those of its manifest, by side, and `given` are settings as a connector file has them. If these name a
    class, only they count for it. If they say how a registry is asked, nothing of that is taken from the manifest.
    Raises ConfigError for what is not allowed, or is missing.
    """
    settings = dict(given)
    if strange := sorted(name for name in given if not name.startswith(("key.converter", "value.converter"))):
        raise ConfigError(f"{strange[0][:200]} is no setting of a converter of keys or values.", GIVE)
    for side in SIDES:
        if (spec := _merged(kept.get(side, {}), side, given)) is not None:
            settings |= _flat(side, spec)
    if faults := chain_faults(settings, resolve):
        raise ConfigError("; ".join(f"{name}: {text}" for name, text in faults), GIVE)
    return chain_spec(settings)


def _merged(kept: Mapping[str, str], side: str, given: Mapping[str, str]) -> ClassSpec | None:
    """Returns the converter that the manifest names, with what is given; None if that names another, or nothing."""
    prefix = f"{side}.converter."
    if CLASS not in kept or f"{side}.converter" in given:
        return None
    options = _options(kept[CLASS])
    own = {name.removeprefix(prefix): text for name, text in given.items() if name.startswith(prefix)}
    replaced = {_own(name) for name in own}
    if any(_says_how_asked(options.get(name)) for name in replaced):
        replaced |= {name for name, option in options.items() if _says_how_asked(option)}
    texts = shown_settings(ClassSpec(kept[CLASS], {name: text for name, text in kept.items() if name != CLASS}))
    return ClassSpec(kept[CLASS], {**{name: text for name, text in texts.items() if _own(name) not in replaced}, **own})


def _flat(side: str, spec: ClassSpec) -> dict[str, str]:
    texts = {f"{side}.converter.{name}": text for name, text in spec.texts.items()}
    return {f"{side}.converter": spec.name, **texts}


def _options(name: str) -> dict[str, Option]:
    """Returns the settings of a class by their names; none if there is no such class."""
    try:
        return {option.name: option for option in CONVERTERS.find(name).of.load().OPTIONS}
    except ValueError:
        return {}


def _own(name: str) -> str:
    return OTHER_NAMES.get(name, name)


def _is_shown(option: Option | None, text: str) -> bool:
    if option is None or option.is_file or option.kind == "PASSWORD" or has_placeholder(text):
        return False
    return not option.of_server or (without_logins(text, HIDDEN) == text and not set(text) & set("?@"))


def _says_how_asked(option: Option | None) -> bool:
    """Returns whether a setting says how a server is asked, or who asks it."""
    return option is not None and (option.of_server or option.is_file or option.kind == "PASSWORD")
