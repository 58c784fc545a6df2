"""The rules of the house that a program can hold: who imports whom, sizes, clocks, and what the repository may name."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sysconfig
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import TypeAlias

import grimp
import pytest

ROOT = Path(__file__).parents[2]
LONGEST_FILE = 450  # lines
MOST_MODULES = 25  # in a folder: what a reader takes in at a look
MOST_CONSTRUCTOR_PARAMETERS = 7
CLOCKS = {
    "time": {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "localtime", "gmtime"},
    "datetime": {"now", "utcnow", "today"},
    "date": {"today"},
    "Timestamp": {"now", "utcnow", "today"},
}
OTHER_CLOCKS = {
    "connectors/chain_turns.py",  # turns of parts of a ms
    "connectors/data/collector.py",  # calls that take less than a ms
    "connectors/java_pattern.py",  # matches of parts of a ms
    "connectors/spark/executor_archive.py",  # the ages of files
}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# What must never be committed: paths of one machine, and where its package index is. The parts of each are kept
# apart here, so that this file does not hold what it looks for.
_MACHINE = (
    "/work" + "/",
    "/root" + "/",
    "/tmp/" + r"(?!keyfold)\w",
    "/home/" + r"(?!keyfold\b)\w+/",
    "/Users" + r"/\w",
)
_INDEX = (
    "--(?:extra-)?index" + "-url",
    "--find" + "-links",
    r"https?://(?:[\w.-]*\.)?(?:pypi|pythonhosted)" + r"\.\w+",
    r"https?://(?:repo\d*\.maven|registry\.npmjs|static\.crates|proxy\.golang)" + r"\.\w+",
)
FORBIDDEN = re.compile("|".join((*(r"(?<![\w.\-}/])" + path for path in _MACHINE), *_INDEX)))

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


def _sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


@cache  # each rule looks at all of them
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def _tests(path: Path) -> Iterator[Function]:
    return (node for node in ast.walk(_tree(path)) if isinstance(node, _FUNCTIONS) and node.name.startswith("test_"))


def _where(path: Path, node: ast.AST) -> str:
    return f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"


def _reads_clock(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(value=ast.Name(id=owner) | ast.Attribute(attr=owner), attr=name):
            return name in CLOCKS.get(owner, ())
        case ast.ImportFrom(module="time", names=names):
            return any(each.name in CLOCKS["time"] for each in names)
    return False


def _constructor_parameters(node: ast.ClassDef) -> int:
    """How many parameters its own __init__ takes, without self."""
    inits = [each for each in node.body if isinstance(each, _FUNCTIONS) and each.name == "__init__"]
    return sum(len(init.args.posonlyargs + init.args.args + init.args.kwonlyargs) - 1 for init in inits)


def _tracked() -> list[Path]:
    """The files that git has or would take, as far as they are text."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip("this is no git checkout")
    paths = [ROOT / name.decode() for name in done.stdout.split(b"\0") if name]
    return [path for path in paths if path.is_file() and b"\0" not in path.read_bytes()[:4096]]


