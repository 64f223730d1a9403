"""The estimator's book of jobs: what each is believed to run at, and what it is known from."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from schemas.decisions import Emit
from schemas.domain import JobSpec, ProfileCell, Throughput, ThroughputRow
from schemas.events import ClaimRefuted, ThroughputEstimated
from services.estimator.effects import MeasuredCell
from services.estimator.rates import MovingRate, rates_of, snapped

#: A ratio declared is refuted by one measured that differs by more than this factor.
_HONEST = math.log(1.15)


@dataclass(slots=True)
class JobEstimate:
    """One job that is not over."""

    spec: JobSpec
    #: Where its throughputs come from; empty: they are its class's.
    source: str = ""
    #: Job type of the class whose pairs hold for it, and how likely that is the right one.
    job_class: str = ""
    confidence: float = 1.0
    #: {worker type: isolated steps/s}
    rates: dict[str, MovingRate] = field(default_factory=dict)
    #: {worker type: steps/s} last published for the job alone; None: its class's hold.
    published: dict[str, float] | None = None
    #: What its owner declares has been found untrue, and said to be.
    refuted: bool = False
    #: Profiles asked for that are not over, and what the others found.
    awaited: dict[ProfileCell, None] = field(default_factory=dict)
    profiled: list[MeasuredCell] = field(default_factory=list)
    #: Rounds that it has run for before it was matched.
    rounds_awaited: int = 0

    @property
    def claimed(self) -> bool:
        """Whether its throughputs are, or were, what its owner says."""
        return self.source in ("declared", "measured") and bool(self.spec.declared_throughputs)

    def believe(self, alone: Mapping[str, float], source: str) -> None:
        """Take throughputs for the job's, where none has been measured."""
        self.source = source
        for worker_type, rate in alone.items():
            known = self.rates.get(worker_type)
            if known is None or not known.count:
                self.rates[worker_type] = MovingRate(rate)

    def measured(self, worker_type: str, rate: float) -> None:
        """The job has been measured alone on workers of the type."""
        known = self.rates.get(worker_type)
        hearsay = self.source in ("provisional", "declared")
        if known is None or (hearsay and not known.count):
            self.rates[worker_type] = MovingRate(rate, count=1)
        else:
            known.observe(rate)

    def read_off_leases(self, worker_types: Collection[str]) -> list[MeasuredCell]:
        """What its own leases say of it alone, on types that it was not profiled on."""
        profiled = {each.cell.worker_type for each in self.profiled if not each.cell.beside}
        return [
            MeasuredCell(ProfileCell(worker_type, ""), rate.value, 0.0)
            for worker_type, rate in sorted(self.rates.items())
            if rate.count and worker_type in worker_types and worker_type not in profiled
        ]

    def publish(self, of_class: Mapping[str, float], tolerance: float) -> tuple[Emit, ...]:
        """Say what is believed of the job, if it is news.

        ``of_class``, {worker type: steps/s}, is what its class makes; empty if none is known.
        """
        rates = {t: rate.value for t, rate in sorted(self.rates.items())}
        if self.source != "declared":
            rates = snapped(rates, of_class)
        before = self.published
        if before is not None and not any(
            t not in before or rate.is_news(before[t], tolerance) for t, rate in self.rates.items()
        ):
            return ()
        self.published = rates
        row = ThroughputRow(
            job_type=self.job_class,
            scale_factor=self.spec.scale_factor,
            alone=tuple(Throughput(*cell) for cell in rates.items()),
        )
        estimate = ThroughputEstimated(
            row=row,
            job_id=self.spec.job_id,
            source=self.source,
            confidence=self.confidence,
            multiplier=_multiplier(rates, of_class),
        )
        return (Emit(estimate),)

    def learned(self, event: ThroughputEstimated) -> None:
        """The job has been matched with a reference."""
        self.job_class, self.confidence = event.row.job_type, event.confidence
        self.believe(rates_of(event.row), event.source)
        for each in self.profiled:
            way = each.cell.worker_type
            if not each.cell.beside and way in self.rates:
                self.rates[way].count += 1
            elif not each.cell.beside:
                # It was over while the match was under way.
                self.measured(way, each.steps_per_s)
        self.published = rates_of(event.row)

    def check_claim(self) -> tuple[Emit, ...]:
        """Say once if ratios between types are not as declared; needs two types measured."""
        declared = self.spec.declared_throughputs
        found = {t: r.value for t, r in sorted(self.rates.items()) if r.count and r.value > 0}
        base = next((t for t in found if declared.get(t, 0.0) > 0), "")
        ratios = {
            t: (declared[t] / declared[base], rate / found[base])
            for t, rate in found.items()
            if base and t in declared and t != base
        }
        if self.refuted or not ratios:
            return ()
        worst = max(ratios, key=lambda t: _apart(*ratios[t]))
        claimed, measured = ratios[worst]
        if _apart(claimed, measured) <= _HONEST:
            return ()
        self.refuted = True
        refuted = ClaimRefuted(
            job_id=self.spec.job_id,
            worker_type=worst,
            base_type=base,
            declared_ratio=claimed,
            measured_ratio=measured,
        )
        return (Emit(refuted),)


def capped(
    declared: Mapping[str, float], references: Mapping[str, Mapping[str, float]]
) -> dict[str, float]:
    """Declared throughputs, none faster beside the slowest than for any reference job."""
    slowest = min((t for t in sorted(declared) if declared[t] > 0), key=declared.__getitem__)
    found = {}
    for worker_type, rate in declared.items():
        ratios = [
            rates[worker_type] / rates[slowest]
            for rates in references.values()
            if rates.get(slowest, 0.0) > 0 and worker_type in rates
        ]
        found[worker_type] = min(rate, max(ratios) * declared[slowest]) if ratios else rate
    return found


def _apart(claimed: float, measured: float) -> float:
    return abs(math.log(claimed / measured)) if claimed > 0 else math.inf


def _multiplier(rates: Mapping[str, float], of_class: Mapping[str, float]) -> float:
    logs = [
        math.log(rate / of_class[t])
        for t, rate in rates.items()
        if rate > 0 and of_class.get(t, 0.0) > 0
    ]
    return round(math.exp(math.fsum(logs) / len(logs)), 4) if logs else 1.0
