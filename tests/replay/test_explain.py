"""Explain: what it says of a job is what the log has, and what it foresees is what then happens."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from replay.cli import app
from replay.cluster import Failure
from replay.explain.explanation import Explanation, explain
from replay.explain.history import Histories
from replay.explain.reasons import CODES
from replay.explain.waterfall import PARTS, waterfall
from replay.index import Index
from replay.modes import MODES
from replay.moment import Moment, Onward
from replay.simulate import WORKER, Simulation, build_workers, table_rates
from replay.traces.tables import builtin_table
from replay.whatif import what_if
from replay.whatif_change import Change
from replay.world import Outside, World
from schemas.domain import JobSpec
from schemas.events import (
    AllocationComputed,
    AllocationFailed,
    AnyEvent,
    CancelRequested,
    ClusterConfigured,
    DrainRequested,
    JobCompleted,
    JobRequeued,
    JobSubmitted,
    RoundScheduled,
    ThroughputEstimated,
    ThroughputTableImported,
    WorkerDisappeared,
    WorkerUnreachable,
)
from schemas.record import Record
from services.policy.core import Solve
from services.policy.solve import carry_out
from services.runtime.log import MemoryLog
from tests.live.shells import export
from tests.simulation.scenario import contended, records_of

CLUSTER = {"v100": 2, "k80": 2}
RESNET = "ResNet-50 (batch size 64)"


def job(name: str, hours: float, **fields: object) -> JobSpec:
    """A job of so many hours on a V100."""
    spec = JobSpec(job_id=name, job_type=RESNET, **fields)  # type: ignore[arg-type] # as they are there
    steps_per_s = builtin_table().alone(spec.job_type, spec.scale_factor, "v100") or 1.0
    return msgspec.structs.replace(spec, total_steps=3600 * hours * steps_per_s)


def run(
    jobs: Iterable[JobSpec],
    said: Iterable[tuple[float, str, AnyEvent]] = (),
    cluster: dict[str, int] = CLUSTER,
    config: ClusterConfigured | None = None,
    **more: object,
) -> tuple[Record, ...]:
    """The log of a simulation of these jobs, with what else is said from outside."""
    simulation = Simulation(
        MemoryLog(),
        config or MODES["default"]("las", 360.0),
        build_workers(cluster, {"v100": 2}, {"v100": 0.74, "k80": 0.135}),
        builtin_table(),
        tuple(jobs),
        load_s=5.0,
        save_s=5.0,
        **more,  # type: ignore[arg-type] # as they are there
    )
    for at, actor, event in said:
        simulation.driver.submit(at, actor, event)
    simulation.run()
    return tuple(records_of(simulation.driver))


def at(records: Sequence[Record], time_s: float, name: str) -> Explanation:
    """A job explained as of a time."""
    moment, histories = Moment(lambda: iter(records)), Histories({name})
    for record in records:
        if record.at > time_s:
            moment.world.now = time_s
            break
        moment.take(record)
        histories.take(record)
    return explain(moment, histories.jobs[name])


def codes(found: Explanation) -> list[str]:
    """The codes of its reasons."""
    assert {reason.code for reason in found.reasons} <= CODES.keys()
    return [reason.code for reason in found.reasons]


def said(found: Explanation, code: str) -> str:
    """What is said under a code."""
    return next(reason.text for reason in found.reasons if reason.code == code)


@cache
def contention() -> tuple[Record, ...]:
    """Eight jobs, all there after ten minutes, for four workers."""
    return run(job(f"j{n}", 1.0 + n / 3, arrival_s=75.0 * n) for n in range(8))


# --- what it says is what the log has ------------------------------------------------------------


@pytest.mark.parametrize("time_s", [700.0, 2000.0, 4321.0, 9000.0])
def test_numbers_are_those_of_the_log(time_s: float) -> None:
    """Share, time promised and received, holders and the next plan's priorities."""
    before = [record for record in contention() if record.at <= time_s]
    plan = next(
        record.event
        for record in contention()
        if record.at > time_s and isinstance(record.event, RoundScheduled)
    )
    solved = [r.event for r in before if isinstance(r.event, AllocationComputed)][-1]
    out = {
        lease.lease_id: lease
        for record in contention()
        if isinstance(record.event, RoundScheduled) and record.at <= plan.starts_at_s
        for lease in record.event.granted
    }
    given = {lease.lease_id: lease.priority for lease in plan.granted}
    given |= dict(zip(plan.renewed, plan.renewed_priorities, strict=True))
    for number in range(8):
        name = f"j{number}"
        found = at(contention(), time_s, name)
        shares = {
            worker_type: share
            for row in solved.rows
            if (name,) in row.combinations
            for worker_type, share in row.shares.items()
        }
        if found.status in ("waiting", "running"):
            assert {t.worker_type: t.share for t in found.types if t.share} == shares
        for on in found.types:
            priorities = [p for i, p in given.items() if out[i].worker_type == on.worker_type]
            assert on.last_priority is None or on.last_priority in priorities
            served = [out[i] for i in given if out[i].worker_type == on.worker_type]
            assert on.served == any(name == task.job_id for x in served for task in x.tasks)
            assert on.left_idle == on.workers - len(served)


