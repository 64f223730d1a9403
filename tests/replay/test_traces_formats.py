"""Other clusters' traces: every kind of row that real files have, and the real files themselves."""

from __future__ import annotations

import gzip
import io
import json
import pickle
from collections.abc import Mapping
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
from replay.traces.formats import FORMATS, recognise
from replay.traces.reader import Trace, parse_trace, read_trace
from replay.traces.tables import builtin_table
from schemas.domain import JobSpec
from schemas.subjects import is_safe_name
from services.estimator.tables import parse_csv

TABLE = builtin_table()
#: At one worker two job types, at two and at eight one; nothing at other scale factors.
SMALL = parse_csv(
    "job_type,scale_factor,worker_type,steps_per_s\n"
    "A,1,v100,4\nA,1,p100,2\nB,1,v100,10\nB,1,k80,1\nA,2,v100,8\nA,8,v100,16\nA,8,p100,8\n",
    "small table",
)


def read(text: str, unknown: Any = "auto", **how: Any) -> Trace:
    """Parse with the small table."""
    return parse_trace(text, "t", SMALL, unknown=unknown, how=How(table=SMALL, **how))


def only(trace: Trace) -> JobSpec:
    """The one job of a trace."""
    (job,) = trace.jobs
    return job


def seconds(job: JobSpec, worker_type: str = "v100") -> float:
    """How long a job is on a worker type."""
    assert job.total_steps is not None
    return job.total_steps / (SMALL.alone(job.job_type, job.scale_factor, worker_type) or 0.0)


def counts(counted: Mapping[str, int], *words: str) -> int:
    """Rows counted for the one reason that has all words."""
    (found,) = [n for why, n in counted.items() if all(word in why for word in words)]
    return found


# --- Philly --------------------------------------------------------------------------------------


def philly(*changes: dict[str, Any]) -> str:
    """A job log; each job as Philly's are, with keys changed or added."""
    job = {
        "status": "Pass",
        "vc": "ee9e8c",
        "jobid": "application_1_1",
        "attempts": [attempt("2017-10-07 01:12:00", "2017-10-07 02:12:00")],
        "submitted_time": "2017-10-07 01:00:00",
        "user": "ce2f4c",
    }
    return json.dumps([job | change for change in changes], indent=1)


def attempt(start: str | None, end: str | None, gpus: int = 1) -> dict[str, Any]:
    """One attempt on one server."""
    detail = [{"ip": "m1", "gpus": [f"gpu{i}" for i in range(gpus)]}]
    return {"start_time": start, "end_time": end, "detail": detail}


def test_philly_jobs() -> None:
    """GPUs of the attempt, its time, virtual cluster and user; the first job arrives at 0."""
    later = {"jobid": "application_1_2", "submitted_time": "2017-10-07 01:00:30"}
    one, other = read(philly({}, later)).jobs
    assert (one.job_id, one.entity, one.user) == ("application_1_1", "ee9e8c", "ce2f4c")
    assert (one.arrival_s, other.arrival_s) == (0.0, 30.0)
    assert one.scale_factor == 1
    assert seconds(one) == pytest.approx(3600.0)
    assert one.source is not None
    assert (one.source.format, one.source.status, one.source.row) == ("philly", "Pass", 2)
    assert one.source.job_type_assigned


def test_philly_unknown_keys_are_ignored() -> None:
    """Others reuse the layout with keys of their own."""
    extra = {"num_lora": 0, "exec_time_seconds": 32.0, "more": {"a": [1]}}
    assert read(philly(extra)).jobs[0].total_steps == read(philly({})).jobs[0].total_steps


