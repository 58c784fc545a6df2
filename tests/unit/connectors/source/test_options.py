"""The options of the source: what is refused, what is not shown, what is pickled."""

from __future__ import annotations

import json
import pickle

import pytest

from connectors.errors import ConfigError
from connectors.source import plan
from connectors.source.offsets import TopicOffsets, encode
from connectors.source.options import SourceOptions, parse
from connectors.source.plan import SourceRange
from tests.support.clients import source_clients


def options(**extra: str) -> SourceOptions:
    plain = {"connector": "c", **source_clients({"bootstrap.servers": "127.0.0.1:1"})}
    return parse({**plain, **({} if "topics.regex" in extra else {"topics": '["a", "b"]'}), **extra})


def topic(name: str, *offsets: int) -> dict[str, TopicOffsets]:
    return {name: TopicOffsets(f"id-{name}", dict(enumerate(offsets)))}


@pytest.mark.parametrize(
    ("extra", "names"),
    [
        ({"topicz": "x"}, "topicz"),
        ({"topics.regex": "a("}, "topics.regex"),
        ({"topics.regex": "a", "topics": "[]"}, "exactly one"),
        ({"tasks.max": "0"}, "tasks.max"),
        ({"max.offsets.per.trigger": "1e3"}, "max.offsets.per.trigger"),
        ({"on.data.loss": "maybe"}, "on.data.loss"),
        ({"starts": '{"a": 1}'}, "starts"),
        ({"consumer.config": "{"}, "consumer.config"),
        ({"ranges": "false"}, "ranges"),
    ],
)
def test_a_wrong_option_is_named(extra: dict[str, str], names: str) -> None:
    """An option that is unknown or has no sense is refused by its name."""
    with pytest.raises(ConfigError, match=names):
        options(**extra)


def test_options_do_not_show_secrets() -> None:
    """Neither the options nor an error about them print a client's settings."""
    secret = '{"bootstrap.servers": "h:1", "sasl.password": "hunter2"}'
    assert "hunter2" not in repr(options(**{"consumer.config": secret}))
    with pytest.raises(ConfigError) as caught:
        options(**{"consumer.config": '{"sasl.password": ["hunter2"]}'})
    assert "hunter2" not in str(caught.value)


def test_options_and_splits_travel() -> None:
    """What Spark sends to its workers survives pickling."""
    made = (options(starts=json.dumps(encode(topic("a", 1)))), plan.splits([SourceRange("a", "id-a", 0, 0, 5)], 1))
    assert pickle.loads(pickle.dumps(made)) == made