def test_time_promised_is_the_share_over_time_and_time_received_what_was_held() -> None:
    """Of a job alone on the cluster: both are all of its time, but for the first plan's lead."""
    records = run([job("alone", 2.0)], cluster={"v100": 1})
    found = at(records, 3600.0, "alone")
    (on,) = found.types
    assert on.entitled_s == pytest.approx(3600.0)
    assert on.received_s == pytest.approx(3600.0 - 10.0, abs=360.0)
    assert codes(found)[:2] == ["running.entitled", "note.all-its-time"]


# --- what it foresees is what happens ------------------------------------------------------------


@pytest.mark.parametrize("time_s", [650.0, 1234.0, 3000.0, 7777.0])
def test_what_is_likely_is_what_happens_if_nothing_else_comes(time_s: float) -> None:
    """Every job's next start and its end, to the last bit."""
    whole = Histories()
    for record in contention():
        whole.take(record)
    for name, history in whole.jobs.items():
        found = at(contention(), time_s, name)
        if found.status not in ("waiting", "running"):
            continue
        assert found.likely is not None
        assert found.likely.ends_s == history.ended_s
        if found.status == "waiting":
            starts = [s.starts_s for s in history.stretches if s.starts_s > found.at_s]
            assert found.likely.starts_s == min(starts)


def test_what_helps_is_what_a_what_if_says() -> None:
    """One more V100 lets the job start earlier by what simulating the change gives."""
    waiting = next(
        name
        for name in (f"j{n}" for n in range(8))
        if at(contention(), 1500.0, name).status == "waiting"
    )
    found = at(contention(), 1500.0, waiting)
    (help_,) = [each for each in found.helps if each.change == "one more v100"]
    starts: list[float] = []

    def observe(record: Record) -> None:
        if isinstance(record.event, RoundScheduled) and record.seq > found.seq:
            jobs = {task.job_id for lease in record.event.granted for task in lease.tasks}
            starts.extend([record.event.starts_at_s] * (waiting in jobs))

    first = Change(cluster={"v100": 1})
    what_if(lambda: iter(contention()[: found.seq]), first, found.seq, observe)
    unchanged_first = found.likely.starts_s if found.likely is not None else None
    assert unchanged_first is not None
    assert help_.earlier_s is not None
    assert help_.earlier_s > 0
    assert unchanged_first - help_.earlier_s in starts


# --- reasons -------------------------------------------------------------------------------------


def test_a_job_that_fits_nowhere_is_told_so_with_the_numbers() -> None:
    """Rejected at submission, and still answered."""
    records = run([job("big", 1.0, scale_factor=4), job("small", 1.0)])
    found = at(records, math.inf, "big")
    assert codes(found) == ["never.rejected"]
    assert said(found, "never.rejected") == (
        "asks for 4 workers of one type; there are k80: 2, v100: 2"
    )
    assert found.status == "rejected"