def test_philly_attempts_are_added_up() -> None:
    """Time between attempts is queueing, not work; GPUs are those of the first that says."""
    tries = [
        attempt("2017-10-07 01:00:00", "2017-10-07 01:10:00", gpus=0),
        attempt("2017-10-07 05:00:00", "2017-10-07 05:20:00", gpus=2),
        attempt("2017-10-07 06:00:00", "2017-10-07 06:30:00", gpus=8),
    ]
    trace = read(philly({"attempts": tries}))
    assert only(trace).scale_factor == 2
    assert seconds(only(trace)) == pytest.approx(3600.0)
    assert counts(trace.repaired, "several attempts") == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"attempts": []}, "never scheduled"),
        ({"attempts": [attempt("2017-10-07 01:12:00", None)]}, "no attempt has both"),
        ({"attempts": [attempt("2017-10-07 01:12:00", "None")]}, "no attempt has both"),
        ({"attempts": [attempt("", "2017-10-07 01:12:00")]}, "no attempt has both"),
        ({"attempts": [attempt("2017-10-07 01:12:00", "2017-10-07 02:12:00", 0)]}, "which GPUs"),
        ({"attempts": [attempt("2017-10-07 02:12:00", "2017-10-07 01:12:00")]}, "before it began"),
        ({"attempts": [attempt("2017-10-07 01:12:00", "2017-10-07 01:12:00")]}, "ran for 0 s"),
        ({"submitted_time": None}, "submitted_time is missing"),
        ({"submitted_time": "yesterday"}, "submitted_time is no time"),
        ({"attempts": [attempt("2017-10-07 01:12:00", "noon")]}, "end_time is no time"),
        ({"jobid": 7}, "not as a job of Philly's"),
    ],
)
def test_philly_rows_that_are_no_jobs(change: dict[str, Any], words: str) -> None:
    """Each is left out, counted by why, with its line; the others are kept."""
    trace = read(philly({"jobid": "good"}, change))
    assert [job.job_id for job in trace.jobs] == ["good"]
    assert counts(trace.refused, words) == 1
    # The second job of the file begins where the first, of 23 lines, has ended.
    assert list(trace.lines.values()) == [(philly({}).rstrip("\n]").count("\n") + 2,)]


def test_philly_a_job_still_running_counts_what_has_ended() -> None:
    """An attempt without an end is left aside, and counted as put right."""
    tries = [
        attempt("2017-10-07 01:00:00", "2017-10-07 02:00:00"),
        attempt("2017-10-07 03:00:00", None),
    ]
    trace = read(philly({"attempts": tries}))
    assert seconds(only(trace)) == pytest.approx(3600.0)
    assert counts(trace.repaired, "without start or end") == 1


def test_philly_damaged_files_say_where() -> None:
    """A file cut off is refused whole, with its last line; one of no jobs is refused too."""
    with pytest.raises(TraceError, match=r"line 13, file: .*truncated"):
        read("\n".join(philly({}).split("\n")[:13]))
    with pytest.raises(TraceError, match="no job"):
        read("[]")


def test_philly_as_csv() -> None:
    """The flat form: newest first in part, blank line at the end, no ids, the same row twice."""
    text = (
        "timestamp,duration,num_gpus,gpu_time,cluster\n"
        "2017-10-09 07:01:55,66.0,1,66.0,11cb48\n"
        "2017-10-09 06:13:03,2951.0,8,23608.0,6214e9\n"
        "2017-10-09 06:13:03,2951.0,8,23608.0,6214e9\n\n"
    )
    trace = read(text)
    assert [job.arrival_s for job in trace.jobs] == [0.0, 0.0, 2932.0]
    assert [job.job_id for job in trace.jobs] == ["1", "2", "0"]
    assert [job.entity for job in trace.jobs] == ["6214e9", "6214e9", "11cb48"]
    assert counts(trace.repaired, "sorted") == 1
    assert counts(trace.repaired, "the same row again") == 1


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


# --- Helios, Acme --------------------------------------------------------------------------------

HELIOS = (
    "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
)
ACME = (
    "job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,"
    "start_time,end_time,fail_time,stop_time,duration,queue,gpu_time\n"
)


