"""The nouns of the field, as they appear inside events: jobs, leases, reports.

Units stand last in a name (``_s`` seconds, ``steps_per_s``); every struct is frozen, so an event
can be shared by all who fold it. Structs written once per job or lease *per round* are arrays on
the wire (``array_like``), the others are objects: a log stays small and still greps.
"""

from __future__ import annotations

import msgspec

#: A job combination: one job id, or two that share every worker of a lease (space sharing, §3.1).
Combination = tuple[str, ...]

#: Ends the name of a worker type that is held in the looser of two ways (§3.1): by a gang whose
#: workers may span more servers than need be. Both ways draw on the workers of the one type.
UNCONSOLIDATED = "_unconsolidated"


class JobSource(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Where a job of a trace comes from: what its row said that no scheduler needs."""

    #: Format of the trace (``gavel trace formats``).
    format: str
    #: Line of the file, from 1.
    row: int
    #: Id and outcome in the words of the source.
    job_id: str = ""
    status: str = ""
    #: Part of each of its workers the job used there; here it has them whole.
    worker_fraction: float = 1.0
    #: The source names no job type that we know: drawn by seed from those of the scale factor.
    job_type_assigned: bool = False


class JobSpec(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One training run, as its owner describes it. The same words in TOML, JSON and traces."""

    job_id: str
    #: Model and batch size; with ``scale_factor`` the key of the throughput table.
    job_type: str
    #: Workers the job runs on at once; all of one type, all or none.
    scale_factor: int = 1
    #: Whole-job steps, summed over workers. Exactly one of this and ``duration_s`` is given.
    total_steps: float | None = None
    #: Length of the run on ``reference_type`` workers; turned into steps before submission.
    duration_s: float | None = None
    reference_type: str = ""
    #: Weight 2 is entitled to twice the share of weight 1.
    priority_weight: float = 1.0
    #: Deadline, seconds after arrival.
    slo_s: float | None = None
    #: Worker types the job may use; empty means any.
    allowed_worker_types: tuple[str, ...] = ()
    #: Inner node of the hierarchy the job belongs to.
    entity: str = ""
    user: str = ""
    #: Traces only: seconds from the start of the trace.
    arrival_s: float = 0.0
    command: str = ""
    workdir: str = ""
    environment: dict[str, str] = {}
    checkpoint_dir: str = ""
    #: {worker type: steps/s} claimed by the owner; a claim, checked once measured.
    declared_throughputs: dict[str, float] = {}
    max_attempts: int = 3
    #: Traces only.
    source: JobSource | None = None


class Throughput(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Steps/s of a whole job, alone on workers of one type. 0 means it cannot run there."""

    worker_type: str
    steps_per_s: float


class PairThroughput(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Steps/s of two job classes of equal scale factor that share the workers of one lease."""

    worker_type: str
    other_job_type: str
    #: Of the class this row belongs to, beside the other.
    steps_per_s: float
    #: Of the other class, beside this one.
    other_steps_per_s: float


class ThroughputRow(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """All that a throughput table knows of one job class (job type at one scale factor)."""

    job_type: str
    scale_factor: int
    alone: tuple[Throughput, ...]
    #: Each unordered pair of classes once, in the row of whichever class came later.
    beside: tuple[PairThroughput, ...] = ()


class ProfileCell(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One thing to measure of a job: its speed on a worker type, alone or beside a reference."""

    #: Or its unconsolidated way, for a gang.
    worker_type: str
    #: Job type of the reference job; empty: alone.
    beside: str


class TaskSpec(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """What a worker must know to run one job under one lease, and nothing else."""

    job_id: str
    job_type: str
    scale_factor: int
    #: Whole-job steps at which the job is complete.
    total_steps: float
    #: The lease whose newest checkpoint to load; empty for a fresh start.
    resume_from: str = ""
    command: str = ""
    workdir: str = ""
    environment: dict[str, str] = {}
    checkpoint_dir: str = ""


class Lease(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """The right of a job combination to its workers until the end of a round (§5)."""

    lease_id: str
    tasks: tuple[TaskSpec, ...]
    worker_type: str
    #: ``scale_factor`` workers, one rank each.
    worker_ids: tuple[str, ...]
    #: The worker services that hold them; the first, which runs rank 0, counts the job's steps.
    reporters: tuple[str, ...]
    #: What Algorithm 1 ranked it by; 0 for a combination that only filled idle workers.
    priority: float = 0.0
    #: Granted for a share of the type's unconsolidated way: the workers may lie anywhere.
    unconsolidated: bool = False
    #: A profile: the first task is a copy of the job, the second of a reference (its job id is
    #: empty); no step counts, nothing is checkpointed.
    profile: bool = False


class TaskProgress(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One task in one round. Step counts are absolute and of the whole job, never increments."""

    lease_id: str
    job_id: str
    steps: float
    #: Steps a later lease may resume from; never more than ``steps``.
    checkpointed_steps: float
    #: Seconds of this round the task held its workers, and of these, loading and saving.
    run_s: float
    load_s: float = 0.0
    save_s: float = 0.0


class AllocationRow(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Combinations that all have the same shares: one row per job class, not one per job."""

    combinations: tuple[Combination, ...]
    #: {worker type: fraction of wall-clock time, in (0, 1]}; types with share 0 are absent.
    shares: dict[str, float]


class Entity(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A node of the hierarchical policy's tree (§4.3)."""

    entity_id: str
    parent: str = ""
    weight: float = 1.0
    #: How the node divides among what is below it: ``fairness`` or ``fifo``.
    policy: str = "fairness"