def test_a_job_behind_others_is_told_who_is_served_last_and_by_what() -> None:
    """Its own priority, how many come first, and the last one served on each type."""
    names = [f"j{n}" for n in range(8)]
    found = next(
        each
        for each in (at(contention(), 1500.0, name) for name in names)
        if "wait.behind" in codes(each)
    )
    text = said(found, "wait.behind")
    for on in found.types:
        assert f"on {on.worker_type} (workers: {on.workers}) its priority is" in text
        assert f"has {on.last_priority:g}" in text
        assert on.holders


def test_the_next_round_s_lease_is_told() -> None:
    """Between plan and boundary it is certain."""
    records = run([job("first", 1.0)], cluster={"v100": 1})
    found = at(records, 5.0, "first")
    assert codes(found)[0] == "wait.next-round"
    assert said(found, "wait.next-round").startswith("in 5.0 s it will have v100-0")


def test_a_gang_is_told_that_too_few_are_left_together() -> None:
    """Two workers are free at no time together as long as single jobs take turns on them."""
    jobs = [job(f"s{n}", 3.0) for n in range(5)]
    gang = job("gang", 1.0, scale_factor=2, arrival_s=400.0, allowed_worker_types=("v100",))
    records = run([*jobs, gang], cluster={"v100": 2})
    found = [at(records, 450.0 + 360.0 * n, "gang") for n in range(6)]
    waiting = [each for each in found if each.status == "waiting"]
    assert waiting
    assert all("note.types" in codes(each) for each in waiting)
    assert any(set(codes(each)) & {"wait.gang", "wait.behind"} for each in waiting)


def test_idle_workers_that_are_too_few_for_a_gang_are_counted() -> None:
    """One of two V100 is held for long; the gang needs both."""
    one = job("one", 3.0, allowed_worker_types=("v100",), priority_weight=100.0)
    gang = job("gang", 1.0, scale_factor=2, arrival_s=400.0, allowed_worker_types=("v100",))
    records = run([one, gang], cluster={"v100": 2})
    found = at(records, 500.0, "gang")
    if "wait.gang" in codes(found):
        assert "it needs 2 at once" in said(found, "wait.gang")
    assert codes(found)[0].startswith("wait.")


def test_drained_and_lost_workers_are_counted() -> None:
    """With no worker left that it can use, a job is held; who is away is listed."""
    drains = [(500.0, "operator", DrainRequested(worker_id=f"v100-{n}")) for n in range(2)]
    lost = (600.0, "mechanism", WorkerUnreachable(worker_id="k80-0", since_s=600.0))
    jobs = [job("v", 1.0, arrival_s=700.0, allowed_worker_types=("v100",)), job("k", 2.0)]
    records = run(jobs, [*drains, lost])
    found = at(records, 900.0, "v")
    assert codes(found)[0] == "held.no-workers"
    assert said(found, "held.no-workers") == "it needs 1 at once; can be leased now: v100: 0 of 2"
    text = said(found, "note.away")
    assert text.startswith("3 workers: k80-0 (")
    assert "v100-0 (drained), v100-1 (drained)" in text


def test_a_policy_that_fails_is_quoted() -> None:
    """In the words of its solver."""

    def solve(effect: Solve) -> AllocationComputed | AllocationFailed:
        names = [name for each in effect.problem.classes for name in each.job_ids]
        if "b" in names:
            return AllocationFailed(policy="las", reason="it is too late")
        return carry_out(effect)

    late = job("b", 1.0, arrival_s=400.0)
    waits = msgspec.structs.replace(MODES["default"]("las", 360.0), new_jobs="wait")
    records = run([job("a", 2.0), late], config=waits, solver=solve)
    found = at(records, 700.0, "b")
    assert codes(found)[0] == "held.policy-fails"
    assert said(found, "held.policy-fails") == "las: it is too late"


