"""Reading traces: every format, every kind of bad row, and the real files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.traces.errors import TraceError
from replay.traces.jobs import write_jobs
from replay.traces.reader import Trace, parse_trace, read_trace
from replay.traces.tables import read_table
from schemas.domain import JobSpec
from services.estimator.tables import ThroughputTable, parse_csv

TABLE = parse_csv(
    "job_type,scale_factor,worker_type,steps_per_s\n"
    "A3C,1,v100,4\nA3C,1,k80,0\nLM (batch size 5),1,v100,10\nLM (batch size 5),2,v100,16\n",
    "small table",
)
ODD = "traces/gavel/msr_seed0__odd_scale_factors.trace"
TEN = ("A3C", "run", "dir", "--n", "0", "100", "1", "1", "-1.000000", "0")


def read(text: str, **how: Any) -> Trace:
    """Parse ``text`` with the small table."""
    return parse_trace(text, "t.trace", TABLE, **how)


def ten(**changes: str) -> str:
    """One row of ten columns, with cells changed by name."""
    names = ("job_type", "command", "workdir", "flag", "data", "steps", "scale", "weight", "slo")
    cells = dict(zip((*names, "arrival"), TEN, strict=True)) | changes
    return "\t".join(cells.values()) + "\n"


def line_of(**changes: object) -> str:
    """One JSON line, with keys changed or added; a key changed to ``...`` is left out."""
    item: dict[str, object] = {"job_id": "a", "job_type": "A3C", "total_steps": 100.0, **changes}
    return json.dumps({key: value for key, value in item.items() if value is not ...}) + "\n"


def faults_of(text: str, **how: Any) -> list[tuple[int, str, int]]:
    """(line, field, column) of all that is wrong with ``text``."""
    with pytest.raises(TraceError) as caught:
        read(text, **how)
    assert all(fault.expected for fault in caught.value.faults)
    return [(fault.line, fault.field, fault.column) for fault in caught.value.faults]


def test_ten_columns() -> None:
    """Each column of the artifact's format reaches its field; the row's position is the id."""
    row = ten(scale="2", weight="0.5", arrival="7", job_type="LM (batch size 5)", steps="12")
    (job,) = read(row).jobs
    assert job == JobSpec(
        job_id="0",
        job_type="LM (batch size 5)",
        scale_factor=2,
        total_steps=12.0,
        priority_weight=0.5,
        arrival_s=7.0,
        command="run --n 12",
        workdir="dir",
    )


def test_seven_columns_have_arrival_before_scale_factor() -> None:
    """In the seven-column format the last two columns are arrival and scale factor."""
    row = "LM (batch size 5)\tcd %s && run\t--n\t1\t50\t11.500000\t2"
    (job,) = read(row).jobs
    assert (job.arrival_s, job.scale_factor, job.total_steps) == (11.5, 2, 50.0)
    assert (job.command, job.workdir) == ("cd %s && run --n 50", "")


def test_twelve_columns_count_changing_batch_sizes_as_repaired() -> None:
    """In the twelve-column format a job that changes its batch size keeps the first, counted."""
    row = "A3C\trun\tdir\t--n\t0\t100\t1\t{}\t2\t-1.000000\t25\t9\n"
    trace = read("".join(row.format(mode) for mode in ("static", "gns", "accordion", "gns")))
    assert [job.priority_weight for job in trace.jobs] == [2.0] * 4
    assert [job.arrival_s for job in trace.jobs] == [9.0] * 4
    assert sorted(trace.repaired.values()) == [1, 2]
    assert faults_of(row.format("turbo")) == [(1, "mode", 8)]


def test_slo_multiplies_the_isolated_duration() -> None:
    """-1 is no deadline; a multiplier counts from the isolated duration on the reference type."""
    none, some = read(ten() + ten(slo="1.5", steps="80")).jobs
    assert none.slo_s is None
    assert some.slo_s == 1.5 * 80 / 4


def test_duration_becomes_whole_steps() -> None:
    """A duration is turned into steps at the reference type's speed, rounded."""
    text = line_of(total_steps=..., duration_s=10.1, reference_type="v100")
    (job,) = read(text).jobs
    assert (job.total_steps, job.duration_s, job.reference_type) == (40.0, None, "")
    declared = line_of(
        job_type="mine",
        total_steps=...,
        duration_s=10.0,
        reference_type="h100",
        declared_throughputs={"h100": 3.0},
    )
    assert read(declared).jobs[0].total_steps == 30.0