def test_helios_jobs() -> None:
    """Jobs without GPUs, more than half there, are left out and counted."""
    trace = read(
        HELIOS
        + "1,u,vcA,1,1,1,DONE,2020-06-09 18:41:01,2020-06-09 18:42:01,2020-06-09 18:52:01,9,0\n"
        + "2,u,vcA,0,8,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:27,2020-06-09 18:45:36,249,0\n"
        + "3,u,vcA,2,8,1,NODE_FAIL,2020-06-09 18:41:31,2020-06-09 18:41:27,,1,0\n"
    )
    assert seconds(only(trace)) == pytest.approx(600.0)
    assert counts(trace.refused, "asks for no GPU") == 1
    assert counts(trace.refused, "end_time is missing") == 1
    assert trace.lines == {
        "asks for no GPU": (3,),
        "end_time is missing; expected a time": (4,),
    }


def test_acme_times_have_offsets_and_its_duration_is_not_used() -> None:
    """Kalos counts the queue into ``duration``; end minus start is what ran. Columns differ."""
    trace = read(
        ACME
        + "dlc,u,8,8,960,1000,100.0,Other,FAILED,2023-05-17 11:00:58+00:00,"
        + "2023-05-17 11:01:08+00:00,2023-05-17 11:01:16+00:00,,,18,10.0,1152.0\n"
        + "dld,u,8,8,960,1000,100.0,Other,CANCELLED,2023-05-17 19:01:58+08:00,"
        + "2023-05-17 11:01:08+00:00,2023-05-17 11:01:16+00:00,,,18,10.0,1152.0\n"
    )
    assert [seconds(job) for job in trace.jobs] == [8.0, 8.0]
    assert [job.arrival_s for job in trace.jobs] == [0.0, 60.0]
    seren = "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time"
    assert recognise(f"{seren},duration,queue,gpu_time") == "acme"


# --- Alibaba -------------------------------------------------------------------------------------

OPENB = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
OPENB += "deletion_time,scheduled_time\n"


def pod(name: str = "p", **changes: str) -> str:
    """One pod, with cells changed by name."""
    names = ("cpu", "mem", "num_gpu", "milli", "spec", "qos", "phase", "creation", "deletion")
    values = ("1000", "1024", "1", "1000", "", "LS", "Running", "100", "1100", "200")
    cells = dict(zip((*names, "scheduled"), values, strict=True))
    return ",".join([name, *(cells | changes).values()]) + "\n"


def test_openb_pods() -> None:
    """A part of a GPU is a whole one, counted; duration from scheduling; weight from the class."""
    text = OPENB + pod() + pod("q", milli="460", qos="BE") + pod("r", num_gpu="2")
    trace = read(text)
    assert [job.scale_factor for job in trace.jobs] == [1, 1, 2]
    assert [job.source.worker_fraction for job in trace.jobs if job.source] == [1.0, 0.46, 1.0]
    assert [job.priority_weight for job in trace.jobs] == [4.0, 1.0, 4.0]
    assert seconds(trace.jobs[0]) == pytest.approx(900.0)
    assert trace.jobs[0].arrival_s == 100.0
    assert counts(trace.repaired, "part of a worker") == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_gpu": "0", "milli": "0"}, "asks for no GPU"),
        ({"phase": "Pending", "scheduled": ""}, "never scheduled"),
        ({"scheduled": ""}, "never scheduled"),
        ({"scheduled": "1100"}, "ran for 0 s"),
        ({"scheduled": "1200"}, "ended before it began"),
        ({"deletion": ""}, "deletion_time is missing"),
        ({"num_gpu": "many"}, "num_gpu is no number"),
        ({"creation": "-5"}, "arrival is not between"),
        ({"spec": "G2"}, "GPU types that the table has not: G2"),
    ],
)
def test_openb_pods_that_are_no_jobs(changes: dict[str, str], words: str) -> None:
    """Each is left out with its line; a pod that was pending never ran, though it was deleted."""
    trace = read(OPENB + pod("good") + pod(**changes))
    assert only(trace).job_id == "good"
    assert counts(trace.refused, words) == 1
    assert list(trace.lines.values()) == [(3,)]


