"""Answers `/connector-plugins`: the classes that a config can name, their keys, and what is wrong with a config."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from itertools import groupby
from operator import attrgetter
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response
from starlette.exceptions import HTTPException

from compactor.secret_forms import HIDDEN
from connectors.chain.spec import PREDICATE_OPTIONS, TRANSFORM_OPTIONS, ChainSpec, chain_spec
from connectors.class_names import ClassNames
from connectors.config.connector import ConnectorConfig
from connectors.config.definitions import Definition, definitions, documentation
from connectors.config.errors import Fault, FaultyConfigError
from connectors.config.fields import CONNECTOR_CLASS
from connectors.config.files import checked
from connectors.config.flat_file import check_size, texts_of
from connectors.config.secrets import printable
from connectors.converters.names import CONVERTERS, HEADER_CONVERTERS
from connectors.credentials import is_of_login
from connectors.errors import UsageError
from connectors.known_values import forgotten_after
from connectors.options import REQUIRED, Option
from connectors.rest import bodies, shapes
from connectors.rest.answers import json_answer
from connectors.rest.context import ContextDependency, RestContext, error_responses, json_body
from connectors.rest.errors import sentence
from connectors.rest.views import VERSION
from connectors.transforms.names import PREDICATES, TRANSFORMS

router = APIRouter(prefix="/connector-plugins", tags=["plugins"])

CONNECTORS: Final = (shapes.PluginInfo.model_validate({"class": CONNECTOR_CLASS, "type": "sink", "version": VERSION}),)
_ALIASES: Final = (CONNECTOR_CLASS, CONNECTOR_CLASS.rpartition(".")[2])
ConnectorsOnly = Annotated[bool, Query(alias="connectorsOnly")]
_WIDTHS: Final = {"BOOLEAN": "SHORT", "INT": "SHORT", "SHORT": "SHORT", "LONG": "MEDIUM", "DOUBLE": "SHORT"}


@router.get("", response_model=list[shapes.PluginInfo])
def list_plugins(only_connectors: ConnectorsOnly = True) -> Sequence[shapes.PluginInfo]:  # noqa: FBT002  # a query's
    """Lists the classes that a config can name; with connectorsOnly=false converters, transforms and predicates too."""
    return CONNECTORS if only_connectors else (*CONNECTORS, *classes())


@router.get("/{plugin}/config", response_model=list[shapes.ConfigKeyInfo], responses=error_responses(404, 503))
async def get_definitions(context: ContextDependency, plugin: str) -> list[shapes.ConfigKeyInfo]:
    """Lists the keys of a class (KIP-769), which is imported for it."""
    infos = _definitions() if plugin in _ALIASES else await context.slow.checks.run(settings_of, plugin)
    if infos is None:
        raise HTTPException(HTTPStatus.NOT_FOUND, f"Unknown plugin {plugin}.")
    return infos


@router.put(
    "/{plugin}/config/validate",
    response_model=shapes.ConfigInfos,
    responses=error_responses(400, 404, 415, 503),
    openapi_extra=json_body("Config"),
)
async def validate(context: ContextDependency, plugin: str, request: Request) -> Response:
    """Says what is wrong with a config, alone and with the other connectors, key by key; asks no broker.

    It is answered with 200 for a faulty one too.
    """
    body = await bodies.json_object(request)
    if plugin not in _ALIASES:
        raise HTTPException(HTTPStatus.NOT_FOUND, f"Unknown plugin {plugin}.")
    named = body.get("connector.class")
    if named not in _ALIASES:
        said = "The config has no connector.class" if named is None else f'connector.class is "{bodies.excerpt(named)}"'
        raise UsageError(f"{said}; the request is about {plugin}.", f"Set it to {CONNECTOR_CLASS}.")
    return await context.slow.checks.run(_validated, context, body)


def faults_of(context: RestContext, body: Mapping[str, Any]) -> list[Fault]:
    """Returns what is wrong with the config `body`, alone and with the other connectors, by key. Raises UsageError."""
    given, faults = texts_of(body)
    check_size(given, "config")
    try:
        with forgotten_after():
            config = checked(given, context.worker)
            faults += context.herder.specs.clashes(config)
    except FaultyConfigError as error:
        faults += error.faults
    return sorted(faults, key=attrgetter("key"))


def _validated(context: RestContext, body: Mapping[str, Any]) -> Response:
    given, _ = texts_of(body)
    ordered = faults_of(context, body)
    by_key = {name: [sentence(fault) for fault in of_one] for name, of_one in groupby(ordered, attrgetter("key"))}
    configs = [_info(definition, given, by_key) for definition in (*_definitions(), *settings_in(given))]
    known = {config.definition.name for config in configs}
    configs += [
        shapes.ConfigInfo(definition=_undefined(name), value=_value(name, given, by_key))
        for name in by_key
        if name not in known
    ]
    groups = list(dict.fromkeys(config.definition.group for config in configs))
    count = sum(map(len, by_key.values()))
    infos = shapes.ConfigInfos(name=CONNECTOR_CLASS, error_count=count, groups=groups, configs=configs)
    return json_answer(infos.model_dump_json().encode())


def _info(
    definition: shapes.ConfigKeyInfo, given: Mapping[str, str], errors: Mapping[str, list[str]]
) -> shapes.ConfigInfo:
    value = _value(definition.name, given, errors)
    if definition.name not in given:
        value = value.model_copy(update={"value": definition.default_value})
    return shapes.ConfigInfo(definition=definition, value=value)


def _value(name: str, given: Mapping[str, str], errors: Mapping[str, list[str]]) -> shapes.ConfigValueInfo:
    text = printable(name, given[name]) if name in given else None
    if text is not None and is_of_login(name) and any(f"{name}.".startswith(f"{key}.") for key in errors):
        text = HIDDEN  # what is wrong may be the password of another line
    return shapes.ConfigValueInfo(
        name=name, value=text, recommended_values=[], errors=errors.get(name, []), visible=True
    )


def _definitions() -> list[shapes.ConfigKeyInfo]:
    docs, places = documentation(ConnectorConfig), dict[str, int]()
    infos = []
    for key in definitions(ConnectorConfig).values():
        places[key.group] = places.get(key.group, 0) + 1
        infos.append(_definition(key, docs[key.field], places[key.group]))
    return infos


def _definition(key: Definition, doc: str, place: int) -> shapes.ConfigKeyInfo:
    return shapes.ConfigKeyInfo(
        name=key.name,
        type=key.type,  # type: ignore[arg-type]  # Connect's names
        required=key.required,
        default_value=key.default,
        importance=key.importance.upper(),  # type: ignore[arg-type]
        documentation=f"{doc} Allowed: {key.valid_values}.",
        group=key.group,
        width=_WIDTHS.get(key.type, "LONG"),  # type: ignore[arg-type]
        display_name=key.name,
        dependents=[],
        order_in_group=place,
    )


def _undefined(name: str) -> shapes.ConfigKeyInfo:
    """Returns a definition for a key that there is none of, so that what is wrong with it is seen."""
    return shapes.ConfigKeyInfo(
        name=name, type="STRING", required=False, default_value=None, importance="LOW", documentation="", group="",
        width="LONG", display_name=name, dependents=[], order_in_group=0,
    )  # fmt: skip


_KINDS: Final[Mapping[str, ClassNames]] = {
    "transformation": TRANSFORMS,
    "predicate": PREDICATES,
    "converter": CONVERTERS,
    "header_converter": HEADER_CONVERTERS,
}


def classes() -> list[shapes.PluginInfo]:
    """Lists all of them, each under its full names."""
    return [
        shapes.PluginInfo.model_validate({"class": name, "type": kind, "version": VERSION})
        for kind, names in _KINDS.items()
        for name in dict.fromkeys((*names.java_names(), *_full_aliases(names)))
    ]


def settings_of(plugin: str) -> list[shapes.ConfigKeyInfo] | None:
    """Lists the settings of the class `plugin`; None if there is no such class."""
    for names in _KINDS.values():
        try:
            place = names.find(plugin).of
        except ValueError:
            continue
        return _infos(place.load().OPTIONS, "", "Common")
    return None


def settings_in(given: Mapping[str, str]) -> list[shapes.ConfigKeyInfo]:
    """Lists the settings of the transforms and predicates that a connector's config names, with their prefixes."""
    spec = chain_spec(given)
    return [*_of_transforms(spec), *_of_predicates(spec)]


