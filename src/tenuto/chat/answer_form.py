"""Answers in a demanded form: whether a schema can be checked, and whether an answer fits."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec
from jsonschema_rs import RegexOptions, ValidationError, Validator, validator_for

from tenuto.errors import Invalid
from tenuto.model.parameters import AnswerSchema
from tenuto.model.values import Json

_ANY_OBJECT: Final = {"type": "object"}
_MOST_FAULTS: Final = 5


def check_schema(schema: AnswerSchema) -> None:
    """Refuse a schema that says nothing, or refers to other places: nothing is fetched for it.

    Raises:
        Invalid: it is no schema.
    """
    try:
        _validator(_encode(schema))
    except ValidationError as error:
        raise Invalid(f"schema: {error.message}") from None
    except ValueError:
        raise Invalid("schema: is not a JSON schema that can be checked without fetching anything") from None


def find_faults(schema: AnswerSchema, answer: str) -> str:
    """What is wrong with an answer, in words for the model that gave it; empty if it fits."""
    try:
        value: Json = msgspec.json.decode(answer)
    except msgspec.DecodeError:
        return "The answer is not JSON."
    faults = []
    for error in _validator(_encode(schema)).iter_errors(value):
        place = "/".join(map(str, error.instance_path))
        faults.append(f"{place}: {error.message}" if place else error.message)
        if len(faults) == _MOST_FAULTS:
            break
    return "\n".join(faults)


def _encode(schema: AnswerSchema) -> bytes:
    return msgspec.json.encode(schema.schema or _ANY_OBJECT)


@lru_cache(maxsize=64)
def _validator(schema: bytes) -> Validator:
    """The validator of a schema. Its patterns run in time linear in the text."""
    return validator_for(schema.decode(), offline=True, pattern_options=RegexOptions())
