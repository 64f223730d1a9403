"""Solving a log's problems again gives its allocations; what is not so is named, with the gap."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.resolve import OBJECTIVE_TOLERANCE, SHARE_TOLERANCE, Resolved, compare
from replay.verify import verify
from schemas.decisions import Effect
from schemas.domain import AllocationRow
from schemas.events import AllocationComputed, AllocationFailed
from schemas.record import Record
from services.policy.core import Solve
from tests.replay.command import gavel
from tests.simulation.forge import redigest, write_file
from tests.simulation.scenario import contended, records_of

OWN = '''
from schemas.domain import AllocationRow
from services.policy.problem import Allocation

class Nothing:
    """Nobody gets anything."""

    def solve(self, problem):
        return Allocation(rows=())
'''


@cache
def log(policy: str) -> tuple[Record, ...]:
    """A finished run."""
    simulation = contended(6, num_jobs=8, policy=policy).simulation()
    simulation.run()
    return tuple(records_of(simulation.driver))


def resolved(records: tuple[Record, ...] | list[Record]) -> Resolved:
    """What solving again comes to."""
    found = Resolved()
    verify(records, on_result=found.take)
    return found


def computed(shares: dict[str, float], objective: float | None = 1.0) -> AllocationComputed:
    """An allocation of one job."""
    rows = (AllocationRow((("j0",),), shares),)
    return AllocationComputed(policy="las", rows=rows, objective=objective)


@pytest.mark.parametrize(
    "policy", ["las", "las:ss", "ftf", "makespan", "fifo", "gandiva", "cost-slo", "max-throughput"]
)
def test_all_come_out_again(policy: str) -> None:
    """Every solve of a run, to the byte."""
    found = resolved(log(policy))
    solves = [r for r in log(policy) if isinstance(r.event, AllocationComputed | AllocationFailed)]
    assert found.solved == found.same == len(solves) > 0
    assert found.ok


def test_an_altered_allocation_is_named(tmp_path: Path) -> None:
    """Though digests are put right: the record, the job, the type, both shares; exit code 1."""
    records = list(log("las"))
    place = [i for i, r in enumerate(records) if isinstance(r.event, AllocationComputed)][-1]
    event = records[place].event
    assert isinstance(event, AllocationComputed)
    row = next(row for row in event.rows if row.shares)
    worker_type, share = next(iter(row.shares.items()))
    forged = msgspec.structs.replace(row, shares={**row.shares, worker_type: share / 2})
    rows = tuple(forged if each is row else each for each in event.rows)
    changed = msgspec.structs.replace(event, rows=rows)
    records[place] = msgspec.structs.replace(records[place], event=changed)
    records = redigest(records)
    found = resolved(records)
    assert found.other == 1
    assert found.first is not None
    assert found.first.seq == records[place].seq
    assert found.first.share == pytest.approx(share / 2)
    path = tmp_path / "forged.jsonl"
    write_file(path, records)
    result = gavel("verify", path, "--resolve")
    assert result.exit_code == 1
    assert f"record {records[place].seq} (las): share of job {row.combinations[0][0]}" in (
        result.stdout
    )
    assert f"on {worker_type}" in result.stdout
    assert "the objective is the same" in result.stdout


@given(
    recorded=st.dictionaries(st.sampled_from(["v100", "p100", "k80"]), st.floats(0, 1)),
    again=st.dictionaries(st.sampled_from(["v100", "p100", "k80"]), st.floats(0, 1)),
    objectives=st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)),
)
def test_the_gap_is_the_largest(
    recorded: dict[str, float], again: dict[str, float], objectives: tuple[float, float]
) -> None:
    """Of any share, one that is not listed being 0; words are there just beyond a tolerance."""
    one, two = objectives
    gap = compare(1, computed(recorded, one), computed(again, two))
    names = {*recorded, *again}
    shares = [abs(recorded.get(name, 0) - again.get(name, 0)) for name in names]
    assert gap.share == max(shares, default=0)
    assert gap.objective == abs(one - two) / max(1, one)
    beyond = gap.share > SHARE_TOLERANCE or gap.objective > OBJECTIVE_TOLERANCE
    assert bool(gap.what) == beyond


def test_another_outcome_is_another_answer() -> None:
    """A failed solve is no allocation; two failures are alike, whatever their words."""
    failed = AllocationFailed(policy="las", reason="the solver gave up")
    assert "recorded a failed solve (the solver gave up); again an allocation" in str(
        compare(7, failed, computed({}))
    )
    assert not compare(7, failed, msgspec.structs.replace(failed, reason="it gave up")).what
    assert compare(7, computed({}, None), computed({}, 1.0)).what


def test_a_policy_that_is_not_here(tmp_path: Path) -> None:
    """Is not solved again, which is said, with exit code 1; given the file, it is."""
    own, path = tmp_path / "own.py", tmp_path / "run.jsonl"
    own.write_text(OWN)
    name = f"{own}:Nothing"
    run = ("simulate", "--generate", "--jobs", "3", "--mean-gap", "60", "--cluster", "v100=2")
    assert gavel(*run, "--policy", name, "--log", path).exit_code == 0
    here = gavel("verify", path, "--resolve", "--policy", name, "--json")
    assert here.exit_code == 0
    assert json.loads(here.stdout)["resolved"]["unknown"] == {}
    elsewhere = Resolved()

    def take(record: Record, effect: Effect) -> None:
        if isinstance(effect, Solve):
            elsewhere.take(record, msgspec.structs.replace(effect, policy="not-here"))

    verify(log("las"), on_result=take)
    assert elsewhere.unknown.keys() == {"not-here"}
    assert elsewhere.solved == 0
    assert not elsewhere.ok


def test_policy_is_for_resolve_only(tmp_path: Path) -> None:
    """And must be a file's."""
    path = tmp_path / "run.jsonl"
    write_file(path, log("las"))
    for more in (["--policy", "own.py:Nothing"], ["--resolve", "--policy", "las"]):
        result = gavel("verify", path, *more)
        assert result.exit_code == 2
        assert "expected FILE.py:CLASS, with --resolve" in result.stderr
