"""What readers of all formats share: times, what foreign jobs are here, files; the real files."""

from __future__ import annotations

import gzip
import io
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from replay.traces.cells import BadCellError, Clock, safe_id, zone
from replay.traces.errors import TraceError
from replay.traces.files import read_text
from replay.traces.fitting import How
from replay.traces.formats import FORMATS
from replay.traces.reader import parse_trace, read_trace
from schemas.subjects import is_safe_name
from tests.replay.foreign import (
    ACME,
    HELIOS,
    OPENB,
    PAI_TASKS,
    SMALL,
    TABLE,
    attempt,
    counts,
    only,
    philly,
    pod,
    read,
    seconds,
    swf,
)

# --- times ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "same_as"),
    [
        # Pacific time is 7 hours behind in summer, 8 in winter.
        ("2017-10-07 01:12:09", "2017-10-07 08:12:09+00:00"),
        ("2017-12-07 01:12:09", "2017-12-07 09:12:09+00:00"),
        ("2023-05-17 11:01:08+08:00", "2023-05-17 03:01:08+00:00"),
        ("2023-05-17T11:01:08Z", "2023-05-17 11:01:08+00:00"),
        ("2017-10-03 00:08:00 PDT", "2017-10-03 07:08:00+00:00"),
        ("2017-11-27 00:04:00 PST", "2017-11-27 08:04:00+00:00"),
        ("1507360329", "2017-10-07 07:12:09+00:00"),
        ("1507360329.0", "2017-10-07 07:12:09+00:00"),
        (" 2017-10-07 01:12:09 ", "2017-10-07 08:12:09+00:00"),
    ],
)
def test_times_in_all_ways_of_writing_them(written: str, same_as: str) -> None:
    """Naive ones are of the zone; offsets, zone names and epochs say for themselves."""
    clock = Clock(zone("America/Los_Angeles"))
    assert clock(written, "x") == clock(same_as, "x")


def test_fractions_of_seven_digits() -> None:
    """As some clouds write them; what is finer than a microsecond is dropped."""
    clock = Clock(zone("UTC"))
    whole = clock("2023-11-16 18:17:03", "x")
    assert clock("2023-11-16 18:17:03.9799600", "x") == pytest.approx(whole + 0.97996)


@pytest.mark.parametrize(
    "text", ["noon", "2017-13-01 00:00:00", "2017-10-07 25:00:00", "inf", "1:2"]
)
def test_what_is_no_time_is_no_time(text: str) -> None:
    """It is a bad cell, named by its column."""
    with pytest.raises(BadCellError, match="column_7"):
        Clock(zone("UTC"))(text, "column_7")


@given(st.text(max_size=30))
def test_any_text_is_a_time_or_a_bad_cell(text: str) -> None:
    """Nothing else comes of a cell."""
    try:
        assert isinstance(Clock(zone("Asia/Shanghai"))(text, "x"), float)
    except BadCellError as error:
        assert str(error).startswith("x ")  # noqa: PT017 either outcome is right


@given(st.integers(1_483_228_800, 1_546_300_800), st.sampled_from(["America/Los_Angeles", "UTC"]))
def test_a_time_read_is_the_time_written(at_s: int, key: str) -> None:
    """All seconds of two years, through both changes of the clock; the hour twice is the first."""
    from datetime import datetime  # noqa: PLC0415 - for this one

    local = datetime.fromtimestamp(at_s, zone(key))
    found = Clock(zone(key))(local.strftime("%Y-%m-%d %H:%M:%S"), "x")
    assert found == (at_s if local.fold == 0 else at_s - 3600)


def test_the_hour_that_clocks_show_twice() -> None:
    """A job from 1:50 to 1:10 on the night in which clocks are put back ran for 20 minutes."""
    tries = [attempt("2017-11-05 01:50:00", "2017-11-05 01:10:00")]
    trace = read(philly({"attempts": tries}))
    assert seconds(only(trace)) == pytest.approx(1200.0)
    assert counts(trace.repaired, "clocks were put back") == 1