def test_gpu_types_as_alternatives() -> None:
    """Those that the table has are what the job may use; names can be given, or types ignored."""
    text = OPENB + pod(spec="T4|P100|V100M32")
    trace = read(text)
    assert only(trace).allowed_worker_types == ("p100", "v100")
    assert counts(trace.repaired, "some of which the table has not") == 1
    named = read(text, type_names={"T4": "k80"})
    assert only(named).allowed_worker_types == ("k80", "p100", "v100")
    assert not named.repaired
    assert only(read(text, any_type=True)).allowed_worker_types == ()


def test_job_types_run_on_a_type_that_is_asked_for() -> None:
    """B runs on k80, A does not: a job that wants a k80 can only be B."""
    pods = "".join(pod(f"p{i}", spec="K80") for i in range(20))
    assert {job.job_type for job in read(OPENB + pods).jobs} == {"B"}


def test_openb_lists_without_times_are_refused() -> None:
    """Some variants have five columns; the message names the ones that are not there."""
    with pytest.raises(TraceError, match="expected creation_time, deletion_time"):
        read("name,cpu_milli,memory_mib,num_gpu,gpu_milli\nopenb-pod-0000,12000,16384,1,1000\n")


def test_spot_jobs() -> None:
    """GPUs of all workers; the wanted type; high priority weighs more; numbers with ``.0``."""
    head = "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,"
    head += "duration,job_type\n"
    trace = read(
        head + "1,13,P100,20.0,1.0,8,0.0,100.0,HP\n2,57,V100,8.0,0.5,2,5.0,50.0,Spot\n"
        "3,57,V100,8.0,0.0,2,5.0,50.0,Spot\n"
    )
    one, other = trace.jobs
    assert (one.scale_factor, one.entity, one.priority_weight) == (8, "13", 2.0)
    assert one.allowed_worker_types == ("p100",)
    # The time it took on the type it had is what it takes there.
    assert seconds(one, "p100") == pytest.approx(100.0)
    assert (other.scale_factor, other.priority_weight) == (1, 1.0)
    assert counts(trace.refused, "no GPU") == 1


PAI_JOBS = "j1,i1,alice,Terminated,1000.0,2000.0\nj2,i2,bob,Running,1500.0,\n"
PAI_TASKS = (
    "j1,ps,2.0,Terminated,1010.0,2000.0,600.0,29.3,,\n"
    "j1,worker,4.0,Terminated,1100.0,1700.0,600.0,29.3,50.0,P100\n"
    "j2,worker,1.0,Running,1500.0,,600.0,29.3,100.0,V100\n"
    "j3,tensorflow,1.0,Terminated,1600.0,1700.0,600.0,29.3,25.0,MISC\n"
    "j4,ps,1.0,Terminated,1600.0,1700.0,600.0,29.3,0.0,\n"
    "j5,worker,1.0\n"
)


def test_pai_tables(tmp_path: Path) -> None:
    """Hundredths of GPUs over GPU tasks, parameter servers aside; the job table's arrival."""
    (tmp_path / "pai_task_table.csv").write_text(PAI_TASKS)
    with gzip.open(tmp_path / "pai_job_table.csv.gz", "wb") as file:
        file.write(PAI_JOBS.encode())
    trace = read_trace(tmp_path, SMALL)
    one, other = trace.jobs
    assert (one.job_id, one.scale_factor, one.user, one.arrival_s) == ("j1", 2, "alice", 0.0)
    assert (other.job_id, other.arrival_s) == ("j3", 600.0)
    assert other.source is not None
    assert other.source.worker_fraction == 0.25
    assert counts(trace.repaired, "ran on MISC") == 1
    # Nothing of the table runs on two p100.
    assert counts(trace.repaired, "ran on P100") == 1
    assert counts(trace.refused, "asks for no GPU") == 1
    assert counts(trace.refused, "no task has both start and end") == 1
    assert counts(trace.refused, "not the 10 columns") == 1


