"""Who may write what: the writers' roles, and names that are safe in subjects and paths.

An actor's name is its role, or ``role.instance`` where there can be several (``worker.rack1``,
``client.alice-7f3a``). The role decides which kinds of event it may append.
"""

from __future__ import annotations

from schemas import events

OPERATOR, CLIENT, WORKER = "operator", "client", "worker"
MECHANISM, ESTIMATOR, POLICY = "mechanism", "estimator", "policy"

#: Order in which services take a record that all of them have: the tie-break of a simulation.
SERVICES = (ESTIMATOR, POLICY, MECHANISM, WORKER)

_WRITES: dict[str, tuple[type[events.Event], ...]] = {
    OPERATOR: (
        events.ClusterConfigured,
        events.ThroughputTableImported,
        events.DrainRequested,
    ),
    CLIENT: (events.JobSubmitted, events.CancelRequested),
    WORKER: (
        events.WorkerRegistered,
        events.WorkerReturned,
        events.WorkerDisappeared,
        events.TasksStarted,
        events.ProgressReported,
        events.TaskStopped,
        events.StopStepProposed,
        events.ThroughputMeasured,
    ),
    MECHANISM: (
        events.JobAdmitted,
        events.JobRejected,
        events.JobCancelled,
        events.JobCompleted,
        events.JobFailed,
        events.JobRequeued,
        events.RoundDue,
        events.RoundScheduled,
        events.LeasesChanged,
        events.StopStepAgreed,
        events.WorkerUnreachable,
        events.WorkerLost,
        events.WorkerDrained,
    ),
    ESTIMATOR: (
        events.ThroughputEstimated,
        events.ThroughputUnknown,
        events.ProfileRequested,
        events.ClaimRefuted,
    ),
    POLICY: (events.AllocationComputed, events.AllocationFailed),
}

_OF_SERVICES = (events.LeaderElected, events.TimerFired)

_MAY_WRITE: dict[str, frozenset[type[events.Event]]] = {
    role: frozenset(kinds + _OF_SERVICES if role in SERVICES else kinds)
    for role, kinds in _WRITES.items()
}

#: Letters, digits, underscore and hyphen, at most this many.
_NAME_LENGTH_MAX = 64
_PUNCTUATION = str.maketrans("_-", "aa")


def role(actor: str) -> str:
    """``worker.rack1`` -> ``worker``."""
    return actor.partition(".")[0]


def may_write(actor: str, event: events.AnyEvent) -> bool:
    """Whether a record of this writer with this event is one to be believed.

    A worker service, besides, speaks only for itself: its reports name it as ``reporter``.
    """
    actor_role = role(actor)
    if type(event) not in _MAY_WRITE.get(actor_role, ()):
        return False
    if actor_role == WORKER:
        return getattr(event, "reporter", actor) == actor
    return True


def is_safe_name(name: str) -> bool:
    """Whether a user's name may stand unescaped in a subject, a path or a file name."""
    plain = name.translate(_PUNCTUATION)
    return plain.isascii() and plain.isalnum() and len(name) <= _NAME_LENGTH_MAX
