"""Other clusters' traces: every kind of row that real files have, format by format."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from replay.traces.alibaba import SEPARATOR
from replay.traces.errors import TraceError
from replay.traces.formats import recognise
from replay.traces.reader import read_trace
from tests.replay.foreign import (
    ACME,
    HELIOS,
    OPENB,
    PAI_TASKS,
    SMALL,
    attempt,
    counts,
    only,
    philly,
    pod,
    read,
    seconds,
    swf,
)

# --- Philly --------------------------------------------------------------------------------------


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


# --- Helios, Acme --------------------------------------------------------------------------------


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

OPENB += "deletion_time,scheduled_time\n"


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


def test_pai_rows_that_cannot_be_read() -> None:
    """In either table: the row counts whole or not at all, and its job is left out once."""
    good = "g,worker,1.0,Terminated,10,20,600.0,29.3,100.0,V100\n"
    more = good.replace("10,20", "10,soon")
    bad = good.replace("g,", "b,").replace("1.0,T", "two,T")
    trace = read(good + more + bad + SEPARATOR + "g,i,alice,Terminated,5,\n")
    assert (only(trace).job_id, only(trace).scale_factor, seconds(only(trace))) == ("g", 1, 10.0)
    assert sum(trace.refused.values()) == 2
    late = good.replace("g,", "l,")
    trace = read(good + late + SEPARATOR + "l,i,alice,Terminated,never,\n")
    assert only(trace).job_id == "g"
    assert counts(trace.refused, "start_time (job table) is no number") == 1
    with pytest.raises(TraceError, match=r"line 2, row: .*; expected comma-separated text"):
        read(good + f'x,"{"x" * 200_000}"\n')


def test_a_pai_folder_without_tables_is_refused(tmp_path: Path) -> None:
    """And so is a job table alone, which has no GPUs."""
    with pytest.raises(TraceError, match=r"expected pai_task_table\.csv in it"):
        read_trace(tmp_path, SMALL)
    with pytest.raises(TraceError, match="not a trace that is known"):
        read(PAI_JOBS)


# --- SWF -----------------------------------------------------------------------------------------


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
