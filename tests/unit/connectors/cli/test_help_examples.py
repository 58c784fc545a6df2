"""Every command's help ends with examples, which tests/e2e/test_help_examples.py runs."""

from __future__ import annotations

import shlex

import pytest

from tests.support.cli import invoke
from tests.support.examples import examples_by_command

EXAMPLES = examples_by_command()


@pytest.mark.parametrize("command", EXAMPLES)
def test_help_ends_with_examples(command: str) -> None:
    """An example is a line that a reader can copy, also from a terminal of 80 columns; each calls the command."""
    _, _, end = invoke(*command.split(), "--help").stdout.partition("Examples:")
    lines = [line.strip() for line in end.splitlines() if line.strip()]
    assert lines
    assert lines == list(EXAMPLES[command])
    assert [line for line in lines if not line.startswith(f"keyfold {command} ") and line != f"keyfold {command}"] == []


@pytest.mark.parametrize("group", ["connectors", "dlq", "snapshot", "erase"])
def test_a_group_shows_an_example_of_each_command(group: str) -> None:
    """Its help is what a reader asks for first."""
    below = [examples for command, examples in EXAMPLES.items() if command.startswith(f"{group} ")]
    assert {examples[0] for examples in below} <= set(EXAMPLES[group])


def test_a_group_shows_all_examples_of_what_it_does_itself() -> None:
    """There is no other help that would show them."""
    assert "keyfold erase customers.json --key ann --receipt receipt.json" in EXAMPLES["erase"]


def test_examples_use_the_same_files() -> None:
    """A reader who has one folder with customers.json can try all that need a connector file."""
    words = {word for examples in EXAMPLES.values() for each in examples for word in shlex.split(each)}
    assert {word for word in words if word.endswith(".json")} == {"customers.json", "orders.json", "receipt.json"}