def test_an_unknown_zone_is_refused() -> None:
    """With what would be right."""
    with pytest.raises(TraceError, match=r"'Mars/Olympus' is not .*Asia/Shanghai"):
        read(philly({}), zone="Mars/Olympus")


def test_a_zone_that_is_named_counts() -> None:
    """Naive times of a trace in which clocks are never changed."""
    later = {"jobid": "b", "submitted_time": "2017-11-06 01:00:00"}
    own, utc = (read(philly({}, later), zone=key).jobs[1].arrival_s for key in ("", "UTC"))
    assert own == utc + 3600


# --- scale factors, job types, ids ---------------------------------------------------------------


def gpus(*numbers: float | str) -> str:
    """A trace of jobs of so many GPUs, 1000 s each."""
    rows = "".join(f"{i},{n},0,1000\n" for i, n in enumerate(numbers))
    return f"job_id,num_gpu,submit_time,duration\n{rows}"


@pytest.mark.parametrize(("asked", "runs_on"), [(7, 2), (12, 8), (20, 8), (24, 8), (64, 8), (3, 2)])
def test_odd_scale_factors(asked: int, runs_on: int) -> None:
    """On the most workers below that job types run on, for as many worker-seconds; or left out."""
    trace = read(gpus(1, asked))
    assert trace.jobs[1].scale_factor == runs_on
    assert seconds(trace.jobs[1]) * runs_on == pytest.approx(1000 * asked, rel=1e-3)
    assert counts(trace.repaired, "more workers than job types run on") == 1
    left_out = read(gpus(1, asked), unknown="skip")
    assert only(left_out).job_id == "0"
    assert counts(left_out.refused, f"no job type of the table runs on {asked} workers") == 1


@pytest.mark.parametrize("number", ["0", "-1", "0.5x", "", "nan", "1e30", "1.5"])
def test_numbers_of_gpus_that_are_none(number: str) -> None:
    """Left out with the line, whatever stands there."""
    trace = read(gpus(1, number))
    assert only(trace).job_id == "0"
    assert list(trace.lines.values()) == [(3,)]


def test_job_types_are_drawn_by_seed_and_id() -> None:
    """Equal seeds, equal jobs; all types that fit are drawn; they can be named; events say so."""
    text = gpus(*[1] * 200)
    one, again, other = (read(text, seed=seed).jobs for seed in (1, 1, 2))
    assert one == again != other
    drawn = [job.job_type for job in one]
    assert 60 < drawn.count("A") < 140
    assert all(job.source and job.source.job_type_assigned for job in one)
    assert {job.job_type for job in read(text, job_types=("B",)).jobs} == {"B"}


def test_a_row_more_does_not_change_the_types_of_others() -> None:
    """A job's type depends on its id, not on its place."""
    jobs = {job.job_id: job.job_type for job in read(gpus(*[1] * 50)).jobs}
    head, *rows = gpus(*[1] * 50).splitlines()
    again = {job.job_id: job.job_type for job in read("\n".join([head, *rows[::-1]])).jobs}
    assert jobs == again


def test_a_model_that_the_table_knows_is_that_job_type() -> None:
    """Nothing is drawn then, and the event says so."""
    head = "job_id,num_gpu,submit_time,iterations,model_name,duration\n"
    jobs = read(head + "".join(f"{i},1,0,5,B,100\n" for i in range(9))).jobs
    assert {job.job_type for job in jobs} == {"B"}
    assert not any(job.source and job.source.job_type_assigned for job in jobs)


def test_jobs_too_short_for_a_step_have_one() -> None:
    """It is counted, not refused: such traces are full of them."""
    trace = read("job_id,num_gpu,submit_time,duration\n0,1,0,0.001\n")
    assert only(trace).total_steps == 1.0
    assert counts(trace.repaired, "shorter than a step") == 1


@given(st.text(min_size=1, max_size=200))
def test_any_id_becomes_one_that_is_safe(text: str) -> None:
    """In subjects and paths; a safe one stays as it is."""
    assert is_safe_name(safe_id(text))
    if is_safe_name(text):
        assert safe_id(text) == text