@pytest.mark.parametrize("worker_type", ["k80", "p100"])
def test_duration_on_a_type_it_does_not_run_on_is_refused(worker_type: str) -> None:
    """Zero and unknown reference throughputs are named, not divided by."""
    text = line_of(total_steps=..., duration_s=10.0, reference_type=worker_type)
    assert faults_of(text) == [(1, "reference_type", 0)]
    assert faults_of(ten(slo="2"), reference_type=worker_type) == [(1, "reference_type", 0)]


def test_duration_too_short_for_a_step_is_refused() -> None:
    """A duration that rounds to no step is refused rather than completed at once."""
    text = line_of(total_steps=..., duration_s=0.01, reference_type="v100")
    assert faults_of(text) == [(1, "duration_s", 0)]


@pytest.mark.parametrize("text", [ten() * 2, line_of() + line_of(job_id="b")])
def test_blank_lines_crlf_and_byte_order_mark_are_ordinary(text: str) -> None:
    """They change nothing, nor does a missing line end."""
    plain = read(text).jobs
    assert read("\ufeff\r\n" + text.replace("\n", "\r\n\r\n") + "  \n").jobs == plain
    assert read(text.removesuffix("\n")).jobs == plain


def test_unsorted_arrivals_are_sorted_and_counted() -> None:
    """Jobs come in order of arrival, ties in the file's order, ids still of the file."""
    trace = read("".join(ten(arrival=arrival) for arrival in ("200000", "100000", "200000")))
    assert [job.job_id for job in trace.jobs] == ["1", "0", "2"]
    assert [job.arrival_s for job in trace.jobs] == [100_000.0, 200_000.0, 200_000.0]
    assert list(trace.repaired.values()) == [1]
    assert trace.kept == 3


def test_scale_factor_written_as_a_float_is_fine() -> None:
    """``1.0`` and ``2.0`` are whole numbers of workers, in text and in JSON."""
    assert read(ten(scale="1.0")).jobs == read(ten()).jobs
    two = line_of(job_type="LM (batch size 5)", scale_factor=2.0)
    assert read(two).jobs[0].scale_factor == 2


@pytest.mark.parametrize(
    ("changes", "field", "column"),
    [
        *[({"steps": bad}, "total_steps", 6) for bad in ("0", "-5", "nan", "inf", "", "many")],
        *[({"scale": bad}, "scale_factor", 7) for bad in ("0", "-1", "1.5", "nan", "1e30", "")],
        *[({"weight": bad}, "priority_weight", 8) for bad in ("0", "-1", "nan", "inf", "high")],
        *[({"slo": bad}, "slo", 9) for bad in ("0", "-2", "nan", "inf")],
        *[({"arrival": bad}, "arrival_s", 10) for bad in ("nan", "-1", "1e30", "noon")],
        *[({"data": bad}, "needs_data_dir", 5) for bad in ("2", "yes")],
        *[({"job_type": bad}, "job_type", 1) for bad in ("", " A3C", "A\x00B")],
    ],
)
def test_a_bad_cell_is_named(changes: dict[str, str], field: str, column: int) -> None:
    """A bad cell is refused with line, column number and name, value and what would be right."""
    with pytest.raises(TraceError) as caught:
        read(ten() + ten(**changes))
    (fault,) = caught.value.faults
    assert (fault.line, fault.field, fault.column) == (2, field, column)
    assert fault.value == next(iter(changes.values()))
    assert f"line 2, column {column} ({field})" in str(caught.value)


