"""What a reproduced figure or table comes to: claims, the paper's number beside ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from replay.options import InputError
from replay.report.charts import Picture
from replay.request import Request
from replay.sweep.run import plan, run
from replay.sweep.store import Results
from replay.traces.tables import builtin_table, read_table
from services.estimator.tables import ThroughputTable


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One number of the paper, and ours."""

    what: str
    #: As the paper prints it, with its section.
    paper: str
    ours: str
    #: Where the two differ, why; else what ours hangs on.
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """One figure or table, regenerated."""

    title: str
    #: What was run, in a line.
    setting: str
    claims: Sequence[Claim]
    #: A table to print: column names, then rows.
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    pictures: Sequence[Picture] = ()


class PaperError(InputError):
    """A result cannot be regenerated as asked; the message says what is missing."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """How results are regenerated.

    Attributes
    ----------
    full : as in the paper, or scaled down to minutes
    seeds : of the jobs drawn
    throughputs : the table's file; None is the built-in one
    artifact : folder in which the paper's artifact's traces are looked for
    results : where simulations are kept, so that none is run twice
    processes : simulations at a time; -1 is as many as there are processors
    tell : told of each simulation that is done: how many, of how many
    """

    full: bool = False
    seeds: Sequence[int] = (0, 1)
    throughputs: Path | None = None
    artifact: Path | None = None
    results: Results = field(default_factory=lambda: Results(Path("paper-results")))
    processes: int = -1
    tell: Callable[[int, int], None] = lambda _done, _of: None

    def table(self) -> ThroughputTable:
        """The throughputs that jobs run at."""
        return builtin_table() if self.throughputs is None else read_table(self.throughputs)

    def trace(self, name: str) -> Path | None:
        """The artifact's trace whose file's name ends so, if it was given a folder with it.

        Raises
        ------
        PaperError
            The folder has no such file.
        """
        if self.artifact is None:
            return None
        found = sorted(self.artifact.rglob(f"*{name}.trace"))
        if not found:
            raise PaperError(
                f"--artifact is {str(self.artifact)!r}; expected a folder with a file "
                f"...{name}.trace in it: the artifact's, or a copy of its traces"
            )
        return found[0]

    def simulate(self, requests: Sequence[Request]) -> pl.DataFrame:
        """The results of simulations, one row each, in the order asked for.

        Raises
        ------
        PaperError
            One failed.
        """
        sweep = plan(iter(requests), self.results)
        done = len(sweep.done)

        def tell(_: Mapping[str, object]) -> None:
            nonlocal done
            done += 1
            self.tell(done, len(sweep.cells))

        run(sweep, self.processes, tell)
        rows = self.results.read(sweep.cells)
        failed = rows.filter(pl.col("error") != "")
        if len(failed):
            raise PaperError(f"{failed['policy'][0]}: {failed['error'][0]}")
        return rows


def times(ratio: float) -> str:
    """A ratio as papers write it."""
    return f"{ratio:.2f}x"