def _of_transforms(spec: ChainSpec) -> Iterator[shapes.ConfigKeyInfo]:
    for step in spec.steps:
        own = _options(TRANSFORMS, step.of.name)
        yield from _infos((*TRANSFORM_OPTIONS, *own), f"transforms.{step.alias}.", f"Transforms: {step.alias}")


def _of_predicates(spec: ChainSpec) -> Iterator[shapes.ConfigKeyInfo]:
    for alias, named in spec.predicates.items():
        own = _options(PREDICATES, named.name)
        yield from _infos((*PREDICATE_OPTIONS, *own), f"predicates.{alias}.", f"Predicates: {alias}")


def _options(names: ClassNames, name: str) -> tuple[Option, ...]:
    try:
        options: tuple[Option, ...] = names.find(name).of.load().OPTIONS
    except ValueError:
        return ()
    return options


def _full_aliases(names: ClassNames) -> Iterator[str]:
    return (alias for name in names.known for alias in name.aliases if "." in alias)


def _infos(options: Iterable[Option], prefix: str, group: str) -> list[shapes.ConfigKeyInfo]:
    return [
        shapes.ConfigKeyInfo(
            name=prefix + option.name,
            type=option.kind,
            required=option.default is REQUIRED,
            default_value=_text(option.default),
            importance=option.importance,
            documentation=f"{option.doc} Allowed: {option.valid_values}.",
            group=group,
            width="SHORT" if option.kind in {"BOOLEAN", "INT"} else "MEDIUM",
            display_name=prefix + option.name,
            dependents=[],
            order_in_group=place,
        )
        for place, option in enumerate(options, start=1)
    ]


def _text(default: Any) -> str | None:
    """Returns a default as a file would say it."""
    if default is None or default is REQUIRED:
        return None
    if isinstance(default, bool):
        return str(default).lower()
    return ",".join(map(str, default)) if isinstance(default, list | tuple) else str(default)
