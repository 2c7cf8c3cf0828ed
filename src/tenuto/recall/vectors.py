"""Vectors as they are stored. numpy is loaded with this module, which only a search or a capture needs."""

from __future__ import annotations

from array import array
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Final

import numpy as np

from tenuto.model.values import Json
from tenuto.recall.embedding import Vector

# Vectors are stored as bytes of this many steps to each side of zero.
_STEPS: Final = 127


def encode_vector(vector: Vector) -> dict[str, Json]:
    """A vector as JSON: a byte for each number, and what the largest stands for."""
    numbers = np.asarray(vector, dtype=np.float64)
    largest = float(abs(numbers).max(initial=0.0)) or 1.0
    steps = np.rint(numbers / largest * _STEPS).astype(np.int8)
    return {"largest": largest, "steps": b64encode(steps.tobytes()).decode()}


def decode_vector(value: Mapping[str, Json]) -> Vector | None:
    """The vector of such JSON; `None` if it is damaged."""
    try:
        steps, scale = b64decode(value["steps"], validate=True), float(value["largest"]) / _STEPS
    except (KeyError, TypeError, ValueError):
        return None
    return array("f", (np.frombuffer(steps, dtype=np.int8) * np.float32(scale)).tobytes())