def test_a_deadline_that_will_be_missed_is_told_beforehand() -> None:
    """By how much."""
    jobs = [job("late", 2.0, slo_s=3600.0), *(job(f"j{n}", 2.0) for n in range(5))]
    found = at(run(jobs), 700.0, "late")
    assert said(found, "note.slo").startswith("due in ")


def test_a_pair_is_told_with_whom() -> None:
    """Two jobs on one worker."""
    simulation = contended(12, num_jobs=30, policy="las:ss").simulation()
    simulation.run()
    records = records_of(simulation.driver)
    time_s, pair = next(
        (record.event.starts_at_s, [task.job_id for task in lease.tasks])
        for record in records
        if isinstance(record.event, RoundScheduled)
        for lease in record.event.granted
        if len(lease.tasks) == 2
    )
    assert said(at(records, time_s, pair[0]), "note.shared") == f"with job {pair[1]}"


def test_a_job_whose_tasks_fail_waits_and_says_why_and_for_how_long() -> None:
    """Then, with its attempts used up, it has failed for good, in the words of its last task."""
    failures = {"a": [Failure(60.0 + n, "failed", 3, "no such file") for n in range(3)]}
    records: list[Record] = []
    table = builtin_table()
    known = ThroughputTableImported(source=table.source, rows=table.rows([(RESNET, 1)]))
    said_first: list[AnyEvent] = [MODES["default"]("las", 360.0), known]
    outside = [Outside(0.0, 0, "operator", event) for event in said_first]
    outside += [Outside(0.0, 0, f"client.{n}", JobSubmitted(job=job(n, 1.0))) for n in "ab"]
    onward = Onward(
        Moment(),
        table_rates(table),
        load_s=5.0,
        save_s=5.0,
        outside=outside,
        workers=build_workers({"v100": 2}, {}, {}),
        failures=failures,
        observers=(records.append,),
    )
    onward.driver.run()
    first = next(r.at for r in records if isinstance(r.event, JobRequeued))
    found = at(records, first + 4.0, "a")
    assert codes(found)[0] == "held.back-off"
    assert said(found, "held.back-off") == (
        "not for another 6.0 s: task failed with exit code 3: no such file (failure 1, at most 3 "
        "in a row)"
    )
    found = at(records, math.inf, "a")
    assert codes(found) == ["ended.failed"]
    assert "failed after 3 attempts: task failed with exit code 3" in said(found, "ended.failed")


def test_a_job_that_nobody_has_looked_at_says_so() -> None:
    """Submitted, and the mechanism has not answered; admitted, and nothing known of its speed."""
    records = contention()
    submitted = next(n for n, r in enumerate(records) if isinstance(r.event, JobSubmitted))
    found = at(records[: submitted + 1], math.inf, "j0")
    assert codes(found)[0] == "held.not-admitted"
    admitted = [r for r in records[: submitted + 3] if not isinstance(r.event, ThroughputEstimated)]
    found = at(admitted, math.inf, "j0")
    assert codes(found)[0] == "held.no-estimate"


def test_a_job_without_a_share_fills_what_is_left() -> None:
    """FIFO gives the second nothing of the V100; it runs where nobody is entitled to."""
    config = MODES["default"]("fifo", 360.0)
    jobs = [job("first", 2.0), job("second", 2.0), job("third", 2.0)]
    records = run(jobs, config=config, cluster={"v100": 1, "k80": 1})
    found = at(records, 1000.0, "third")
    assert found.status == "waiting"
    assert "wait.no-share" in codes(found)
    assert all(on.share == 0 for on in found.types)


def test_a_newer_job_than_the_allocation_waits_for_the_next() -> None:
    """Where jobs wait for a solve, and solves have a least gap."""
    config = msgspec.structs.replace(
        MODES["default"]("las", 360.0), new_jobs="wait", resolve_min_gap_s=3000.0
    )
    records = run([job("a", 2.0), job("b", 1.0, arrival_s=400.0)], config=config)
    assert codes(at(records, 900.0, "b"))[0] == "held.next-allocation"


