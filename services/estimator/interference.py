"""What sharing an accelerator costs, where nobody has measured it: a model, not data.

A class beside another keeps a fraction of its speed that depends on the *other* job's model and on
the worker type alone::

    steps/s of a beside b  =  steps/s of a alone  *  KEPT_SPEED[model of b][worker type]

The fractions are medians over the 12 built-in classes of scale factor 1, of the pairs measured
for the paper (Gavel artifact, MIT, scheduler/simulation_throughputs.json at c4fa400). On the pairs
of that table which had no part in the medians, the relative error of a modelled rate is at the
median 13 % on k80 (452 rates), 11 % on p100 (512) and 23 % on v100 (492); "everybody keeps 60 %"
errs by 17, 17 and 30 %. One rate in ten is off by more than 36, 40 and 106 %.

Limits: it knows no batch sizes, no memory (on k80, 4 of the 78 built-in pairs in truth do not
fit), no other worker types, and no scale factors above 1, for which the paper's table has no pair
that runs. Good enough to see what space sharing does; not to decide whether to turn it on.
"""

from __future__ import annotations

from itertools import combinations_with_replacement

from services.estimator.tables import ThroughputTable

#: {model of the other job: {worker type: fraction of its isolated speed that a job keeps}}
KEPT_SPEED = {
    "A3C": {"k80": 0.43, "p100": 0.52, "v100": 0.70},
    "CycleGAN": {"k80": 0.47, "p100": 0.51, "v100": 0.63},
    "LM": {"k80": 0.60, "p100": 0.70, "v100": 0.71},
    "Recommendation": {"k80": 0.62, "p100": 0.75, "v100": 0.72},
    "ResNet-18": {"k80": 0.51, "p100": 0.58, "v100": 0.75},
    "ResNet-50": {"k80": 0.45, "p100": 0.48, "v100": 0.34},
    "Transformer": {"k80": 0.52, "p100": 0.57, "v100": 0.74},
}


def model_of(job_type: str) -> str:
    """``ResNet-18 (batch size 32)`` -> ``ResNet-18``."""
    return job_type.partition(" (")[0]


def with_modelled_pairs(table: ThroughputTable) -> ThroughputTable:
    """``table`` with modelled throughputs for all pairs of single-worker classes.

    Pairs the table has are kept as they are. A pair is modelled on the worker types where both
    classes run alone and the model knows both; elsewhere it stays unknown.
    """
    alone: dict[tuple[str, int], dict[str, float]] = {}
    beside: dict[tuple[str, str, int], dict[str, tuple[float, float]]] = {}
    for row in table.rows():
        job_class = (row.job_type, row.scale_factor)
        alone[job_class] = {cell.worker_type: cell.steps_per_s for cell in row.alone}
    for (job_type, scale_factor), (other, other_scale) in combinations_with_replacement(
        table.classes(), 2
    ):
        if scale_factor != other_scale:
            continue
        cells = beside.setdefault((job_type, other, scale_factor), {})
        for worker_type in table.worker_types():
            pair = table.beside(job_type, other, scale_factor, worker_type)
            if pair is None and scale_factor == 1:
                pair = _modelled(table, job_type, other, worker_type)
            if pair is not None:
                cells[worker_type] = pair
    return ThroughputTable(f"{table.source}; pairs modelled", alone, beside)


def _modelled(
    table: ThroughputTable, job_type: str, other: str, worker_type: str
) -> tuple[float, float] | None:
    rate = table.alone(job_type, 1, worker_type)
    other_rate = table.alone(other, 1, worker_type)
    kept = KEPT_SPEED.get(model_of(other), {}).get(worker_type)
    other_kept = KEPT_SPEED.get(model_of(job_type), {}).get(worker_type)
    if not rate or not other_rate or kept is None or other_kept is None:
        return None
    return rate * kept, other_rate * other_kept