@pytest.mark.parametrize("width", [1, 6, 8, 9, 11, 13])
def test_other_column_counts_are_refused(width: int) -> None:
    """Only 7, 10 and 12 columns are formats we know."""
    with pytest.raises(TraceError, match=f"{width}; expected 7, 10 or 12"):
        read("\t".join(["x"] * width))


def test_a_truncated_line_is_named() -> None:
    """A row shorter than those before it is refused, even if it has the width of a format."""
    for width in (3, 7):
        cut = "\t".join(TEN[:width])
        assert faults_of(ten() + cut) == [(2, "number of columns", 0)]
    assert faults_of(line_of() + line_of()[:-5])[0][:2] == (2, "row")


def test_all_bad_rows_are_told_at_once() -> None:
    """Every fault is collected, the message shows twenty and counts the rest."""
    with pytest.raises(TraceError, match="lines at fault: 25") as caught:
        read(ten(steps="0") * 24 + ten() + ten(steps="0", weight="0"))
    assert len(caught.value.faults) == 26
    assert "... and 6 more" in str(caught.value)
    assert str(caught.value).count("\n") == 21


@pytest.mark.parametrize("text", ["", "\n", "\ufeff", " \r\n\t\n"])
def test_an_empty_trace_is_refused(text: str) -> None:
    """No jobs is an error that says so."""
    with pytest.raises(TraceError, match="empty"):
        read(text)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"total_steps": 0}, "total_steps"),
        ({"total_steps": float("nan")}, "total_steps"),
        ({"arrival_s": float("inf")}, "arrival_s"),
        ({"arrival_s": -1}, "arrival_s"),
        ({"arrival_s": 1e30}, "arrival_s"),
        ({"scale_factor": 1.5}, "scale_factor"),
        ({"scale_factor": 0}, "scale_factor"),
        ({"scale_factor": "2"}, "scale_factor"),
        ({"priority_weight": 0}, "priority_weight"),
        ({"slo_s": -1}, "slo_s"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"job_id": "a/b"}, "job_id"),
        ({"job_id": ""}, "job_id"),
        ({"job_id": "x" * 65}, "job_id"),
        ({"job_type": " "}, "job_type"),
        ({"user": "a\nb"}, "user"),
        ({"allowed_worker_types": ["v100", ""]}, "allowed_worker_types"),
        ({"declared_throughputs": {"v100": -1.0}}, "declared_throughputs[v100]"),
        ({"duration_s": 5.0}, "total_steps, duration_s"),
        ({"total_steps": ...}, "total_steps, duration_s"),
        ({"job_type": ...}, "job_type"),
        ({"environment": {"A": 1}}, "environment[...]"),
        ({"prioritiy": 2}, "key"),
    ],
)
def test_a_bad_key_is_named(changes: dict[str, object], field: str) -> None:
    """A bad value of our own format is refused with line, key and what would be right."""
    assert faults_of(line_of(job_id="good") + line_of(**changes)) == [(2, field, 0)]


def test_an_unknown_key_is_told_the_nearest() -> None:
    """A misspelt key is refused with the right one, not ignored."""
    with pytest.raises(TraceError, match="'prioritiy_weight'; expected 'priority_weight'"):
        read(line_of(prioritiy_weight=2))


@pytest.mark.parametrize("text", ["{", "{} {}", '{"job_id": "a", }', '{"user": "\\ud800"}'])
def test_malformed_json_is_named(text: str) -> None:
    """What is no JSON object is refused with its line."""
    assert faults_of(line_of() + text)[0][0] == 2


def test_one_id_for_two_jobs_is_refused() -> None:
    """Both lines are named; the same job twice is kept once and counted."""
    with pytest.raises(TraceError, match="line 3, job_id: 'a'; expected another id: line 1 has it"):
        read(line_of() + line_of(job_id="b") + line_of(total_steps=7.0))
    trace = read(line_of() + line_of(job_id="b") + line_of())
    assert [job.job_id for job in trace.jobs] == ["a", "b"]
    assert list(trace.repaired.values()) == [1]


