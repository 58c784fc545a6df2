"""Validates the flat mapping of a worker or connector file as a model: names become fields, all faults come at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from pydantic import BaseModel, BeforeValidator, ModelWrapValidatorHandler, ValidationError, ValidationInfo

from connectors.config import errors
from connectors.config.clients import client_names, client_translate
from connectors.config.definitions import definitions, families, family_of
from connectors.config.errors import Fault, FaultyConfigError, SeveralFaultsError
from connectors.config.fields import RefusalError, as_text, limits_of, text_of
from connectors.config.secrets import is_secret, masked
from connectors.credentials import TOO_MANY, has_too_many
from connectors.placeholders import SecretError

Model = TypeVar("Model", bound=BaseModel)
_MODELS: Final[dict[str, type[BaseModel]]] = {}
"""The model of each kind of file, as `model_of` is told: a key in the wrong one is known by it."""


def model_of(file: str) -> Callable[[type[Model]], type[Model]]:
    """Makes the decorator of the model of a kind of file, `worker` or `connector`."""

    def keep(model: type[Model]) -> type[Model]:
        _MODELS[file] = model
        return model

    return keep


def read(
    model: type[Model],
    raw: object,
    handler: ModelWrapValidatorHandler[Model],
    subject: Callable[[Mapping[str, str]], str],
    clients: str,
    more: Mapping[str, Any] | None = None,
) -> Model:
    """Validates the mapping `raw` of a file: the body of a model's wrap validator.

    The model's last field before its families is `given`: the settings as texts, placeholders unresolved. `subject`
    names the file; `clients` has, with `{0}` for its name, the keys that set a setting of clients. `more` are fields
    that are no settings. Raises FaultyConfigError with every fault.
    """
    if not isinstance(raw, Mapping):
        text = "must be a JSON object of settings, or one with name and config."
        raise FaultyConfigError(subject({}), [Fault("", text)])
    values = {str(name): as_text(value) for name, value in raw.items()}
    given = {name: text for name, text in values.items() if isinstance(text, str)}
    if unhidden := [name for name, text in given.items() if has_too_many(text, is_secret=is_secret(name))]:
        raise FaultyConfigError(subject(given), [Fault(name, f"has {TOO_MANY}. Split it.") for name in unhidden])
    by_alias, strange = _by_alias(model, values)
    faults = [_strange(model, name, values[name], clients) for name in strange]
    meant = {key for name in strange if (key := _meant(model, name, values, clients)) is not None}
    try:
        config = handler({**_left_out(by_alias, meant), "given": given, **(more or {})})
    except ValidationError as error:
        every = errors.faults_of(error, definitions(model), given)
        faults += (fault for fault in every if not any(errors.speaks_of(fault, key) for key in meant))
    if faults:
        raise FaultyConfigError(subject(given), faults)
    return config


def _by_alias(
    model: type[BaseModel], values: Mapping[str, str | RefusalError]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Sorts `values` by the aliases of the model's fields, a family in one mapping; and finds names that fit none."""
    by_alias: dict[str, Any] = {prefix: {} for prefix in families(model)}
    strange = []
    for name, value in values.items():
        prefix = family_of(model, name)
        if name in definitions(model):
            by_alias[name] = value
        elif prefix:
            by_alias[prefix][name.removeprefix(prefix)] = value
        else:
            strange.append(name)
    return by_alias, tuple(strange)


def _meant(model: type[BaseModel], name: str, values: Mapping[str, str | RefusalError], clients: str) -> str | None:
    """Returns the key, or the family, that `name` is a typo of; None if it is none, or that key is there too."""
    if isinstance(values[name], RefusalError) or errors.not_yet(name) or _hint(model, name, clients):
        return None
    near = errors.nearest(name, (*definitions(model), *families(model)))
    return None if near in values else near


