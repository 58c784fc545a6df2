"""The pages about the inside name only what is there: modules, classes, functions and settings in backticks exist."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.unit.test_structure import ROOT

PAGES = (
    ROOT / "CONTRIBUTING.md",
    *(ROOT / "docs" / name for name in ("design.md", "protocol.md", "reliability.md")),
    *sorted((ROOT / "docs" / "decisions").glob("*.md")),
)
CODE = ("compactor", "connectors", "tests", "benchmarks")
FOREIGN = {
    "AdminClient.list_consumer_group_offsets",  # confluent-kafka
    "Message.headers",
    "produce_batch",
    "operator.methodcaller",  # Python
    "pandas.util.hash_array",
    "Properties.load",  # Java
    "source.scn",  # Debezium's Oracle connector
    "SparkSession.stop",  # PySpark
    "spark.sql.execution.arrow.maxBytesPerBatch",
    "InvalidInputException",  # DuckDB
    "OutOfMemoryException",
    "arg_max",
    "memory_limit",
    "temp_directory",
}
"""Names of other programs that no file of the code has."""
DATA_FILE = re.compile(r"\.(?:json|jsonl|md|parquet|png|toml|txt|lock|inprogress)$")
TOKEN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
NAME = re.compile(r"_?[A-Za-z]\w*(?:\.[A-Za-z_]\w*)*")
BLOCK = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def names(page: str) -> list[str]:
    """Returns the names of code in backticks: dotted ones, CamelCase and snake_case; single words may be English."""
    tokens = (token.removesuffix("()") for token in TOKEN.findall(BLOCK.sub("", page)))
    return [token for token in tokens if NAME.fullmatch(token) and _is_code(token)]


def _is_code(token: str) -> bool:
    return "." in token or "_" in token.strip("_") or re.search(r"[a-z][A-Z]", token) is not None


class Names(NamedTuple):
    """What the code has: the members of each module and class, all words, and all text."""

    members: Mapping[str, set[str]]
    words: set[str]
    text: str

    @classmethod
    def of(cls, sources: Mapping[str, str]) -> Names:
        """Reads the modules `sources` (text by path); a module counts by the last part of its name."""
        members: dict[str, set[str]] = {}
        for path, source in sources.items():
            tree = ast.parse(source)
            members.setdefault(Path(path).stem, set()).update(_members(tree.body))
            for node in tree.body:
                if isinstance(node, ast.ClassDef):
                    members.setdefault(node.name, set()).update(_members(node.body))
        text = "\n".join(sources.values())
        return cls(members, {*re.findall(r"\w+", text), *members}, text)

    def has(self, name: str) -> bool:
        """Returns whether the code has `name`: a word, a file, a member of a module or class, or any text."""
        owner, _, last = name.rpartition(".")
        if not owner:
            return name in self.words
        if name.endswith(".py"):
            return owner in self.members
        return last in self.members.get(owner.rpartition(".")[2], ()) or name in self.text


def unknown(page: str, code: Names) -> list[str]:
    """Returns the names of `page` that the code does not have."""
    return [name for name in names(page) if not (name in FOREIGN or DATA_FILE.search(name) or code.has(name))]


def _members(body: Iterable[ast.stmt]) -> set[str]:
    members: set[str] = set()
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                members.add(name)
            case ast.AnnAssign(target=ast.Name(id=name)):
                members.add(name)
            case ast.Assign(targets=targets):
                members |= {each.id for each in targets if isinstance(each, ast.Name)}
    return members


@cache
def _code() -> Names:
    paths = (path for folder in CODE for path in (ROOT / folder).rglob("*.py") if path != Path(__file__))
    return Names.of({str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths})


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_what_a_page_names_is_in_the_code(path: Path) -> None:
    """A module, class or function that was renamed leaves no page that still has its old name."""
    assert unknown(path.read_text(encoding="utf-8"), _code()) == []


def test_the_table_of_layers_is_what_the_linter_holds() -> None:
    """docs/design.md shows the folders of both packages as pyproject.toml orders them, high to low."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = {each["containers"][0]: each["layers"] for each in contracts if each["type"] == "layers"}
    design = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    table = design[design.index("| compactor | connectors |") :].split("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    for number, package in enumerate(("compactor", "connectors")):
        shown = [row[number].replace(", ", " | ") for row in rows if row[number]]
        assert shown == layers[package]


@pytest.mark.parametrize(
    ("page", "lost"),
    [
        ("`broker.discover`", []),
        ("`broker.discover()`", []),
        ("`gateway.discover`", ["gateway.discover"]),
        ("`broker.look`", ["broker.look"]),
        ("`KafkaBroker.discover`", []),
        ("`KafkaBroker.look`", ["KafkaBroker.look"]),
        ("`KafkaBroker`, `OldBroker`", ["OldBroker"]),
        ("`tasks.max` and `tasks.min`", ["tasks.min"]),
        ("`broker.py`, `gateway.py`", ["gateway.py"]),
        ("`known_name`, `lost_name`, `word`, `status.json`", ["lost_name"]),
        ("```\n`gateway.discover`\n```\n", []),
    ],
)
def test_a_lost_name_is_found(page: str, lost: list[str]) -> None:
    """The search resolves modules, classes and files, and takes any other dotted name that the code has as a text."""
    source = 'known_name = "tasks.max"\nclass KafkaBroker:\n    def discover(self): ...\ndef discover(): ...\n'
    assert unknown(page, Names.of({"connectors/broker.py": source})) == lost
