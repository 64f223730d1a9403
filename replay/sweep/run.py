"""Runs the cells of a sweep that have not been run yet, wherever joblib carries them.

By default that is processes on this machine. Inside ``joblib.parallel_config(backend=...)`` the
same call spreads over many machines: a cell is one function call without shared state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import joblib

from replay.options import InputError
from replay.request import Request
from replay.sweep.cell import Row, key_of, run_cell
from replay.sweep.store import Results

#: Cells a processor is given at once where nothing comes back before all are done.
_PORTION = 4


@dataclass(frozen=True)
class Sweep:
    """What is to be run, what of it has been, and where results go."""

    #: {key: what to run}
    cells: Mapping[str, Request]
    #: Keys whose results are there.
    done: frozenset[str]
    results: Results

    @property
    def left(self) -> dict[str, Request]:
        """What is still to be run."""
        return {key: cell for key, cell in self.cells.items() if key not in self.done}


def plan(requests: Iterator[Request], results: Results) -> Sweep:
    """Find out what is still to be run."""
    cells = {key_of(request): request for request in requests}
    return Sweep(cells, frozenset(results.done(cells)), results)


def run(sweep: Sweep, processes: int = -1, tell: Callable[[Row], None] = lambda _: None) -> None:
    """Run what is left; each row is kept as soon as it is there, and then told.

    Parameters
    ----------
    processes : cells at a time; -1: as many as there are processors
    """
    calls = (joblib.delayed(run_cell)(request, key) for key, request in sweep.left.items())
    for row in _carried(calls, processes):
        sweep.results.add(row)
        tell(row)


def _carried(calls: Iterator[Any], processes: int) -> Iterator[Row]:
    """Rows as they come in."""
    # One cell at a time: they are long.
    settings: dict[str, Any] = {"n_jobs": processes, "batch_size": 1}
    backend: Any = joblib.parallel.get_active_backend()[0]
    if backend.supports_return_generator:
        rows: Any = joblib.Parallel(return_as="generator_unordered", **settings)(calls)
        yield from rows
        return
    # Ray's gives nothing back until it has all that it was given, so it is given a few.
    portion = _PORTION * joblib.effective_n_jobs(processes)
    while some := list(islice(calls, portion)):
        rows = joblib.Parallel(**settings)(some)
        yield from rows


@contextmanager
def carried_by(where: str) -> Iterator[None]:
    """Have joblib carry calls by ``local`` processes, ``ray``, or ``dask=ADDRESS``.

    Raises
    ------
    CarrierError
        It is none of them, or its library is not installed.
    """
    name, _, address = where.partition("=")
    if name == "local" and not address:
        yield
        return
    try:
        if name == "dask" and address:
            from distributed import Client  # noqa: PLC0415 - only where it is asked for

            try:
                client = Client(address)
            except ValueError as error:
                raise CarrierError(f"--on is {where!r}: {error}") from None
            with client, joblib.parallel_config(backend="dask"):
                yield
            return
        if where == "ray":
            import ray  # noqa: PLC0415 - as above
            from ray.util.joblib import register_ray  # noqa: PLC0415 - as above

            register_ray()
            # The cluster that the environment names, or one for this sweep, on this machine.
            with ray.init(), joblib.parallel_config(backend="ray"):
                yield
            return
    except ModuleNotFoundError as error:
        raise CarrierError(f"--on {where} needs the package {error.name}: install it") from None
    raise CarrierError(f"--on is {where!r}; expected local, ray, or dask=ADDRESS of its scheduler")


class CarrierError(InputError):
    """Cells cannot be carried that way."""