def test_imports_go_one_way() -> None:
    """The engine imports neither connectors nor Kafka, HTTP, settings or the command line."""
    command = Path(sysconfig.get_path("scripts"), "lint-imports")
    done = subprocess.run([command, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_no_module_needs_itself() -> None:
    """No module imports, through others and within functions too, what imports it."""
    graph = grimp.build_graph("compactor", "connectors", cache_dir=None)
    TopologicalSorter({each: graph.find_modules_directly_imported_by(each) for each in graph.modules}).prepare()


def test_engine_reads_no_clock() -> None:
    """In compactor the time is an argument: nothing there asks a clock."""
    readers = [
        _where(path, node) for path in _sources("compactor") for node in ast.walk(_tree(path)) if _reads_clock(node)
    ]
    assert readers == []


def test_worker_has_one_clock() -> None:
    """In connectors clock.py alone reads the time, but for a few modules of which each has its reason."""
    readers = {
        str(path.relative_to(ROOT))
        for path in _sources("connectors")
        for node in ast.walk(_tree(path))
        if _reads_clock(node)
    }
    assert readers == {"connectors/clock.py", *OTHER_CLOCKS}


@pytest.mark.parametrize(
    ("code", "reads"),
    [
        ("time.time()", True),
        ("time.monotonic_ns()", True),
        ("from time import time", True),
        ("datetime.now(UTC)", True),
        ("datetime.datetime.now()", True),
        ("pd.Timestamp.now()", True),
        ("time.sleep(1)", False),
        ("clock.now()", False),
        ("datetime.fromtimestamp(1, UTC)", False),
    ],
)
def test_clock_readers_are_found(code: str, reads: bool) -> None:
    """The search for clock readers knows the usual ways to ask one, and lets the others be."""
    assert any(_reads_clock(node) for node in ast.walk(ast.parse(code))) is reads


def test_types_are_decoded_by_one_function() -> None:
    """Threads that decode a type for the first time at once may end the process: `json_types` keeps them apart."""
    typed = [
        _where(path, node)
        for path in _sources("compactor", "connectors")
        if path.name != "json_types.py"
        for node in ast.walk(_tree(path))
        if _learns_a_type(node)
    ]
    assert typed == []


@pytest.mark.parametrize(
    ("code", "learns"),
    [
        ("msgspec.json.decode(data, type=Head)", True),
        ("msgspec.convert(result, tuple[CleanedLog, ...])", True),
        ("from msgspec import convert", True),
        ("from msgspec.json import decode", True),
        ("msgspec.json.decode(data)", False),
        ("convert(value)", False),
        ("from msgspec import Struct", False),
        ("decoded_as(data, Head)", False),
    ],
)
def test_learners_of_types_are_found(code: str, learns: bool) -> None:
    """The search for what teaches msgspec a type knows its functions by whatever way they are called."""
    assert any(_learns_a_type(node) for node in ast.walk(ast.parse(code))) is learns


def _learns_a_type(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        names = {alias.name for alias in node.names}
        return (node.module or "").startswith("msgspec") and bool(names & {"convert", "decode"})
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    is_typed = any(keyword.arg == "type" for keyword in node.keywords)
    return ast.unparse(node.func) == "msgspec.convert" or (node.func.attr == "decode" and is_typed)


def test_files_are_short() -> None:
    """No file of the product has more than 450 lines."""
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in _sources("compactor", "connectors")}
    assert [str(path.relative_to(ROOT)) for path, lines in lengths.items() if lines > LONGEST_FILE] == []


def test_folders_are_small() -> None:
    """No folder of the product has more than 25 modules."""
    modules = Counter(path.parent for path in _sources("compactor", "connectors") if path.name != "__init__.py")
    assert [str(folder.relative_to(ROOT)) for folder, count in modules.items() if count > MOST_MODULES] == []


def test_a_class_name_means_one_thing() -> None:
    """No two modules of the product define public classes of the same name."""
    found: dict[str, list[str]] = {}
    for path in _sources("compactor", "connectors"):
        for node in _tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(_where(path, node))
    assert [places for places in found.values() if len(places) > 1] == []


NAMED_FILE = re.compile(r"(?<![\w/.<>{}-])[a-z_][a-z0-9_/]*\.py\b")


def test_documents_name_files_that_exist() -> None:
    """Every Python file that a document names is one of the repository, by its path or the end of it."""
    tracked = {f"/{path.relative_to(ROOT)}" for path in _tracked() if path.suffix == ".py"}
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    lost = [
        f"{document.relative_to(ROOT)}: {name}"
        for document in documents
        if document.name != "CHANGELOG.md"
        for name in NAMED_FILE.findall(document.read_text(encoding="utf-8"))
        if not any(path.endswith(f"/{name}") for path in tracked)
    ]
    assert lost == []


def test_constructors_are_small() -> None:
    """No constructor takes more than seven parameters."""
    found = [
        _where(path, node)
        for path in _sources("compactor", "connectors")
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.ClassDef) and _constructor_parameters(node) > MOST_CONSTRUCTOR_PARAMETERS
    ]
    assert found == []


def test_tests_say_what_they_prove() -> None:
    """Every test has a docstring: the rule that it proves."""
    silent = [_where(path, test) for path in _sources("tests") for test in _tests(path) if not ast.get_docstring(test)]
    assert silent == []


def test_folders_are_packages() -> None:
    """Every folder with Python in it that is installed or tested has an __init__.py, so that all are found."""
    folders = {path.parent for path in _sources("compactor", "connectors", "tests")}
    assert sorted(str(folder.relative_to(ROOT)) for folder in folders if not (folder / "__init__.py").is_file()) == []


@pytest.mark.skipif(shutil.which("git") is None, reason="git lists the files")
def test_files_name_no_machine() -> None:
    """No file of the repository names a path of somebody's machine or the address of a package index."""
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]}"
        for path in _tracked()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1)
        if (match := FORBIDDEN.search(line))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("line", "forbidden"),
    [
        ("see /work" + "/main/x", True),
        ("pip install --index" + "-url x", True),
        ("https://pypi" + ".org/simple", True),
        ("https://repo1" + ".maven.org/maven2", True),
        ("https://registry" + ".npmjs.org/x", True),
        ("/tmp/" + "proto/v", True),
        ("/home/" + "ann/keyfold", True),
        ("/usr/local/share/keyfold", False),
        ("useradd --home-dir /home/keyfold", False),
        ("docs/work/plan.md", False),
    ],
)
def test_machine_names_are_found(line: str, forbidden: bool) -> None:
    """The search for machine paths and index addresses finds them, and lets ordinary paths be."""
    assert bool(FORBIDDEN.search(line)) is forbidden
