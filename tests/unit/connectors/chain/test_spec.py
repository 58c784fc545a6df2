"""Settings of converters, transforms and predicates are checked before a start; each fault is named on its key."""

from __future__ import annotations

from pathlib import Path

import certifi
import pytest

from connectors.chain.chain import Chain
from connectors.chain.routing import routed
from connectors.chain.spec import chain_faults, chain_spec, is_plain, options_of
from connectors.converters.names import CONVERTERS

FILTER = {"transforms": "f", "transforms.f.type": "Filter"}
AVRO = {"value.converter": "AvroConverter", "value.converter.schema.registry.url": "http://registry:8081"}
EXTRACT = {"transforms": "x", "transforms.x.type": "ExtractField$Value", "transforms.x.field.syntax.version": "V2"}
PLUGIN_VERSIONS = {
    "key.converter": "StringConverter",
    "value.converter": "JsonConverter",
    "header.converter": "StringConverter",
    **FILTER,
    "predicates": "p",
    "predicates.p.type": "RecordIsTombstone",
}


def of_avro(**texts: str) -> dict[str, str]:
    """Returns a connector's settings with those of its AvroConverter; in names `__` is a dot, `_` a hyphen."""
    named = {name.replace("__", ".").replace("_", "-"): text for name, text in texts.items()}
    return AVRO | {f"value.converter.{name}": text for name, text in named.items()}


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
        *(
            ({**PLUGIN_VERSIONS, f"{at}.plugin.version": "4.1"}, f"{at}.plugin.version", "plugin versions. Remove")
            for at in ("key.converter", "value.converter", "header.converter", "transforms.f", "predicates.p")
        ),
        (
            of_avro(schema__registry__ssl__truststore__password="x"),
            "value.converter.schema.registry.ssl.truststore.password",
            "PEM, which has no password",
        ),
        (
            of_avro(schema__registry__ssl__truststore__type="JKS"),
            "value.converter.schema.registry.ssl.truststore.type",
            "export a Java keystore",
        ),
        (
            of_avro(bearer__auth__credentials__source="OAUTHBEARER"),
            "value.converter.bearer.auth.credentials.source",
            "bearer.auth.token",
        ),
        (
            {
                "value.converter": "io.apicurio.registry.utils.converter.AvroConverter",
                "value.converter.apicurio.registry.url": "http://registry:8080/api",
            },
            "value.converter.apicurio.registry.url",
            "schema.registry.url=http://HOST:8080/apis/ccompat/v7",
        ),
        (
            of_avro(apicurio__registry__headers__enabled="true"),
            "value.converter.apicurio.registry.headers.enabled",
            "before the data",
        ),
        (
            of_avro(apicurio__registry__find_latest="true"),
            "value.converter.apicurio.registry.find-latest",
            "auto-register=true",
        ),
        (
            of_avro(apicurio__auth__username="u"),
            "value.converter.apicurio.auth.username",
            "basic.auth.user.info=USER:PASSWORD",
        ),
        (
            {"value.converter": "io.apicurio.registry.utils.converter.ExtJsonConverter"},
            "value.converter",
            "ExtJsonConverter is not supported: it writes",
        ),
        (
            of_avro(basic__auth__credentials__source="USER_INFO"),
            "value.converter.basic.auth.user.info",
            "USER:PASSWORD",
        ),
        (
            of_avro(
                basic__auth__credentials__source="USER_INFO", schema__registry__basic__auth__user__info="without colon"
            ),
            "value.converter.schema.registry.basic.auth.user.info",
            "USER:PASSWORD",
        ),
        (
            of_avro(schema__registry__ssl__truststore__location="/no/such/file.pem"),
            "value.converter.schema.registry.ssl.truststore.location",
            "No such file",
        ),
        (
            of_avro(schema__registry__ssl__truststore__location=__file__),
            "value.converter.schema.registry.ssl.truststore.location",
            "no certificates in PEM",
        ),
        (
            of_avro(schema__registry__ssl__keystore__location=__file__),
            "value.converter.schema.registry.ssl.keystore.location",
            "no certificate and key in PEM",
        ),
        (
            {"value.converter": "JsonConverter", "value.converter.schema.content": "{"},
            "value.converter.schema.content",
            "no JSON",
        ),
        (
            {"value.converter": "JsonConverter", "value.converter.schema.content": '{"type": "number"}'},
            "value.converter.schema.content",
            "no schema",
        ),
        (
            {"header.converter": "JsonConverter", "header.converter.schema.content": "{"},
            "header.converter.schema.content",
            "no JSON",
        ),
        *(
            ({"header.converter": name}, "header.converter", "and no headers")
            for name in ("io.confluent.connect.avro.AvroConverter", "AvroConverter", "keyfold.Protobuf")
        ),
        ({**EXTRACT, "transforms.x.field": "`a.b"}, "transforms.x.field", "backtick"),
        (
            {
                "transforms": "r",
                "transforms.r.type": "io.debezium.transforms.ByLogicalTableRouter",
                "transforms.r.topic.regex": "(.*)orders_shard(.*)",
                "transforms.r.topic.replacement": "$1orders",
                "transforms.r.key.field.name": "shard",
            },
            "transforms.r.type",
            "one connector for each table",
        ),
        (
            {
                "transforms": "r",
                "transforms.r.type": "io.debezium.transforms.ExtractNewRecordState",
                "transforms.r.route.by.field": "table",
            },
            "transforms.r.route.by.field",
            "one output topic",
        ),
        (
            {
                "transforms": "r",
                "transforms.r.type": "RegexRouter",
                "transforms.r.regex": "a",
                "transforms.r.replacement": "$1",
            },
            "transforms.r.replacement",
            "no group 1",
        ),
        (
            {"transforms": "s", "transforms.s.type": "SetSchemaMetadata$Value"},
            "transforms.s.schema.name",
            "neither schema.name nor schema.version",
        ),
    ],
)
def test_a_fault_is_named_on_its_key(settings: dict[str, str], key: str, said: str) -> None:
    """With a sentence that says what to do, and nothing else is named for it."""
    faults = chain_faults(settings, str)
    assert said in dict(faults)[key]
    assert {fault for fault, _ in faults} <= {key, "value.converter.schema.registry.url"}


