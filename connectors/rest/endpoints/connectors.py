"""Answers `/connectors` and what is below it: making, changing, deleting and showing connectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
from fastapi import APIRouter, Query, Request, Response

from connectors.config.connector import ConnectorConfig
from connectors.config.errors import FaultyConfigError
from connectors.config.files import checked
from connectors.config.flat_file import MOST_SETTINGS, texts_of
from connectors.config.secrets import masked
from connectors.errors import NoConnectorError, UsageError
from connectors.rest import bodies, shapes, views
from connectors.rest.answers import ShareDependency, json_answer
from connectors.rest.context import ContextDependency, RestContext, error_responses, json_body
from connectors.runtime.lifecycle import TargetState
from connectors.runtime.specs.connectors import TRIES, ConnectorSpec, changed_by_others
from connectors.runtime.status import Status
from connectors.runtime.supervised_connector import Connector

router = APIRouter(prefix="/connectors", tags=["connectors"])

_WRAPPED = 'The body is {"name": …, "config": {…}}: here only the settings of config are sent, as a flat object.'
_FLAT = 'Send {"name": "…", "config": {…}}: settings go into config.'


@router.get("", response_model=None, responses={200: {"model": list[str] | dict[str, shapes.Expanded]}})
def list_connectors(
    context: ContextDependency, share: ShareDependency, expand: Annotated[list[str] | None, Query()] = None
) -> Response:
    """Lists the names of all connectors; with `expand` (`info`, `status`) what is known of each (KIP-465)."""
    if expand is None:
        return share.json_array(map(msgspec.json.encode, context.herder.names()))
    return share.json_object(_expanded(context, each, expand) for each in context.herder.connectors())


def _expanded(context: RestContext, connector: Connector, expand: list[str]) -> bytes:
    """Returns the JSON of a connector's name with what is asked for of it."""
    asked = []
    if "info" in expand:
        asked.append(b'"info":' + views.info(connector))
    if "status" in expand:
        asked.append(b'"status":' + views.status(connector, context.identity.worker_id))
    return b"%s:{%s}" % (msgspec.json.encode(connector.name), b",".join(asked))


@router.post(
    "",
    status_code=HTTPStatus.CREATED,
    response_model=shapes.ConnectorInfo,
    responses=error_responses(400, 409, 415, 503),
    openapi_extra=json_body("CreateConnectorRequest"),
)
async def create_connector(context: ContextDependency, request: Request) -> Response:
    """Makes a connector, in the state `initial_state` (KIP-980); it is kept when this is answered."""
    return await create_from(context, await bodies.json_object(request))


async def create_from(context: RestContext, body: Mapping[str, Any]) -> Response:
    """Makes the connector of a body as `create_connector` takes it. Raises UsageError, FaultyConfigError, BusyError."""
    if "config" not in body and "connector.class" in body:
        raise UsageError('The body has no "config".', _FLAT)
    bodies.only(body, "name", "config", "initial_state")
    name, target = _name(body), _initial_state(body)
    if "config" not in body:
        raise UsageError('The body has no "config".', _FLAT)
    config = _settings(body["config"])
    return await _put(context, name, lambda _: config, target, only_new=True)


@router.put(
    "/{connector}/config",
    response_model=shapes.ConnectorInfo,
    responses={201: {"model": shapes.ConnectorInfo}, **error_responses(400, 409, 415, 503)},
    openapi_extra=json_body("Config"),
)
async def put_config(context: ContextDependency, connector: str, request: Request) -> Response:
    """Changes the config of a connector, or makes one."""
    body = await bodies.json_object(request)
    if isinstance(body.get("config"), Mapping):
        raise UsageError("The body has a config inside.", _WRAPPED)
    config = _settings(body)
    return await _put(context, connector, lambda _: config)


@router.patch(
    "/{connector}/config",
    response_model=shapes.ConnectorInfo,
    responses=error_responses(400, 404, 409, 415, 503),
    openapi_extra=json_body("ConfigPatch"),
)
async def patch_config(context: ContextDependency, connector: str, request: Request) -> Response:
    """Changes some settings of a connector; `null` removes one (JSON merge patch, KIP-477)."""
    body = await bodies.json_object(request)
    if isinstance(body.get("config"), Mapping):
        raise UsageError("The body has a config inside.", _WRAPPED)
    changed = _settings({name: value for name, value in body.items() if value is not None})

    def merged(before: Mapping[str, str]) -> dict[str, str]:
        if not before:  # it was never there, or was deleted a moment ago
            raise NoConnectorError(f"Connector {connector} not found")
        shown = masked(before)  # what is not sent counts as what a client is shown that sends all of it back
        return {**{name: text for name, text in shown.items() if body.get(name, "") is not None}, **changed}

    return await _put(context, connector, merged)


