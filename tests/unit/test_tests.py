"""Tests do not know the inside of what they try, counted: they replace names and use private ones no more than now.

A limit may only fall: lower it after a change that brings its count down. What is to be small, or another, is passed
as a value (timings, a factory, a clock), or the real thing is used.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cache

import pytest

from tests.unit.test_structure import ROOT

REPLACED = 161  # `monkeypatch.setattr`, `patch.setattr`, `patch.object`: a name of a module or class is replaced
PRIVATE = 76  # `thing._name`, `from package.module import _name`

PRODUCT = ("compactor", "connectors", "benchmarks")
# Public in spite of their names: of named tuples and of Python itself.
PUBLIC = {"_replace", "_asdict", "_fields", "_make", "_exit", "_getframe"}
# Of PySpark, which has no other way to its JVM.
PYSPARK = {"_jvm", "_jsc", "_jdf", "_gateway", "_jsparkSession"}


def replaced(source: str) -> int:
    """Counts the names that are replaced while a test runs."""
    calls = (node.func for node in _nodes(source) if isinstance(node, ast.Call))
    return sum(_is_replacing(call) for call in calls)


def _is_replacing(call: ast.expr) -> bool:
    match call:
        case ast.Attribute(attr="setattr"):
            return True
        case ast.Attribute(value=ast.Name(id="patch") | ast.Attribute(attr="patch"), attr="object"):
            return True
    return False


def private(source: str) -> int:
    """Counts the uses of private names of others: a class may use its own, by `self` and `cls`."""
    return sum(_private_names(node) for node in _nodes(source))


def _private_names(node: ast.AST) -> int:
    match node:
        case ast.Attribute(value=ast.Name(id="self" | "cls" | "KafkaError")):  # librdkafka's own codes begin with _
            return 0
        case ast.Attribute(attr=name):
            return _is_private(name)
        case ast.ImportFrom(module=str(module), names=names) if module.split(".")[0] in PRODUCT:
            return sum(_is_private(each.name) for each in names)
    return 0


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in PUBLIC | PYSPARK


@cache  # both counts are of the same files
def _tests() -> tuple[str, ...]:
    return tuple(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))


@cache
def _nodes(source: str) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(source)))


def test_names_are_not_replaced() -> None:
    """A test that replaces a name holds for one way to write the product only."""
    assert sum(map(replaced, _tests())) <= REPLACED


def test_private_names_are_not_used() -> None:
    """What a test asks of a class, others may ask."""
    assert sum(map(private, _tests())) <= PRIVATE


@pytest.mark.parametrize(
    ("count", "source", "number"),
    [
        (replaced, "monkeypatch.setattr(module, 'NAME', 1)\nsetattr(made, 'name', 1)\n", 1),
        (replaced, "with monkeypatch.context() as other:\n    other.setattr(module, 'NAME', 1)\n", 1),
        (replaced, "mock.patch.object(module, 'name')\npatch.object(module, 'name')\n", 2),
        (replaced, "monkeypatch.setenv('NAME', '1')\n", 0),
        (private, "made._name\nmade._inner._name\n", 3),
        (private, "self._name\ncls._name\nmade.__class__\n", 0),
        (private, "row._replace(a=1)\nKafkaError._FENCED\nspark._jvm\n", 0),
        (private, "from compactor.runs.scan import _name, other\nfrom tests.support import _name\n", 1),
    ],
)
def test_what_is_counted(count: Callable[[str], int], source: str, number: int) -> None:
    """Each count knows a use of another's name from one's own."""
    assert count(source) == number