def test_a_job_that_fits_no_more_is_told_what_there_is() -> None:
    """Its workers' type was registered anew as another: as things are, it cannot run."""
    only = job("a", 1.0, allowed_worker_types=("v100",), arrival_s=100.0)
    gone = [
        (300.0, WORKER, WorkerDisappeared(worker_id=f"v100-{n}", reporter=WORKER)) for n in range(2)
    ]
    records = run([only, job("b", 3.0)], gone)
    found = at(records, 700.0, "a")
    assert codes(found)[0] in ("never.as-is", "held.no-workers")
    assert "v100: 0" in found.reasons[0].text


def test_a_cancelled_job_says_so() -> None:
    """And nothing else."""
    cancel = (1000.0, "client.a", CancelRequested(job_id="a"))
    found = at(run([job("a", 5.0), job("b", 1.0)], [cancel]), math.inf, "a")
    assert codes(found) == ["ended.cancelled"]


# --- where its time went -------------------------------------------------------------------------


def falls(records: Iterable[Record]) -> list[tuple[dict[str, float], float]]:
    """(parts, JCT) of each complete job."""
    histories, world = Histories(), World()
    for record in records:
        histories.take(record)
        world.take(record)
    expected = world.speeds.expected()
    return [
        (waterfall(history, expected, world.registered), history.ended_s - history.submitted_s)
        for history in histories.jobs.values()
        if isinstance(history.ending, JobCompleted) and history.ended_s is not None
    ]


@pytest.mark.parametrize("mode", ["default", "paper"])
@pytest.mark.parametrize("policy", ["las", "las:ss", "ftf"])
@pytest.mark.parametrize("seed", [3, 12])
def test_the_parts_sum_to_the_completion_time(seed: int, policy: str, mode: str) -> None:
    """With gangs, pairs, lost workers and failures; no waiting is below 0."""
    simulation = contended(seed, num_jobs=30, mode=mode, policy=policy).simulation()
    simulation.run()
    found = falls(records_of(simulation.driver))
    assert len(found) > 20
    for parts, jct_s in found:
        assert parts.keys() == PARTS.keys()
        assert sum(parts.values()) == pytest.approx(jct_s, abs=1e-6)
        assert all(parts[name] >= 0 for name in parts if name.startswith(("queue", "checkpoint")))


def test_each_part_is_what_its_name_says() -> None:
    """Alone, on the fastest type, and never moved: steps, the first round, one checkpoint."""
    ((parts, jct_s),) = falls(run([job("alone", 2.0)], cluster={"v100": 1}))
    told = {name: seconds for name, seconds in parts.items() if abs(seconds) > 1e-6}
    assert told == pytest.approx({"compute": 7200.0, "queue.round": 10.0, "checkpoint.load": 5.0})
    assert jct_s == pytest.approx(7215.0)
    only_k80 = [job("a", 1.0), job("b", 1.0, allowed_worker_types=("k80",))]
    (_, _), (second, _) = falls(run(only_k80, cluster={"v100": 1, "k80": 1}))
    assert second["slower-type"] == pytest.approx(0.0, abs=1e-6)
    both = [job("a", 1.0), job("b", 1.0)]
    parts_of = [parts for parts, _ in falls(run(both, cluster={"v100": 1, "k80": 1}))]
    assert sum(parts["slower-type"] for parts in parts_of) > 60