@pytest.mark.parametrize(
    "settings",
    [
        {"value.converter": "StringConverter", "value.converter.schemas.enable": "false"},
        {"key.converter": "ByteArrayConverter", "key.converter.schemas.enable": "false"},
        {"header.converter": "SimpleHeaderConverter", "header.converter.schemas.enable": "false"},
        of_avro(schemas__enable="true", schemas__cache__config="9", max__schemas__per__subject="9"),
        of_avro(latest__compatibility__strict="false", schema__registry__ssl__truststore__type="PEM"),
        of_avro(bearer__auth__credentials__source="STATIC_TOKEN", bearer__auth__token="t"),
        {
            "value.converter": "io.apicurio.registry.utils.converter.AvroConverter",
            "value.converter.apicurio.registry.url": "http://registry:8080/apis/registry/v2",
            "value.converter.apicurio.registry.auto-register": "true",
            "value.converter.apicurio.registry.find-latest": "true",
            "value.converter.apicurio.registry.as-confluent": "true",
            "value.converter.apicurio.registry.headers.enabled": "false",
            "value.converter.schemas.enable": "false",
        },
        of_avro(
            basic__auth__credentials__source="USER_INFO", schema__registry__basic__auth__user__info="user:password"
        ),
        {"header.converter": "org.apache.kafka.connect.json.JsonConverter", "header.converter.schemas.enable": "true"},
        {"header.converter": "org.apache.kafka.connect.converters.LongConverter"},
    ],
)
def test_what_connect_s_files_have_without_effect_is_taken(settings: dict[str, str]) -> None:
    """Connect ignores it too, or knows it by a second name."""
    assert chain_faults(settings, str) == ()
    Chain(chain_spec(settings), str).close()


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ("http://registry:8080/apis/registry/v2", "http://registry:8080/apis/ccompat/v7"),
        ("http://registry:8080/apis/registry/v3/", "http://registry:8080/apis/ccompat/v7"),
        ("http://registry:8080/apis/ccompat/v6", "http://registry:8080/apis/ccompat/v6"),
    ],
)
def test_apicurio_s_address_is_that_of_its_confluent_interface(given: str, asked: str) -> None:
    """A file of Apicurio's converter is taken as it is, placeholders and all."""
    settings = {
        "value.converter": "io.apicurio.registry.utils.converter.AvroConverter",
        "value.converter.apicurio.registry.url": "${env:URL}",
        "value.converter.apicurio.registry.auto-register": "false",
    }

    def resolve(text: str) -> str:
        return text.replace("${env:URL}", given)

    assert chain_faults(settings, resolve) == ()
    options = options_of(chain_spec(settings).value, CONVERTERS, resolve)
    assert (options["schema.registry.url"], options["auto.register.schemas"]) == ([asked], False)