def test_a_pai_folder_without_tables_is_refused(tmp_path: Path) -> None:
    """And so is a job table alone, which has no GPUs."""
    with pytest.raises(TraceError, match=r"expected pai_task_table\.csv in it"):
        read_trace(tmp_path, SMALL)
    with pytest.raises(TraceError, match="not a trace that is known"):
        read(PAI_JOBS)


# --- SWF -----------------------------------------------------------------------------------------


def swf(**changes: str) -> str:
    """One line, with fields changed by number (``f4``)."""
    line = "1 100 -1 600 2 595.5 -1 2 900 -1 1 7 3 1 1 1 -1 -1"
    fields: list[str] = [*line.split()]
    for field, value in changes.items():
        fields[int(field[1:]) - 1] = value
    return "  " + "  ".join(fields) + "\n"


def test_swf_jobs() -> None:
    """Header lines, leading blanks, decimals; processors are workers, a group is an entity."""
    job = only(read("; Version: 2.2\n;\n" + swf()))
    assert (job.job_id, job.scale_factor, job.arrival_s) == ("1", 2, 100.0)
    assert (job.user, job.entity) == ("user-7", "group-3")
    assert seconds(job) == pytest.approx(600.0)
    assert job.source is not None
    assert job.source.status == "completed"


def test_swf_processors_asked_for_or_used() -> None:
    """Those asked for count; where they are not known, those used; so many make a worker."""
    assert only(read(swf(f8="-1"))).scale_factor == 2
    differing = read(swf(f5="1"))
    assert only(differing).scale_factor == 2
    assert counts(differing.repaired, "used other processors") == 1
    assert only(read(swf(f5="32", f8="32"), processors=16)).scale_factor == 2
    part = read(swf(f5="4", f8="4"), processors=16)
    assert only(part).scale_factor == 1
    assert counts(part.repaired, "part of a worker") == 1


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (swf(f4="-1", f11="-1"), "run time (column 4) is not known"),
        (swf(f4="0"), "ran for 0 s"),
        (swf(f5="-1", f8="-1"), "processors (columns 5 and 8) are not known"),
        ("  ".join(swf().split()[:9]) + "\n", "the line is cut off"),
        (swf(f2="soon"), "submit time (column 2) is no number"),
    ],
)
def test_swf_lines_that_are_no_jobs(line: str, words: str) -> None:
    """Unknown is -1 there; a last line cut off is counted, the rest kept."""
    trace = read(swf(f1="9") + line)
    assert only(trace).job_id == "9"
    assert counts(trace.refused, words) == 1


def test_swf_in_other_peoples_hands() -> None:
    """More columns, dates for submit times, tabs with a header in words and text ids."""
    more = "".join(
        swf(f1=str(i), f2=str(1356996147 + i)).rstrip() + " {1241} q_1d 1:ppn=64\n" for i in (1, 2)
    )
    assert [job.arrival_s for job in read(more).jobs] == [0.0, 1.0]
    words = "id submit wait runtime cpus cputimeused usedmem cpusreq walltime memreq status user"
    words += " group application queue partition precjob thinktime DAG_name Task_ID"
    tabbed = "\t".join(words.split()) + "\r\n" + "\t".join(swf().split()) + "\tDAG-1\t1\r\n"
    assert recognise(tabbed.split("\r")[0]) == "swf"
    assert only(read(tabbed)).scale_factor == 2


# --- research schedulers -------------------------------------------------------------------------


