"""Names the settings with placeholders that an error of a record may quote, at each place of a chain.

An error of a record quotes the record, so it is never searched for secrets: what was hidden would tell the record's
author that a guess was right. What keeps secrets out of it is the origin of its parts. Ours hold none, a server's are
masked before they are put in, and a password is quoted by no class. What is left are other settings, which a class may
quote and a transform may put into the record. If one of them has a placeholder, the error is not shown from there on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from connectors.chain.connect_settings import OTHER_NAMES
from connectors.chain.spec import (
    HEADER_CONVERTER,
    KEY_CONVERTER,
    OUTPUT_KEY_CONVERTER,
    OUTPUT_VALUE_CONVERTER,
    VALUE_CONVERTER,
    ChainSpec,
    ClassSpec,
)
from connectors.class_names import ClassNames
from connectors.converters.names import CONVERTERS, HEADER_CONVERTERS
from connectors.placeholders import has_placeholder
from connectors.transforms.names import PREDICATES, TRANSFORMS
from connectors.transforms.transform import Side

Names = tuple[str, ...]
"""Names of settings, as the connector's file has them."""


def of_reading(chain: ChainSpec, side: Side) -> Names:
    """Returns those that an error of the converter that reads keys, or values, may quote."""
    own, key = (chain.key, KEY_CONVERTER) if side is Side.KEY else (chain.value, VALUE_CONVERTER)
    return tuple(_of_class(own, CONVERTERS, key))


def of_steps(chain: ChainSpec, count: int) -> Names:
    """Returns those that an error of the last of the first `count` transforms, or of its predicate, may quote."""
    return _distinct([*of_reading(chain, Side.KEY), *of_reading(chain, Side.VALUE), *_of_transforms(chain, count)])


def of_writing(chain: ChainSpec, side: Side) -> Names:
    """Returns those that an error of the converter that writes keys, or values, may quote."""
    own, key = (
        (chain.output_key, OUTPUT_KEY_CONVERTER) if side is Side.KEY else (chain.output_value, OUTPUT_VALUE_CONVERTER)
    )
    written = () if own is None else _of_class(own, CONVERTERS, key)
    return _distinct([*of_steps(chain, len(chain.steps)), *written])


def of_headers(chain: ChainSpec) -> Names:
    """Returns those that an error of the converter that writes headers may quote."""
    return _distinct(
        [*of_steps(chain, len(chain.steps)), *_of_class(chain.header, HEADER_CONVERTERS, HEADER_CONVERTER)]
    )


def _of_transforms(chain: ChainSpec, count: int) -> Iterator[str]:
    for step in chain.steps[:count]:
        yield from _of_class(step.of, TRANSFORMS, f"transforms.{step.alias}")
        if step.predicate is not None:
            yield from _of_class(chain.predicates[step.predicate], PREDICATES, f"predicates.{step.predicate}")


def _of_class(own: ClassSpec, classes: ClassNames, prefix: str) -> Iterator[str]:
    """Yields those of one class; no class reads a setting that it does not know."""
    texts = {name: text for name, text in own.texts.items() if has_placeholder(text)}
    if texts:
        quoted = {option.name for option in classes.find(own.name).of.load().OPTIONS if option.may_be_quoted}
        yield from (f"{prefix}.{name}" for name in texts if OTHER_NAMES.get(name, name) in quoted)


def _distinct(names: Iterable[str]) -> Names:
    return tuple(dict.fromkeys(names))
