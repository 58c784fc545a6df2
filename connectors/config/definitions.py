"""Declares settings: each once, in the field of its model, with all that is known of it.

`setting` declares a key and `family` all keys that begin with a prefix; the docstring below the field is its
documentation. Checks, messages, docs/configuration.md and Connect's definitions of a connector are read from there.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from types import EllipsisType
from typing import Any, Final, Literal, cast, get_args, get_origin

import msgspec
from annotated_types import Ge, Le
from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo

from connectors.config.fields import INT_MAX, LONG_MAX, Allowed, Folder
from connectors.placeholders import has_placeholder

Importance = Literal["high", "medium", "low"]
FIRST_RELEASE: Final = "0.1.0"


class Definition(msgspec.Struct, frozen=True):
    """What is known of a key (Connect's ConfigDef.ConfigKey).

    `type`: Connect's name of it (INT, LONG, DOUBLE, BOOLEAN, STRING, LIST, CLASS). `valid_values`: what is allowed, in
    words. `default`: its text, as in a file; None: nothing is set. `group`: the heading of its table in the docs.
    `since`: the release that first had it. `is_folder`: a relative path in it counts from the folder of the file.
    What it means is in `documentation`.
    """

    name: str
    field: str
    type: str
    valid_values: str
    default: str | None
    unit: str
    group: str
    importance: Importance
    since: str
    required: bool
    is_folder: bool


class Family(msgspec.Struct, frozen=True):
    """All keys that begin with `name`, which ends in a dot; `field` holds them by the rest of their names."""

    name: str
    field: str


def setting(
    name: str,
    default: str | EllipsisType | None,
    *,
    group: str,
    importance: Importance,
    unit: str = "",
    since: str = FIRST_RELEASE,
    ge: int | None = None,
) -> Any:
    """Declares the key `name`. `default` is what a file would say, checked as that is; `...`: required.

    `ge` is the least number allowed; the greatest comes with the type.
    """
    about: dict[str, Any] = {"group": group, "importance": importance, "unit": unit, "since": since}
    text: Any = default
    return Field(text, alias=name, validate_default=True, json_schema_extra=about, ge=ge)


def from_placeholders(model: type[BaseModel], given: Mapping[str, str]) -> dict[str, str]:
    """Returns the fields of `model` that get their values from placeholders in `given`, each with its key.

    `outputs`, which a connector's rules look at, is made of several.
    """
    known = definitions(model)
    keys_by_field = {known[key].field: key for key, text in given.items() if key in known and has_placeholder(text)}
    routing = [
        key for key, text in given.items() if key.startswith(("transforms.", "predicates.")) and has_placeholder(text)
    ]
    named = [keys_by_field[field] for field in ("topics", "output_topic_template") if field in keys_by_field]
    made_of = named + routing
    return {**keys_by_field, "outputs": made_of[0]} if made_of else keys_by_field


def family(prefix: str) -> Any:
    """Declares the keys that begin with `prefix`."""
    return Field(alias=prefix, repr=False)


@cache
def definitions(model: type[BaseModel]) -> dict[str, Definition]:
    """Returns what is known of each key of `model`, by its name, in the order of the fields."""
    return {alias: _definition(alias, name, field) for alias, name, field in _aliased(model, families=False)}


@cache
def families(model: type[BaseModel]) -> dict[str, Family]:
    """Returns the families of keys of `model`, by their prefix, in the order of the fields."""
    return {alias: Family(alias, name) for alias, name, _ in _aliased(model, families=True)}


def family_of(model: type[BaseModel], name: str) -> str | None:
    """Returns the prefix of the family of `model` that the key `name` is in; None if it is in none."""
    return next((prefix for prefix in families(model) if name.startswith(prefix) and name != prefix), None)


@cache
def documentation(model: type[BaseModel]) -> dict[str, str]:
    """Returns what each field of `model` means, in one line, by the field's name."""
    return {field: " ".join(parts) for field, parts in paragraphs(model).items()}


@cache
def paragraphs(model: type[BaseModel]) -> dict[str, tuple[str, ...]]:
    """Reads the docstring below each field of `model`: its paragraphs, each in one line, by the field's name.

    The first says what the field means, the others give details. They are read from the source when they are asked
    for: pydantic (`use_attribute_docstrings`) does so at each start.
    """
    return {
        field.target.id: tuple(" ".join(part.split()) for part in text.split("\n\n"))
        for kind in _kinds(model)
        for field, below in pairwise(ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0].body)  # type: ignore[attr-defined]  # it is a class
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and (text := _text(below))
    }


def _text(node: ast.stmt) -> str | None:
    match node:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return text
    return None


def _kinds(model: type[BaseModel]) -> list[type[BaseModel]]:
    """Returns the classes that declare the fields of `model`: its own first, then those that it inherits from."""
    return [kind for kind in model.__mro__ if issubclass(kind, BaseModel) and kind is not BaseModel]


def _aliased(model: type[BaseModel], *, families: bool) -> Iterator[tuple[str, str, FieldInfo]]:
    """Yields the name in a file, the name in the model, and the field itself, of single keys or of families."""
    fields = model.model_fields
    for name in (name for kind in _kinds(model) for name in kind.__annotations__ if name in fields):
        field = fields[name]
        if field.alias and field.alias.endswith(".") is families:
            yield field.alias, name, field


def _definition(alias: str, name: str, field: FieldInfo) -> Definition:
    kind, words = _kind(field)
    about: dict[str, Any] = field.json_schema_extra  # type: ignore[assignment]  # as `setting` gives it
    return Definition(
        name=alias,
        field=name,
        type=kind,
        valid_values=words,
        default=None if field.is_required() else field.default,
        required=field.is_required(),
        is_folder=any(isinstance(each, Folder) for each in _metadata(field)),
        **about,
    )


def _kind(field: FieldInfo) -> tuple[str, str]:
    """Returns Connect's type and, in words, what is allowed: from `Allowed`, the words of a Literal, or the bounds."""
    about = _metadata(field)
    said = next((each for each in about if isinstance(each, Allowed)), None)
    if said and said.type:
        return said.type, said.words
    if words := _words(field.annotation):
        return "STRING", _either(words)
    most = min(cast("int", each.le) for each in about if isinstance(each, Le))
    least = max((cast("int", each.ge) for each in about if isinstance(each, Ge)), default=0)
    return ("INT" if most <= INT_MAX else "LONG"), said.words if said else _whole_number(least, most)


def _words(annotation: Any) -> tuple[str, ...]:
    """Returns the words of a Literal, also of one that may be None; none of any other type."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    parts = (getattr(part, "__origin__", None) for part in get_args(annotation) if hasattr(part, "__metadata__"))
    return next((get_args(part) for part in parts if get_origin(part) is Literal), ())


def _whole_number(least: int, most: int) -> str:
    return f"a whole number, {least} {'or more' if most in (INT_MAX, LONG_MAX) else f'to {most}'}"


def _either(words: tuple[str, ...]) -> str:
    return " or ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else words[0]


def _metadata(field: FieldInfo) -> tuple[Any, ...]:
    """Returns what is annotated to a field, and to its type within `… | None`."""
    inner = (each for part in get_args(field.annotation) for each in getattr(part, "__metadata__", ()))
    return (*field.metadata, *inner)
