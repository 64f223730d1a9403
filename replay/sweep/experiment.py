"""An experiment file: options of ``gavel simulate``, of which a list means "each of these".

    policy = ["las", "las:agnostic"]
    jobs_per_h = [2.0, 4.0, 6.0]
    seed = [0, 1, 2]
    cluster = "v100=12,p100=12,k80=12"
    jobs = 300
    window = "100:200"
    mode = "paper"

is 18 cells: one simulation for each combination, in the order of the file. ``jobs_per_h`` is
another way to say ``mean_gap``. Paths are meant from the file's own folder.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from replay.options import InputError
from replay.request import Request
from services.runtime.toml_file import TomlError, TomlFile, hint

#: Options of ``simulate`` that say where to write, which a sweep decides itself.
OUTPUTS = ("log", "jobs_json", "json", "force")
LOAD = "jobs_per_h"
KEYS = (*(f.name for f in fields(Request) if f.name not in OUTPUTS), LOAD)


class ExperimentError(InputError):
    """An experiment file is wrong; the message names file, line and key, and what is right."""


@dataclass(frozen=True)
class Experiment:
    """What is varied and what is not, by option."""

    source: str
    #: {option: its values}, in the order of the file; one value where nothing is varied.
    values: Mapping[str, Sequence[Any]]

    @property
    def varied(self) -> list[str]:
        """Options with several values."""
        return [key for key, values in self.values.items() if len(values) > 1]

    def requests(self) -> Iterator[Request]:
        """Every combination; the last option of the file changes fastest."""
        for chosen in itertools.product(*self.values.values()):
            yield _request(dict(zip(self.values, chosen, strict=True)))

    def samples(self) -> Iterator[Request]:
        """Few requests in which each value occurs: what is wrong by itself is wrong in one."""
        first = {key: values[0] for key, values in self.values.items()}
        yield _request(first)
        for key, values in self.values.items():
            for value in values[1:]:
                yield _request(first | {key: value})


def read_experiment(path: Path) -> Experiment:
    """Read an experiment file.

    Raises
    ------
    ExperimentError
        It is no TOML; a key is no option of ``gavel simulate``; a value is not what the option
        takes; there is nothing in a list; or two keys say the same thing; it cannot be read.
    """
    try:
        file = TomlFile.read(path)
    except TomlError as error:
        raise ExperimentError(str(error)) from None
    if not file.content:
        raise ExperimentError(f"{file.path} has no key; expected some of {', '.join(KEYS)}")
    types = get_type_hints(Request) | {LOAD: float | None}
    values: dict[str, list[Any]] = {}
    for key, given in file.content.items():
        where = file.where(key)
        if key not in KEYS:
            said = f"{key!r} is no option of gavel simulate; {hint(key, KEYS)}"
            raise ExperimentError(f"{where}: {said}")
        listed = given if isinstance(given, list) else [given]
        if not listed:
            raise ExperimentError(f"{where}: {key} is [], must be one value or more")
        read = [_value(where, key, value, types[key], path.parent) for value in listed]
        values[key] = list(dict.fromkeys(read))
    if LOAD in values and "mean_gap" in values:
        raise ExperimentError(f"{file.path}: {LOAD} and mean_gap say the same thing: leave one out")
    return Experiment(file.path, values)


def _value(where: str, key: str, value: Any, kind: Any, folder: Path) -> Any:
    """A value as the option's type has it; numbers may stand where text is read as numbers."""
    if kind == Path | None and isinstance(value, str):
        return folder / value
    if kind is str and isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:g}"
    try:
        read: Any = msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ExperimentError(f"{where}: {key} is {value!r}: {error}") from None
    if key == LOAD and not 0 < read < float("inf"):
        raise ExperimentError(f"{where}: {key} is {value!r}, must be jobs per hour, above 0")
    return read


def _request(chosen: dict[str, Any]) -> Request:
    load = chosen.pop(LOAD, None)
    if load is not None:
        chosen["mean_gap"] = 3600.0 / load
    # Jobs come from somewhere: where no trace is named, they are drawn.
    chosen.setdefault("generate", chosen.get("trace") is None)
    return Request(**chosen)
