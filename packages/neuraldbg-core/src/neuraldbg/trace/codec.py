# SPDX-License-Identifier: MIT
"""Records as bytes and text: JSON documents and compact chunks of series. No pickle."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from neuraldbg.schema.events import SemanticEvent
from neuraldbg.schema.facts import Observation, ObservationRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from pydantic import BaseModel


class Damage(ValueError):  # noqa: N818 - a state of a file, which the reader names
    """A stored record does not have the content it was written with."""


def to_json(model: BaseModel, *, exclude: set[str] | None = None) -> str:
    """Return `model` as a JSON document in which NaN and Inf keep their type."""
    return json.dumps(model.model_dump(exclude=exclude), separators=(",", ":"))


def event_to_json(event: SemanticEvent) -> str:
    """Return `event` without its `id`, which follows from its content."""
    return to_json(event, exclude={"id"})


def event_from_json(text: str) -> SemanticEvent:
    """Read what `event_to_json` wrote."""
    return SemanticEvent.model_validate(json.loads(text))


def observation_to_json(observation: Observation) -> str:
    """Return an observation as a JSON document; figures become plain floats."""
    return json.dumps(
        {
            "kind": observation.kind,
            "step": int(observation.step),
            "layer": observation.layer,
            "figures": {name: float(value) for name, value in observation.figures.items()},
            "words": {name: str(value) for name, value in observation.words.items()},
        },
        separators=(",", ":"),
    )


def observation_from_json(text: str) -> Observation:
    """Read what `observation_to_json` wrote."""
    record = ObservationRecord.model_validate(json.loads(text))
    return Observation(record.kind, record.step, record.layer, record.figures, record.words)


class Chunk(NamedTuple):
    """Up to 512 values of a series, as the columns of a row of table `chunk`."""

    size: int
    check_sum: int
    first_step: int
    stride: int
    """Difference of neighbouring step labels, where `steps` is None."""
    steps: bytes | None
    """Labels as int64, where they are not equally spaced."""
    figures: bytes
    """Values as float32 where that loses nothing (losses of float32 tensors), else float64."""


def encode_chunk(steps: Sequence[int], values: Sequence[float]) -> Chunk:
    """Return a chunk that holds `steps` and `values` exactly."""
    labels = np.array(steps, dtype="<i8")
    figures: NDArray[Any] = np.array(values, dtype="<f8")
    with np.errstate(over="ignore"):
        narrow = figures.astype("<f4")
    if np.array_equal(narrow, figures, equal_nan=True):
        figures = narrow
    gaps = np.diff(labels)
    stride = int(gaps[0]) if len(gaps) else 0
    blob = None if (gaps == stride).all() else labels.tobytes()
    data = figures.tobytes()
    return Chunk(len(labels), zlib.crc32(data), int(labels[0]), stride, blob, data)


def decode_chunk(chunk: Chunk) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the steps and values of a chunk.

    Raises:
        Damage: The values are not those that were written.
    """
    if zlib.crc32(chunk.figures) != chunk.check_sum:
        raise Damage("check sum differs")
    kind = "<f4" if len(chunk.figures) == 4 * chunk.size else "<f8"
    values = np.frombuffer(chunk.figures, dtype=kind).astype(np.float64)
    if chunk.steps is None:
        steps = chunk.first_step + chunk.stride * np.arange(chunk.size, dtype=np.int64)
    else:
        steps = np.frombuffer(chunk.steps, dtype="<i8").astype(np.int64)
    if not len(steps) == len(values) == chunk.size:
        raise Damage("length differs")
    return steps, values
