"""What transforms share: what they ask of a value, and paths to fields (KIP-821).

Source: `org.apache.kafka.connect.transforms.util`, Requirements, SchemaUtil and SingleFieldPath.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from connectors.data.bounds import DEEPEST
from connectors.data.schema import Field, Schema, Type
from connectors.errors import DataError
from connectors.options import Option

REPLACE_NULL: Final = Option(
    "replace.null.with.default",
    "BOOLEAN",
    default=True,
    doc="A null in a field with a default stands for the default.",
)
SYNTAX: Final = Option(
    "field.syntax.version",
    "STRING",
    "V1",
    "`V2`: dots in the names of fields lead into structures; a name with a dot stands between backticks (KIP-821).",
    allowed=("V1", "V2"),
    any_case=True,
    importance="HIGH",
)


def check_some(fields: list[str]) -> str | None:
    """Returns what is wrong with a list of fields that may not be empty, or None (`Option.check`)."""
    return None if fields else "at least one field is needed."


def require_map(value: Any, purpose: str) -> dict[str, Any]:
    """Returns `value`, which has no schema, as a map. Raises DataError for anything else."""
    if isinstance(value, dict):
        return value
    raise DataError(
        f"Only maps are supported without a schema for {purpose}, and this is a {_kind(value)}.",
        "" if value is None else "Set the converter (key.converter, value.converter) that reads the record's fields.",
    )


def require_struct(schema: Schema, value: Any, purpose: str) -> dict[str, Any]:
    """Returns `value` as a struct of `schema`. Raises DataError for anything else, as for a null."""
    if schema.type is Type.STRUCT and isinstance(value, dict):
        return value
    raise DataError(f"Only structs are supported for {purpose}, and this is a {_kind(value)}.")


def _kind(value: Any) -> str:
    return "null" if value is None else "text" if isinstance(value, str) else type(value).__name__


def field_value(field: Field, struct: dict[str, Any], *, defaults: bool = True) -> Any:
    """Returns a field's value in `struct`; with `defaults` its default for a null (`Struct.get`)."""
    value = struct.get(field.name)
    return field.schema.default if value is None and defaults else value


def with_fields(schema: Schema, fields: Iterable[Field]) -> Schema:
    """Returns a schema with the basics of `schema` (SchemaUtil.copySchemaBasics) and other fields."""
    return replace(schema, fields=tuple(fields))


def basics(schema: Schema) -> Schema:
    """Returns the basics alone: without what says whether it is optional, and without its default."""
    return replace(schema, optional=False, default=None)


def path_of(text: str, syntax: str) -> tuple[str, ...]:
    """Reads a path to a field.

    Raises ValueError for a backtick that is not closed, or closes nothing, and for more than DEEPEST steps.
    """
    if syntax.upper() == "V1" or ("." not in text and "`" not in text):
        return (text,)
    steps: list[str] = []
    rest = text
    while len(steps) < DEEPEST:
        step, rest, more = _quoted_step(text, rest) if rest.startswith("`") else _plain_step(rest)
        steps.append(step)
        if not more:
            return tuple(steps)
    raise ValueError(f"a path may have {DEEPEST} steps.")


def _plain_step(rest: str) -> tuple[str, str, bool]:
    step, dot, behind = rest.partition(".")
    return step, behind, bool(dot)


def _quoted_step(text: str, rest: str) -> tuple[str, str, bool]:
    """Reads a step between backticks; one within it is escaped by a backslash."""
    at = 1
    while (at := rest.find("`", at)) >= 0:
        behind = rest[at + 1 : at + 2]
        if behind in {"", "."} and rest[at - 1] != "\\":
            return rest[1:at].replace("\\`", "`"), rest[at + 2 :], behind == "."
        if behind in {"", "."} and rest[at - 1] == "\\" and behind == "":
            break
        at += 1
    raise ValueError(f"a backtick of {text} is not closed, or stands before something else than a dot.")


def check_path(text: str, syntax: str) -> str | None:
    """Returns what is wrong with a path."""
    try:
        path_of(text, syntax)
    except ValueError as error:
        return str(error)
    return None


def follow(path: Sequence[str], value: Any) -> Any:
    """Returns what lies at `path` in a map without a schema; None if there is nothing. Raises DataError."""
    for step in path:
        if value is None:
            return None
        value = require_map(value, f"the path {'.'.join(path)}").get(step)
    return value


def schema_at(path: Sequence[str], schema: Schema) -> Schema | None:
    """Returns the schema at `path`; None if there is no such field."""
    inner: Schema | None = schema
    for step in path:
        if inner is None or inner.type is not Type.STRUCT:
            return None
        field = inner.field(step)
        inner = field.schema if field else None
    return inner
