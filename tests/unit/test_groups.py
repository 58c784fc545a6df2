"""Tests that share a fixture stay in one process: without that a module's fixture is made in each of them."""

from __future__ import annotations

import os

import pytest


def test_the_tests_of_a_file_stay_together(request: pytest.FixtureRequest) -> None:
    """Groups are told by a suffix of the node's id; another version of pytest may drop it without a word."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        pytest.skip("one process")
    assert request.node.nodeid.endswith("@unit/test_groups.py")
