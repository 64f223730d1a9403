"""Tables for people: figures in words, what must be noted, what got better."""

from __future__ import annotations

import dataclasses
import io

import msgspec
import pytest
from rich.console import Console, RenderableType

from replay import figures, views
from replay.request import Request
from replay.run import Result, carry_out, check
from services.policy.catalog import find, names
from services.runtime.log import MemoryLog


def run(**request: object) -> Result:
    """Simulate four jobs on four GPUs, or whatever is asked otherwise."""
    asked: dict[str, object] = {"generate": True, "jobs": 4, "cluster": "v100=2,k80=2", **request}
    return carry_out(check(Request(**asked)), MemoryLog())  # type: ignore[arg-type] # fields by name


def text(view: RenderableType) -> str:
    """What the view looks like on paper."""
    console = Console(file=io.StringIO(), width=100)
    console.print(view)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(None, "-"), (0.0, "0.0 s"), (599.0, "599.0 s"), (3600.0, "1.00 h"), (864000.0, "10.00 d")],
)
def test_durations_have_units(seconds: float | None, shown: str) -> None:
    """Seconds, hours or days, whichever is read best; a dash where there is none."""
    assert views.duration(seconds) == shown


def test_shares_of_time_make_a_whole() -> None:
    """Waiting, running, loading and saving add up to 100 % of the jobs' JCTs."""
    shown = dict(views.rows(run(checkpoint_seconds="5").figures))
    shares = [float(shown[f"  {n}"][:-1]) for n in ("waiting", "running", "loading", "saving")]
    assert sum(shares) == pytest.approx(100, abs=0.02)


def test_a_clean_run_has_no_notes() -> None:
    """Notes are for what would be misread without them."""
    assert run().notes() == []


def test_no_price_is_noted() -> None:
    """A worker type without a price makes the cost too low, and that is said."""
    done = run()
    free = [msgspec.structs.replace(worker, usd_per_h=None) for worker in done.plan.workers]
    plan = dataclasses.replace(done.plan, workers=free)
    (note,) = dataclasses.replace(done, plan=plan).notes()
    assert "no price for k80, v100" in note


def test_comparison_tells_how_many_times_better() -> None:
    """The improvement is the ratio of the two figures; beside itself, nothing improves."""
    slow, fast = run(cluster="k80=2"), run(cluster="v100=4")
    assert slow.figures.makespan_s
    assert fast.figures.makespan_s
    ratio = slow.figures.makespan_s / fast.figures.makespan_s
    lines = text(figures.comparison(slow, fast)).splitlines()
    (makespan,) = (line for line in lines if "makespan" in line)
    assert makespan.split()[-1] == f"{ratio:.2f}x"
    assert text(figures.comparison(slow, slow)).count("1.00x") == 5


def test_all_policies_are_listed() -> None:
    """Each policy of the catalogue has a line, and says what it does."""
    lines = views.policy_lines({name: find(name) for name in names()})
    assert [line[0] for line in lines] == names()
    for _, _, _, what in lines:
        assert len(what.split()) > 3


def test_result_has_figures_and_settings() -> None:
    """A printed result names the policy, the settings and the trace."""
    shown = text(figures.result(run(policy="fifo")))
    for expected in ("fifo", "average JCT", "round_duration_s=360", "seed 0"):
        assert expected in shown