def test_ids_that_are_not_safe_are_replaced_and_remembered() -> None:
    """Two that would look alike stay apart."""
    trace = read("job_id,num_gpu,submit_time,duration\na/b,1,0,9\na:b,1,0,9\n")
    one, other = trace.jobs
    assert one.job_id != other.job_id
    assert one.source is not None
    assert one.source.job_id == "a/b"
    assert counts(trace.repaired, "not safe") == 2


# --- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.ZstdCompressor().compress])
def test_compressed_files_are_read(pack: Any, tmp_path: Path) -> None:
    """By what is in them, whatever they are called; a damaged one is refused."""
    path = tmp_path / "trace.csv"
    path.write_bytes(pack(gpus(1, 2).encode()))
    assert read_trace(path, SMALL).jobs == read(gpus(1, 2)).jobs
    path.write_bytes(pack(gpus(1, 2).encode())[:-6])
    if pack is gzip.compress:
        with pytest.raises(TraceError, match="cannot be decompressed"):
            read_trace(path, SMALL)


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the name ``-``."""
    stdin = io.TextIOWrapper(io.BytesIO(gpus(1, 2).encode()))
    monkeypatch.setattr("sys.stdin", stdin)
    assert len(read_trace(Path("-"), SMALL).jobs) == 2


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (pickle.dumps([(1.0, 2)]), "a pickle.*runs what is in it"),
        (b"PAR1\x00", "a Parquet file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS"),
    ],
)
def test_files_that_are_no_text_say_what_they_are(
    content: bytes, words: str, tmp_path: Path
) -> None:
    """A pickle is never loaded."""
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=words):
        read_text(path)


def test_a_file_of_no_format_is_told_what_there_are() -> None:
    """A CSV with another header names the formats."""
    with pytest.raises(TraceError, match=r"one of events, jobs, philly.*\(--format\)"):
        read("num_switch,num_node_p_switch\n1,32\n")


def test_a_format_can_be_named() -> None:
    """And is then the one that is read, or refused for what is missing."""
    assert parse_trace(gpus(1), "t", SMALL, format="tiresias").format == "tiresias"
    with pytest.raises(TraceError, match="expected a column 'name'"):
        parse_trace(gpus(1), "t", SMALL, format="sia")


def test_a_trace_of_nothing_but_rows_left_out_says_why() -> None:
    """With counts and first lines: the user sees what the file is full of."""
    with pytest.raises(TraceError, match=r"no job is left.*\n.*line 2.*no GPU \(rows like it: 3\)"):
        read(gpus(0, 0, 0))


@given(st.sampled_from(sorted(FORMATS)), st.data())
def test_any_damage_leaves_a_trace_or_a_trace_error(name: str, data: st.DataObject) -> None:
    """A character changed, lost or doubled anywhere leads to no other exception."""
    text = EXAMPLES.get(name, gpus(1, 2))
    place = data.draw(st.integers(0, len(text) - 1))
    instead = data.draw(st.sampled_from(["", text[place] * 2, ",", "\n", "-", "9", '"', "\x00"]))
    try:
        damaged = text[:place] + instead + text[place + 1 :]
        assert parse_trace(damaged, "t", SMALL, format=name).jobs
    except TraceError as error:
        assert str(error)  # noqa: PT017 either outcome is right


EXAMPLES = {
    "philly": philly({}, {"jobid": "b"}),
    "philly-csv": "timestamp,duration,num_gpus\n2017-10-09 07:01:55,66.0,1\n",
    "helios": HELIOS
    + "1,u,v,1,1,1,DONE,2020-06-09 18:41:01,2020-06-09 18:42:01,2020-06-09 18:52:01,9,0\n",
    "acme": ACME
    + "d,u,8,8,9,1,1.0,Other,FAILED,2023-05-17 11:00:58+00:00,2023-05-17 11:01:08+00:00,"
    + "2023-05-17 11:01:16+00:00,,,18,10.0,1152.0\n",
    "alibaba-2020": PAI_TASKS,
    "alibaba-2023": OPENB + pod() + pod("q", spec="T4|P100"),
    "swf": "; MaxProcs: 4\n" + swf(),
    "sia": "name,time,application,num_replicas,batch_size\nbert-0,1.5,bert,1,384\n",
    "jobs": '{"job_type": "A", "total_steps": 5}\n',
    "events": '{"at": 1.0, "actor": "client.a", "event": {"kind": "JobSubmitted", '
    '"job": {"job_id": "a", "job_type": "A", "total_steps": 5.0}}}\n',
}


# --- the real files ------------------------------------------------------------------------------

REAL = (
    *("philly/cluster_job_log.readme_entry.json", "philly/cluster_job_log.thirdparty*.json"),
    *("sia/philly.sample.csv", "sia/*workload*.csv", "helios/cluster_log*.csv", "acme/trace_*.csv"),
    *("alibaba_gpu_v2023/openb_pod_list_[dg]*.csv", "alibaba_pai_v2020/pai_task*row.csv"),
    *("tiresias/60_job.csv", "tiresias/tf_job.csv", "muri/[cjt]*.csv", "elasticflow/[epr]*.csv"),
    *("swf/*.swf", "alibaba_spot_v2026/job_info*.csv"),
)


@pytest.mark.parametrize("pattern", REAL)
def test_real_files_are_read_whole(pattern: str, reference_data: Path) -> None:
    """Every row is a job or is counted as left out; arrivals are in order, ids safe and unlike."""
    files = sorted(reference_data.glob(f"traces/{pattern}"))
    assert files
    for path in files:
        trace = read_trace(path, TABLE, how=How(table=TABLE, any_type="spot" in pattern))
        text = path.read_text()
        if path.suffix == ".json":
            rows = len(json.loads(text))
        else:
            lines = [line for line in text.splitlines() if line.strip(" ;")]
            heads = sum(line.startswith((";", "id\t")) for line in lines)
            rows = len(lines) - (heads if "swf" in pattern else "pai" not in pattern)
        assert trace.kept + sum(trace.refused.values()) == rows, path
        arrivals = [job.arrival_s for job in trace.jobs]
        assert arrivals == sorted(arrivals)
        assert len({job.job_id for job in trace.jobs}) == trace.kept
        assert all(is_safe_name(job.job_id) for job in trace.jobs)


def test_counts_of_the_real_files(reference_data: Path) -> None:
    """What is known of the files by other means: Pending pods, unmet deadlines, unknown runs."""
    folder = reference_data / "traces"
    openb = folder / "alibaba_gpu_v2023" / "openb_pod_list_default.sample.csv"
    rows = [line.split(",") for line in openb.read_text().splitlines()[1:]]
    trace = read_trace(openb, TABLE)
    assert counts(trace.refused, "no GPU") == sum(row[3] == "0" for row in rows)
    waiting = sum(row[7] == "Pending" and row[3] != "0" for row in rows)
    assert counts(trace.refused, "never scheduled") == waiting
    elastic = read_trace(folder / "elasticflow" / "philly_103959.csv", TABLE)
    assert counts(elastic.repaired, "cannot be met") == 466
    hpc2n = read_trace(folder / "swf" / "hpc2n_2002_excerpt.swf", TABLE)
    assert counts(hpc2n.refused, "run time (column 4) is not known") == 25


def test_workers_of_a_log_stay_there() -> None:
    """What comes and goes is the cluster's own; what is simulated has another."""
    lines = (
        '{"at": 0, "actor": "worker.a", "event": {"kind": "WorkerRegistered", "worker_id": "a-0",'
        ' "worker_type": "v100", "server_id": "a", "reporter": "worker.a"}}\n'
        '{"at": 5, "actor": "worker.a", "event": {"kind": "WorkerDisappeared", "worker_id": "a-0",'
        ' "reporter": "worker.a"}}\n'
        '{"at": 9, "actor": "client.j", "event": {"kind": "JobSubmitted", "job":'
        ' {"job_id": "j", "job_type": "A", "total_steps": 5}}}\n'
    )
    trace = read(lines)
    assert not trace.events
    assert counts(trace.refused, "workers of the log's own cluster") == 2
