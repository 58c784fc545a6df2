"""Settings of converters, transforms and predicates are checked before a start; each fault is named on its key."""

from __future__ import annotations

import pytest

from connectors.chain.routing import routed
from connectors.chain.spec import chain_faults, chain_spec, is_plain

FILTER = {"transforms": "f", "transforms.f.type": "Filter"}


@pytest.mark.parametrize(
    ("settings", "key", "said"),
    [
        ({"value.converter": "JsonConvertor"}, "value.converter", "did you mean"),
        (
            {"value.converter": "Json", "value.converter.schemas.enable": "yes"},
            "value.converter.schemas.enable",
            "true",
        ),
        ({"value.converter": "Json", "value.converter.schema.enable": "x"}, "value.converter.schema.enable", "it has"),
        ({"key.converter.schemas.enable": "false"}, "key.converter.schemas.enable", "set that too"),
        ({"transforms": "f"}, "transforms.f.type", "required"),
        ({"transforms": "f,f", "transforms.f.type": "Filter"}, "transforms", "twice"),
        ({**FILTER, "transforms.g.type": "Filter"}, "transforms.g", "add it there"),
        ({**FILTER, "transforms.f.predicate": "p"}, "transforms.f.predicate", "does not name"),
        ({**FILTER, "transforms.f.negate": "true"}, "transforms.f.negate", "no transforms.f.predicate"),
        ({"transforms": "v", "transforms.v.type": "ValueToKey"}, "transforms.v.fields", "required"),
        (
            {"transforms": "v", "transforms.v.type": "Cast$Value", "transforms.v.spec": "a:int"},
            "transforms.v.spec",
            "int8",
        ),
        ({"transforms": "r", "transforms.r.type": "TimestampRouter"}, "transforms.r.type", "one output topic"),
        (
            {
                "transforms": "r",
                "transforms.r.type": "RegexRouter",
                "transforms.r.regex": "(",
                "transforms.r.replacement": "x",
            },
            "transforms.r.regex",
            "not allowed",
        ),
        (
            {
                "transforms": "r",
                "transforms.r.type": "RegexRouter",
                "transforms.r.regex": "a",
                "transforms.r.replacement": "b",
                "transforms.r.predicate": "p",
                "predicates": "p",
                "predicates.p.type": "RecordIsTombstone",
            },
            "transforms.r.predicate",
            "one output topic",
        ),
        ({"predicates": "p", "predicates.p.type": "HasHeaderKey"}, "predicates.p.name", "required"),
    ],
)
def test_a_fault_is_named_on_its_key(settings: dict[str, str], key: str, said: str) -> None:
    """With a sentence that says what to do."""
    faults = [(fault, text) for fault, text in chain_faults(settings, str) if fault == key]
    assert faults
    assert said in faults[0][1]


def test_a_secret_that_cannot_be_resolved_is_a_fault() -> None:
    """It is told on the class's key."""

    def resolve(text: str) -> str:
        raise ValueError(f"{text} cannot be resolved")

    settings = {"value.converter": "Json", "value.converter.schemas.enable": "${env:X}"}
    assert chain_faults(settings, resolve)


def test_a_connector_without_converter_has_the_worker_s_with_its_settings() -> None:
    """A connector that names one has nothing of the worker's."""
    worker = {"value.converter": "Json", "value.converter.schemas.enable": "false"}
    spec = chain_spec({"key.converter": "String"}, worker)
    assert (spec.value.name, spec.value.texts) == ("Json", {"schemas.enable": "false"})
    own = chain_spec({"value.converter": "String"}, worker)
    assert (own.value.name, own.value.texts) == ("String", {})


@pytest.mark.parametrize(
    ("topic", "expected"), [("db.public.orders", "orders"), ("db.public.$x", "$x"), ("other", "other")]
)
def test_a_router_gives_a_topic_its_name_without_any_record(topic: str, expected: str) -> None:
    """The output topic is known before anything is read."""
    settings = {
        "transforms": "r",
        "transforms.r.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.r.regex": "db\\.public\\.(.*)",
        "transforms.r.replacement": "$1",
    }
    assert routed(chain_spec(settings), topic, str) == expected


def test_a_router_keeps_to_its_predicate() -> None:
    """TopicNameMatches looks at the topic as it is by then."""
    settings = {
        "transforms": "a,b",
        "transforms.a.type": "RegexRouter",
        "transforms.a.regex": "(.*)",
        "transforms.a.replacement": "x.$1",
        "transforms.b.type": "RegexRouter",
        "transforms.b.regex": "(.*)",
        "transforms.b.replacement": "y.$1",
        "transforms.b.predicate": "p",
        "predicates": "p",
        "predicates.p.type": "TopicNameMatches",
        "predicates.p.pattern": "x\\.t",
    }
    assert routed(chain_spec(settings), "t", str) == "y.x.t"
    assert routed(chain_spec(settings), "u", str) == "x.u"


def test_the_newest_version_of_a_subject_is_not_written_with() -> None:
    """The setting is refused by its name, with what to do, where it would say so."""
    avro = {"value.converter": "keyfold.Avro", "value.converter.schema.registry.url": "http://a"}
    latest = "value.converter.use.latest.version"
    assert chain_faults({**avro, latest: "false"}, str) == ()
    ((key, text),) = chain_faults({**avro, latest: "true"}, str)
    assert key == latest
    assert "auto.register.schemas" in text


def test_a_router_alone_does_nothing_with_a_record() -> None:
    """Records pass as they are, without a look at each; with another step, or an identity, they do not."""
    router = {"transforms.r.type": "org.apache.kafka.connect.transforms.RegexRouter"}
    routers = {**router, "transforms": "r,s", "transforms.s.type": "RegexRouter"}
    assert is_plain(chain_spec(routers))
    assert is_plain(chain_spec({}))
    assert not is_plain(chain_spec({**routers, "compaction.key.identity": "json"}))
    assert not is_plain(chain_spec({**routers, "transforms.s.type": "InsertHeader"}))