def test_jobs_without_ids_get_their_position() -> None:
    """As in the artifact's formats."""
    assert [job.job_id for job in read(line_of(job_id=...) * 2).jobs] == ["0", "1"]


def test_unknown_job_classes_are_listed_or_skipped() -> None:
    """Rejected by class, with counts and the nearest known; or left out and counted by class."""
    text = ten() + ten(scale="16") * 3 + ten(job_type="LM (batch size 6)")
    with pytest.raises(TraceError) as caught:
        read(text)
    wide, misspelt = caught.value.faults
    assert (wide.line, wide.field, wide.value) == (2, "scale_factor", 16)
    assert "jobs like it: 3" in wide.expected
    assert (misspelt.line, misspelt.field) == (5, "job_type")
    assert "'LM (batch size 5)'" in misspelt.expected
    trace = read(text, unknown="skip")
    assert [job.job_id for job in trace.jobs] == ["0"]
    assert sorted(trace.refused.values()) == [1, 3]
    with pytest.raises(TraceError, match="no job is left"):
        read(ten(scale="16"), unknown="skip")


def test_a_declared_job_needs_no_table() -> None:
    """A job that states its own throughputs is known, whatever the table holds."""
    text = line_of(job_type="mine", declared_throughputs={"v100": 2.0})
    assert [job.job_type for job in read(text).jobs] == ["mine"]


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    """A pickle, or a file in another encoding, is refused with the line of its first odd byte."""
    path = tmp_path / "jobs.pickle"
    path.write_bytes(ten().encode() + b"\x80\x04\x95")
    with pytest.raises(TraceError, match="line 2, text"):
        read_trace(path, TABLE)


@given(
    st.text(max_size=60) | st.text(st.sampled_from(ten() + line_of() + "\r\ufeff"), max_size=200)
)
def test_any_text_is_a_trace_or_a_trace_error(text: str) -> None:
    """Nothing that can be in a file leads to any other exception."""
    try:
        assert read(text, unknown="skip").jobs
    except TraceError as error:
        assert str(error).startswith("t.trace: ")  # noqa: PT017 either outcome is right


@given(st.sampled_from([ten(slo="2"), line_of(slo_s=5, user="me")]), st.data())
def test_a_damaged_row_is_a_job_or_a_trace_error(row: str, data: st.DataObject) -> None:
    """A character changed, lost or doubled anywhere in a row leads to no other exception."""
    place = data.draw(st.integers(0, len(row) - 1))
    instead = data.draw(
        st.sampled_from(["", row[place] * 2, "\t", "\n", "-", "9", '"', "}", "\ud800"])
    )
    try:
        assert read(row[:place] + instead + row[place + 1 :], unknown="skip").jobs
    except TraceError as error:
        assert error.source == "t.trace"  # noqa: PT017 either outcome is right


finite = st.floats(min_value=1e-3, max_value=1e9)
names = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=12)
specs = st.builds(
    JobSpec,
    job_id=st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True),
    job_type=st.sampled_from(["A3C", "LM (batch size 5)"]),
    scale_factor=st.just(1),
    total_steps=finite,
    priority_weight=finite,
    slo_s=st.none() | finite,
    allowed_worker_types=st.lists(names).map(tuple),
    entity=st.just("") | names,
    user=st.just("") | names,
    arrival_s=finite,
    command=st.text(st.characters(exclude_categories=["Cs"])),
    environment=st.dictionaries(names, names, max_size=3),
    declared_throughputs=st.dictionaries(names, finite, max_size=3),
    max_attempts=st.integers(1, 10),
)


@given(st.lists(specs, min_size=1, max_size=8, unique_by=lambda job: job.job_id))
def test_written_jobs_read_back_equal(jobs: list[JobSpec]) -> None:
    """What is written is read, field by field, in order of arrival."""
    assert read(write_jobs(jobs)).jobs == sorted(jobs, key=lambda job: job.arrival_s)


@pytest.fixture(scope="module")
def measured(reference_data: Path) -> ThroughputTable:
    """The artifact's table."""
    return read_table(reference_data / "throughputs" / "simulation_throughputs.json")


