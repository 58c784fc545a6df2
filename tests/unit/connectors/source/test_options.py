"""The options of the source: what is not shown, what is pickled."""

from __future__ import annotations

import pickle

from msgspec.structs import replace

from connectors.source import plan
from connectors.source.plan import SourceRange, TopicOffsets
from tests.support.source_options import source_options


def topic(name: str, *offsets: int) -> dict[str, TopicOffsets]:
    return {name: TopicOffsets(f"id-{name}", dict(enumerate(offsets)))}


def test_options_do_not_show_secrets() -> None:
    """They print no client's settings."""
    secret = source_options({"bootstrap.servers": "h:1", "sasl.password": "hunter2"}, ("a",))
    assert "hunter2" not in repr(secret)


def test_options_and_splits_travel() -> None:
    """What Spark sends to its workers survives pickling."""
    options, splits = source_options(starts=topic("a", 1)), plan.splits([SourceRange("a", "id-a", 0, 0, 5)], 1)
    found, parts = pickle.loads(pickle.dumps((options, splits)))
    assert (replace(found, intake=options.intake), parts) == (options, splits)
    assert found.intake.target.storage.location == options.intake.target.storage.location