def test_tiresias_and_muri_differ_in_units() -> None:
    """CRLF; seconds there, milliseconds here, told by a column; runs of a model are of one type."""
    rows = "0,1,0,606,vgg19,164,30\r\n1,8,30,133,vgg11,147,23\r\n2,1,53,157,vgg19,127,26\r\n"
    trace = read(f"job_id,num_gpu,submit_time,iterations,model_name,duration,interval\r\n{rows}")
    assert [job.arrival_s for job in trace.jobs] == [0.0, 30.0, 53.0]
    assert [round(seconds(job)) for job in trace.jobs] == [164, 147, 127]
    assert trace.jobs[0].job_type == trace.jobs[2].job_type
    muri = "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,"
    muri += "iteration_time,priority\r\n0,8,1534000,10956,gpt2,4,5095000,91000,437,0\r\n"
    job = only(read(muri))
    # Iterations and their time say 4788 s: the duration counts.
    assert (job.arrival_s, seconds(job)) == (1534.0, 5095.0)


def test_one_id_for_several_rows() -> None:
    """The same row twice is one job; another job under the id gets one of its own."""
    head = "job_id,num_gpu,submit_time,duration\n"
    trace = read(head + "10,1,11,20\n10,1,11,20\n10,1,12,20\n")
    assert [job.job_id for job in trace.jobs] == ["10", "10-2"]
    assert counts(trace.refused, "the same row again") == 1
    assert counts(trace.repaired, "renamed") == 1


def test_one_id_for_all_rows_takes_no_longer() -> None:
    """A column that is no id at all: each row is a job, under names that are found at once."""
    rows = "".join(f"same,1,{i},20\n" for i in range(20_000))
    trace = read(f"job_id,num_gpu,submit_time,duration\n{rows}same-7,1,9,9\n")
    assert len({job.job_id for job in trace.jobs}) == trace.kept == 20_001


def test_outcomes_stay_in_the_words_of_the_source() -> None:
    """Five vocabularies; whatever became of a job there, it had its GPUs and is a job here."""
    times = "2020-06-09 18:41:01,2020-06-09 18:42:01,2020-06-09 18:52:01,9,0\n"
    texts = {
        "Killed": philly({"status": "Killed"}),
        "NODE_FAIL": f"{HELIOS}1,u,vcA,1,1,1,NODE_FAIL,{times}",
        "Failed": OPENB + pod(phase="Failed"),
        "Terminated": "j,worker,1.0,Terminated,10.0,20.0,600.0,29.3,100.0,V100\n",
        "cancelled": swf(f11="5"),
    }
    for status, text in texts.items():
        source = only(read(text)).source
        assert source is not None
        assert source.status == status


def test_deadlines_that_cannot_be_met() -> None:
    """They are kept and counted; one before the arrival is none; best effort has none."""
    head = "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration,best_effort\n"
    rows = ("0,100,1,m,300,64,1,50,0", "1,100,1,m,120,64,1,50,0", "2,100,1,m,90,64,1,50,0")
    trace = read(head + "\n".join((*rows, "3,100,1,m,300,64,1,50,1")))
    assert [job.slo_s for job in trace.jobs] == [200.0, 20.0, None, None]
    assert counts(trace.repaired, "cannot be met") == 1
    assert counts(trace.repaired, "before its arrival") == 1


def test_sia_workloads_have_durations_drawn() -> None:
    """There are none: they are drawn by seed, within the paper's range, and counted."""
    head = "name,time,application,num_replicas,batch_size\n"
    text = head + "".join(f"bert-{i},{i}.5,bert,1,384\n" for i in range(50))
    one, again, other = (read(text, seed=seed) for seed in (1, 1, 2))
    assert one.jobs == again.jobs != other.jobs
    for job in one.jobs:
        assert 60 * 10**1.5 - 1 <= seconds(job) <= 60 * 10**4 + 1
    assert counts(one.repaired, "no duration") == 50


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