def test_steps_made_again_are_counted_as_such() -> None:
    """A worker that is lost takes the steps since the last checkpoint with it."""
    lost = (1000.0, "mechanism", WorkerUnreachable(worker_id="v100-0", since_s=1000.0))
    config = msgspec.structs.replace(MODES["default"]("las", 360.0), worker_lost_after_s=30.0)
    ((parts, jct_s),) = falls(
        run([job("a", 1.0)], [lost], cluster={"v100": 1, "k80": 1}, config=config)
    )
    assert parts["redone"] > 100
    assert parts["compute"] == pytest.approx(3600.0, rel=1e-6)
    assert parts["queue.failure"] > 0
    assert sum(parts.values()) == pytest.approx(jct_s, abs=1e-6)


# --- the command ---------------------------------------------------------------------------------


def gavel(*arguments: object) -> Result:
    """Run a command; a traceback fails the test."""
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def flat(text: str) -> str:
    """Text in one line."""
    return " ".join(text.split())


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The contended log as a file."""
    return export(list(contention()), tmp_path_factory.mktemp("log") / "run.jsonl")


@pytest.mark.parametrize("when", ["", "1500", "25m", "4321s", "2.5h"])
@pytest.mark.parametrize("name", ["j0", "j5", "j7"])
def test_from_an_index_it_says_the_same(log: Path, tmp_path: Path, name: str, when: str) -> None:
    """Word for word, whether the log is folded from its start or from a snapshot."""
    indexed = export(list(contention()), tmp_path / "run.jsonl")
    assert gavel("log", "index", indexed).exit_code == 0
    assert Index(indexed).moment() is not None
    options = ("--at", when) if when else ()
    plain = gavel("explain", name, "--log", log, "--json", *options)
    assert plain.exit_code == 0
    assert gavel("explain", name, "--log", indexed, "--json", *options).stdout == plain.stdout


def test_the_command_tells_it_in_words(log: Path) -> None:
    """What decides, the table, what is likely, what would help; of a done job, where time went."""
    told = flat(gavel("explain", "j7", "--log", log, "--at", "25m").stdout)
    found = at(contention(), 1500.0, "j7")
    assert told.startswith(f"job j7: {RESNET}, 1 worker; {found.status} for ")
    for reason in found.reasons:
        assert reason.code in told
    assert "likely, if nothing else comes:" in told
    assert "one more v100:" in told
    told = flat(gavel("explain", "j7", "--log", log).stdout)
    assert "ended.completed" in told
    assert "queue.preempted: between leases" in told
    assert "JCT" in told


def test_codes_are_listed() -> None:
    """All of them, and the parts of a waterfall."""
    told = gavel("explain", "--codes").stdout
    assert all(code in told for code in (*CODES, *PARTS))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("j77",), "JOB is 'j77'; expected one of j0, j1, j2, j3, j4, j5, j6, j7; perhaps j7"),
        (("j7", "--at", "5"), "JOB by --at 5 is 'j7'; expected one of j0"),
        (("j7", "--at", "noon"), "--at is 'noon'; expected a time since the log's first record"),
        ((), "JOB is ''; expected a job id"),
        (("j7", "--nats", "nats://x"), "expected none with --nats"),
    ],
)
def test_what_makes_no_sense_is_refused(
    log: Path, arguments: tuple[str, ...], expected: str
) -> None:
    """One line: what, and what would be right."""
    result = gavel("explain", *arguments, "--log", log)
    assert result.exit_code == 2
    assert expected in flat(result.stderr)


def test_a_damaged_log_is_refused_and_a_torn_one_read(log: Path, tmp_path: Path) -> None:
    """The damage is found although most lines are not parsed."""
    lines = log.read_text().splitlines(keepends=True)
    harmed = tmp_path / "harmed.jsonl"
    harmed.write_text("".join([*lines[:50], *lines[51:]]))
    result = gavel("explain", "j0", "--log", harmed)
    assert result.exit_code == 2
    assert "line 51" in flat(result.stderr)
    torn = tmp_path / "torn.jsonl"
    torn.write_text("".join(lines[:200])[:-40])
    result = gavel("explain", "j0", "--log", torn)
    assert result.exit_code == 0
    assert "begun but not finished, is left out" in flat(result.stderr)


# --- plan ----------------------------------------------------------------------------------------


def planned(log: Path, *options: object) -> dict[str, object]:
    """What `plan` says of a job of an hour, 1700 s into the log."""
    steps = job("new", 1.0).total_steps
    common = ("--at", "1700", "--type", RESNET, "--steps", steps, "--id", "new", "--json")
    result = gavel("plan", "--log", log, *common, *options)
    assert result.exit_code == 0, result.stderr
    found: dict[str, object] = json.loads(result.stdout)
    return found


def test_a_plan_is_what_then_happens(log: Path) -> None:
    """The job submitted at that time starts, ends and delays others as was said."""
    found = planned(log)
    arrival_s = 1700.0
    jobs = [job(f"j{n}", 1.0 + n / 3, arrival_s=75.0 * n) for n in range(8)]
    submitted = (arrival_s, "client.new", JobSubmitted(job=job("new", 1.0)))
    with_it, without = Histories(), Histories()
    for record in run(jobs, [submitted]):
        with_it.take(record)
    for record in contention():
        without.take(record)
    history = with_it.jobs["new"]
    assert found["starts_s"] == history.stretches[0].starts_s
    assert found["ends_s"] == history.ended_s
    assert found["held_s"] == pytest.approx(history.received_s())
    delays = {
        name: (with_it.jobs[name].ended_s or 0) - (each.ended_s or 0)
        for name, each in without.jobs.items()
        if each.ended_s is not None and each.ended_s > arrival_s
    }
    late = {name: delay for name, delay in delays.items() if abs(delay) > 1}
    assert found["delays_s"] == pytest.approx(late)
    hours = {worker_type: s / 3600 for worker_type, s in history.received_s().items()}
    cost = 0.74 * hours.get("v100", 0.0) + 0.135 * hours.get("k80", 0.0)
    assert found["cost_usd"] == pytest.approx(cost)


def test_a_plan_under_another_policy_is_another(log: Path) -> None:
    """First in, first out: it comes after all who are there."""
    assert planned(log, "--policy", "fifo")["starts_s"] > planned(log)["starts_s"]  # type: ignore[operator] # numbers


def test_a_plan_of_a_job_that_can_never_run_says_why(log: Path) -> None:
    """Exit code 1, with the numbers."""
    result = gavel("plan", "--log", log, "--type", RESNET, "--steps", 9, "--workers", 4)
    assert result.exit_code == 1
    assert "can never run: asks for 4 workers of one type; there are k80: 2, v100: 2" in flat(
        result.stdout
    )


def test_a_plan_of_a_job_of_no_known_type_needs_its_speed(log: Path) -> None:
    """Declared, it is planned; undeclared, it is told that nothing is known."""
    options = ("--log", log, "--type", "mine", "--steps", 3600)
    assert "no throughput of job type 'mine' is known" in flat(gavel("plan", *options).stdout)
    told = flat(gavel("plan", *options, "--throughput", "v100=1").stdout)
    assert "starts in" in told
    assert "on v100 for" in told


def test_a_plan_says_whom_it_delays_in_words(log: Path) -> None:
    """When, where, at what cost, at whose cost."""
    steps = job("new", 1.0).total_steps
    told = flat(
        gavel("plan", "--log", log, "--at", "30m", "--type", RESNET, "--steps", steps).stdout
    )
    for words in ("starts in", "ends in", "cost", "USD", "delays", "most of all"):
        assert words in told


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--id", "j0"), "--id is 'j0'; expected a name that no job of the log has"),
        (("--policy", "lass"), "policy 'lass' is not known; did you mean 'las'"),
        (("--throughput", "v100=fast"), "--throughput is 'v100=fast'; expected steps/s, a number"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(
    log: Path, options: tuple[str, ...], expected: str
) -> None:
    """One line: the option, the value, what would be right."""
    result = gavel("plan", "--log", log, "--type", RESNET, "--steps", 9, *options)
    assert result.exit_code == 2
    assert expected in flat(result.stderr)