def test_real_traces_are_read_whole(reference_data: Path, measured: ThroughputTable) -> None:
    """Every row of every published trace is a job, or is counted as one that was left out."""
    files = sorted(reference_data.glob("traces/*/*.trace"))
    files.remove(reference_data / ODD)
    assert len(files) >= 14
    for path in files:
        rows = [line.split("\t") for line in path.read_text("utf-8").splitlines()]
        trace = read_trace(path, measured, unknown="skip")
        assert trace.kept + sum(trace.refused.values()) == len(rows), path
        column = 4 if len(rows[0]) == 7 else 5
        for job in trace.jobs:
            assert job.total_steps == float(rows[int(job.job_id)][column]), path
        arrivals = [job.arrival_s for job in trace.jobs]
        assert arrivals == sorted(arrivals)


def test_real_odd_scale_factors_are_all_refused(
    reference_data: Path, measured: ThroughputTable
) -> None:
    """A real trace of 7, 12, 16 ... workers a job has no known class: each is told, with counts."""
    rows = (reference_data / ODD).read_text("utf-8").splitlines()
    with pytest.raises(TraceError) as caught:
        read_trace(reference_data / ODD, measured, unknown="skip")
    asked = {(cells[0], int(cells[6])) for cells in (row.split("\t") for row in rows)}
    assert {fault.field for fault in caught.value.faults} == {"scale_factor"}
    assert len(caught.value.faults) == len(asked)


def test_golden_traces_agree_with_their_job_lists(
    reference_data: Path, measured: ThroughputTable
) -> None:
    """A golden trace in ten columns is its full-precision job list, up to the rounding of text."""
    files = sorted(reference_data.glob("golden/traces/*.trace"))
    assert files
    for path in files:
        listed = json.loads(path.with_suffix(".json").read_text("utf-8"))["jobs"]
        jobs = read_trace(path, measured).jobs
        assert len(jobs) == len(listed)
        for job, exact in zip(jobs, listed, strict=True):
            assert job.job_id == str(exact["id"])
            assert (job.job_type, job.scale_factor) == (exact["job_type"], exact["scale_factor"])
            assert job.total_steps == pytest.approx(exact["total_steps"], abs=1)
            assert job.arrival_s == pytest.approx(exact["arrival"], abs=1)
            assert job.priority_weight == exact["priority_weight"]


def test_job_lists_become_traces_of_ours(reference_data: Path, measured: ThroughputTable) -> None:
    """A golden job list, written in our format, comes back with every digit."""
    for path in sorted(reference_data.glob("golden/traces/*.json")):
        listed = json.loads(path.read_text("utf-8"))["jobs"]
        jobs = [
            JobSpec(
                job_id=str(item["id"]),
                job_type=item["job_type"],
                scale_factor=item["scale_factor"],
                total_steps=item["total_steps"],
                arrival_s=item["arrival"],
            )
            for item in listed
        ]
        assert parse_trace(write_jobs(jobs), path.name, measured).jobs == jobs


def test_a_read_trace_holds_steps_only() -> None:
    """Whatever the file said, jobs come out with steps and without durations."""
    text = line_of(total_steps=..., duration_s=9.0) + line_of(job_id="b")
    for job in read(text).jobs:
        assert job.total_steps is not None
        assert job.duration_s is None
        assert msgspec.convert(msgspec.to_builtins(job), JobSpec) == job


def test_wider_jobs_than_the_table_has_can_be_clamped() -> None:
    """On the most workers below that their job type runs on, for the same steps; counted."""
    text = ten(job_type="LM (batch size 5)", scale="16") + ten(job_type="LM (batch size 6)")
    trace = read(text, unknown="clamp")
    (job,) = trace.jobs
    assert (job.scale_factor, job.total_steps) == (2, 100.0)
    assert list(trace.repaired.values()) == [1]
    assert trace.lines == {"no throughput for 'LM (batch size 6)' at scale factor 1": (2,)}