@router.get("/{connector}", response_model=shapes.ConnectorInfo, responses=error_responses(404))
def get_connector(context: ContextDependency, connector: str) -> Response:
    """Shows a connector."""
    return json_answer(views.info(context.herder.connector(connector)))


@router.get("/{connector}/config", response_model=dict[str, str], responses=error_responses(404))
def get_config(context: ContextDependency, connector: str) -> Response:
    """Shows the config of a connector, placeholders unresolved and secrets hidden."""
    return json_answer(msgspec.json.encode(views.config(context.herder.connector(connector))))


@router.delete(
    "/{connector}", status_code=HTTPStatus.NO_CONTENT, response_class=Response, responses=error_responses(404, 409, 503)
)
async def delete_connector(context: ContextDependency, connector: str) -> None:
    """Ends a connector and forgets its config. What it has kept and published stays; `keyfold delete` removes that."""
    await context.slow.changes.run(context.herder.specs.delete, connector)
    context.topics.forget(connector)


async def _put(
    context: RestContext,
    name: str,
    settings: Callable[[Mapping[str, str]], dict[str, str]],
    target: TargetState | None = None,
    *,
    only_new: bool = False,
) -> Response:
    """Checks the settings, made of those that there are, and gives them to the herder; answers with the connector.

    A check may take a second of a core, so it has a thread of its own kind, and no change of another connector waits
    for it.
    """
    specs, slow = context.herder.specs, context.slow
    for _ in range(TRIES):
        before = await slow.changes.run(specs.settings_of, name, only_new=only_new)
        config = await slow.checks.run(_checked, context, name, settings, before)
        with suppress(_OutdatedError):
            return await slow.changes.run(_stored, context, name, config, before, target, only_new=only_new)
    raise changed_by_others(name)


class _OutdatedError(Exception):
    """A connector has other settings by now than those that a config was checked for."""


def _checked(
    context: RestContext,
    name: str,
    settings: Callable[[Mapping[str, str]], dict[str, str]],
    before: Mapping[str, str],
) -> ConnectorConfig:
    """Makes and checks the config of a connector with the settings `before`. Raises UsageError, FaultyConfigError."""
    wanted = settings(before)
    inside = wanted.get("name", name).strip()
    if inside != name:
        said = (
            f"Connector name configuration ({bodies.excerpt(inside)}) doesn't match connector name in the URL ({name})"
        )
        raise UsageError(said, "Leave name out of config, or make them equal.")
    config = checked({**views.unmasked(wanted, before), "name": name}, context.worker)
    _ = config.named_outputs, config.shown  # both are kept: the change, and each answer, would wait for them
    return config


def _stored(
    context: RestContext,
    name: str,
    config: ConnectorConfig,
    before: Mapping[str, str],
    target: TargetState | None,
    *,
    only_new: bool,
) -> Response:
    """Gives a config to the herder, if the settings are `before` still. Raises _OutdatedError, and what `put` does."""

    def checked_for(now: Mapping[str, str]) -> ConnectorConfig:
        if now != before:
            raise _OutdatedError
        return config

    made = context.herder.specs.put(name, checked_for, target, only_new=only_new)
    try:
        shown = views.info(context.herder.connector(name))
    except NoConnectorError:  # deleted a moment ago, by another client: what was asked here was done
        shown = views.info(Connector(ConnectorSpec(config), Status(), None))
    where = {"Location": f"{context.identity.url}/connectors/{quote(name)}"} if made else None
    return json_answer(shown, HTTPStatus.CREATED if made else HTTPStatus.OK, where)


def _name(body: Mapping[str, Any]) -> str:
    name = body.get("name")
    if name is None and isinstance(body.get("config"), Mapping):
        name = body["config"].get("name")
    if not isinstance(name, str) or not name.strip():
        raise UsageError("The connector has no name.", _FLAT)
    return name.strip()


def _initial_state(body: Mapping[str, Any]) -> TargetState | None:
    text = body.get("initial_state")
    if text is None:
        return None
    if not isinstance(text, str) or text.upper() not in TargetState.__members__:
        raise UsageError(
            f'initial_state "{bodies.excerpt(text)}" is not allowed.', "Allowed are RUNNING, PAUSED and STOPPED."
        )
    return TargetState(text.upper())


def _settings(raw: object) -> dict[str, str]:
    """Returns the settings of a request as texts. Raises UsageError, FaultyConfigError."""
    if not isinstance(raw, Mapping):
        raise UsageError("config is no JSON object.", _FLAT)
    if len(raw) > MOST_SETTINGS:  # before each is looked at
        raise UsageError(f"config has {len(raw)} settings; allowed are {MOST_SETTINGS}.", _FLAT)
    texts, faults = texts_of(raw)
    if faults:
        raise FaultyConfigError("config", faults)
    return texts