def _left_out(by_alias: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """Returns `by_alias` with each of `keys` as one with a fault of its own: no rule then takes its default for said.

    In a family it is the setting without a name.
    """
    misspelt = RefusalError("is misspelt.")
    return {**by_alias, **{key: {**by_alias[key], "": misspelt} if key.endswith(".") else misspelt for key in keys}}


def _strange(model: type[BaseModel], name: str, value: str | RefusalError, clients: str) -> Fault:
    if isinstance(value, RefusalError):
        return Fault(name, str(value))
    known = (*definitions(model), *families(model))
    return Fault(name, errors.not_yet(name) or _hint(model, name, clients) or errors.unknown(name, known))


def _hint(model: type[BaseModel], name: str, clients: str) -> str | None:
    """Returns a sentence for a key that `model` does not have and that deserves more than the nearest name."""
    if (why := client_names.reason(name)) is not None:
        return f"cannot be set: {why}."
    if client_translate.is_known(name):
        return f"a client's setting; write {clients.format(name)}."
    own = next(file for file, each in _MODELS.items() if each is model)
    return next(
        (
            f"is a key of the {file} file, not of the {own} file; move it there."
            for file, each in _MODELS.items()
            if name in definitions(each)
        ),
        None,
    )


def texts_of(raw: Mapping[Any, Any]) -> tuple[dict[str, str], list[Fault]]:
    """Returns settings as texts, and a fault for each value that is none."""
    texts = {str(name): as_text(value) for name, value in raw.items()}
    faults = [Fault(name, str(value)) for name, value in texts.items() if isinstance(value, RefusalError)]
    return {name: text for name, text in texts.items() if isinstance(text, str)}, faults


def family_texts(check: Callable[[Mapping[str, str]], Iterable[Fault]], *, are_shown: bool = False) -> BeforeValidator:
    """Makes the validator of a family: it takes texts, without blanks around them, in which `check` finds no fault.

    Placeholders stay until a text is used; if `are_shown`, as the settings of a topic are, they are resolved now.
    """

    def read_texts(values: Mapping[str, str | RefusalError], info: ValidationInfo) -> dict[str, str]:
        texts = {name: text.strip() for name, text in values.items() if isinstance(text, str)}
        faults = [Fault(name, str(value)) for name, value in values.items() if isinstance(value, RefusalError)]
        faults += check(texts)
        for name, text in texts.items() if are_shown else ():
            try:
                texts[name] = text_of(text, limits_of(info))
            except SecretError as error:
                faults.append(Fault(name, str(error)))
        if faults:
            raise SeveralFaultsError(faults)
        return texts

    return BeforeValidator(read_texts)


def effective(model: type[BaseModel], given: Mapping[str, str]) -> dict[str, str | None]:
    """Returns all settings as texts that may be printed: `given`, secrets hidden, and the defaults of the others."""
    shown = masked(given)
    return {name: shown.get(name, each.default) for name, each in definitions(model).items()} | shown


MOST_SETTINGS: Final = 1_000
"""Settings of a connector: five for each of two hundred transforms. Each may be looked for among all names."""
LONGEST_SETTINGS: Final = 256 << 10
"""Characters of all names and texts: ten thousand topics, or a large schema.content. To check them takes a second."""
MOST_STEPS: Final = 100
"""Transforms, or predicates. Each is made to see whether it takes its settings."""
_LISTS: Final = ("transforms", "predicates")


def check_size(given: Mapping[str, str], subject: str) -> None:
    """Raises FaultyConfigError naming `subject` if its settings are beyond the bounds."""
    length = sum(len(name) + len(text) for name, text in given.items())
    if len(given) > MOST_SETTINGS:
        raise FaultyConfigError(subject, [Fault("", f"has {len(given)} settings; allowed are {MOST_SETTINGS}.")])
    if length > LONGEST_SETTINGS:
        text = f"has {length} characters of settings; allowed are {LONGEST_SETTINGS}. Name topics by topics.regex."
        raise FaultyConfigError(subject, [Fault("", text)])
    for name in _LISTS:
        count = given.get(name, "").count(",") + 1
        if count > MOST_STEPS:
            raise FaultyConfigError(subject, [Fault(name, f"names {count}; allowed are {MOST_STEPS}.")])