def test_a_secret_that_cannot_be_resolved_is_a_fault_of_its_own_key() -> None:
    """Of that alone: what it stands for may be right."""

    def resolve(text: str) -> str:
        if text == "${env:X}":
            raise ValueError(f"{text} cannot be resolved")
        return text

    json = {"value.converter": "Json", "value.converter.schemas.enable": "${env:X}"}
    assert chain_faults(json, resolve) == (("value.converter.schemas.enable", "${env:X} cannot be resolved"),)
    key = "value.converter.basic.auth.user.info"
    avro = of_avro(basic__auth__credentials__source="USER_INFO", basic__auth__user__info="${env:X}")
    assert chain_faults(avro, resolve) == ((key, "${env:X} cannot be resolved"),)
    transform = {"transforms": "v", "transforms.v.type": "ValueToKey", "transforms.v.fields": "${env:X}"}
    assert [fault for fault, _ in chain_faults(transform, resolve)] == ["transforms.v.fields"]


def test_a_converter_that_cannot_be_made_is_a_fault_of_the_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no setting of its own is to blame: here certificates of the environment that are not there."""
    monkeypatch.setenv("SSL_CERT_FILE", "/does/not/exist")
    ((key, text),) = chain_faults(AVRO | {"value.converter.schema.registry.url": "https://registry"}, str)
    assert (key, "SSL_CERT_FILE" in text) == ("value.converter", True)


def test_a_bad_path_stands_alone_in_version_1() -> None:
    """There a backtick is a letter."""
    settings = {**EXTRACT, "transforms.x.field": "`a.b", "transforms.x.field.syntax.version": "V1"}
    assert chain_faults(settings, str) == ()


def test_a_truststore_of_certificates_is_taken() -> None:
    """In PEM."""
    pem = Path(certifi.where())
    assert chain_faults(of_avro(schema__registry__ssl__truststore__location=str(pem)), str) == ()


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


@pytest.mark.parametrize(
    ("kind", "name", "said"),
    [
        ("ExtractNewRecordState", "drop.tombstones", "write delete.tombstone.handling.mode (rewrite-with-tombstone"),
        ("ExtractNewRecordState", "delete.handling.mode", "delete.tombstone.handling.mode"),
        ("ExtractNewRecordState", "operation.header", "write add.headers"),
        ("ExtractNewRecordState", "add.source.fields", "write add.fields"),
        ("ReplaceField$Value", "blacklist", "write exclude"),
        ("ReplaceField$Value", "whitelist", "write include"),
        ("Flatten$Value", "blacklist", "has no such setting"),
    ],
)
def test_an_older_name_of_a_setting_is_told_with_the_one_of_today(kind: str, name: str, said: str) -> None:
    """Files of years ago have them; the newer setting has to be there, in that class."""
    (fault,) = chain_faults({"transforms": "t", "transforms.t.type": kind, f"transforms.t.{name}": "x"}, str)
    assert fault[0] == f"transforms.t.{name}"
    assert said in fault[1]
