"""docs/cdc.md is what Debezium does."""

from __future__ import annotations

import pytest

from tests.support.cdc.page import described_settings
from tests.support.cdc.story import LIMIT_S, Story

pytestmark = pytest.mark.timeout(6 * LIMIT_S)


def test_the_first_table_is_equal(story: Story) -> None:
    """The page's statements, settings and program, as they stand, lead to the rows of the table."""
    assert story.first.in_snapshot() == story.first.in_database()


def test_rows_that_were_deleted_unseen_are_swept(story: Story) -> None:
    """They are there after Debezium's new snapshot, and gone after `resync --since`, as the page says."""
    assert {number for number, _ in story.ghosts} == {20, 21, 22}
    assert not set(story.ghosts) & set(story.first.in_snapshot())


def test_a_table_without_a_key_is_every_row_that_was_inserted(story: Story) -> None:
    """Equal rows as often as they are there, though Connect was killed: what it has sent twice is told by its lsn."""
    assert story.appended.in_snapshot() == story.appended.in_database()
    assert story.appended.records() >= story.appended.in_database().total()


def test_debezium_has_the_settings_that_are_described(story: Story) -> None:
    """Each has the default that its row says."""
    described = described_settings()
    assert {name: story.debezium_defaults.get(name, "no such setting") for name in described} == described
