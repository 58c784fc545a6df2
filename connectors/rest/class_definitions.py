"""Tells of converters, transforms and predicates as `/connector-plugins` does: their names, and their settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from connectors.chain.spec import PREDICATE_OPTIONS, TRANSFORM_OPTIONS, ChainSpec, chain_spec
from connectors.class_names import ClassNames
from connectors.converters.names import CONVERTERS, HEADER_CONVERTERS
from connectors.options import REQUIRED, Option
from connectors.rest import shapes
from connectors.rest.views import VERSION
from connectors.transforms.names import PREDICATES, TRANSFORMS

_KINDS: Final[Mapping[str, ClassNames]] = {
    "transformation": TRANSFORMS,
    "predicate": PREDICATES,
    "converter": CONVERTERS,
    "header_converter": HEADER_CONVERTERS,
}


def classes() -> list[shapes.PluginInfo]:
    """Lists all of them, each under its full names."""
    return [
        shapes.PluginInfo.model_validate({"class": name, "type": kind, "version": VERSION})
        for kind, names in _KINDS.items()
        for name in dict.fromkeys((*names.java_names(), *_full_aliases(names)))
    ]


def settings_of(plugin: str) -> list[shapes.ConfigKeyInfo] | None:
    """Lists the settings of the class `plugin`; None if there is no such class."""
    for names in _KINDS.values():
        try:
            place = names.find(plugin).of
        except ValueError:
            continue
        return _infos(place.load().OPTIONS, "", "Common")
    return None


def settings_in(given: Mapping[str, str]) -> list[shapes.ConfigKeyInfo]:
    """Lists the settings of the transforms and predicates that a connector's config names, with their prefixes."""
    spec = chain_spec(given)
    return [*_of_transforms(spec), *_of_predicates(spec)]


def _of_transforms(spec: ChainSpec) -> Iterator[shapes.ConfigKeyInfo]:
    for step in spec.steps:
        own = _options(TRANSFORMS, step.of.name)
        yield from _infos((*TRANSFORM_OPTIONS, *own), f"transforms.{step.alias}.", f"Transforms: {step.alias}")


def _of_predicates(spec: ChainSpec) -> Iterator[shapes.ConfigKeyInfo]:
    for alias, named in spec.predicates.items():
        own = _options(PREDICATES, named.name)
        yield from _infos((*PREDICATE_OPTIONS, *own), f"predicates.{alias}.", f"Predicates: {alias}")


def _options(names: ClassNames, name: str) -> tuple[Option, ...]:
    try:
        options: tuple[Option, ...] = names.find(name).of.load().OPTIONS
    except ValueError:
        return ()
    return options


def _full_aliases(names: ClassNames) -> Iterator[str]:
    return (alias for name in names.known for alias in name.aliases if "." in alias)


def _infos(options: Iterable[Option], prefix: str, group: str) -> list[shapes.ConfigKeyInfo]:
    return [
        shapes.ConfigKeyInfo(
            name=prefix + option.name,
            type=option.kind,
            required=option.default is REQUIRED,
            default_value=_text(option.default),
            importance=option.importance,
            documentation=f"{option.doc} Allowed: {option.valid_values}.",
            group=group,
            width="SHORT" if option.kind in {"BOOLEAN", "INT"} else "MEDIUM",
            display_name=prefix + option.name,
            dependents=[],
            order_in_group=place,
        )
        for place, option in enumerate(options, start=1)
    ]


def _text(default: Any) -> str | None:
    """Returns a default as a file would say it."""
    if default is None or default is REQUIRED:
        return None
    if isinstance(default, bool):
        return str(default).lower()
    return ",".join(map(str, default)) if isinstance(default, list | tuple) else str(default)
