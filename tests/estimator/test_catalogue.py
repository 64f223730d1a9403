"""The catalogue of cited figures."""

from __future__ import annotations

import csv
from importlib.resources import files

import pytest

from services.estimator import catalogue
from services.estimator.tables import TableError


def test_a_dozen_job_types_on_ten_accelerators() -> None:
    """At least: twelve of them with a figure on each of ten accelerators, old and new."""
    table = catalogue.throughputs()
    types_of = {
        job_type: {t for t in table.worker_types() if table.alone(job_type, 1, t)}
        for job_type, scale_factor in table.classes()
        if scale_factor == 1
    }
    widely = [job_type for job_type, types in types_of.items() if len(types) >= 10]
    assert len(widely) >= 12
    assert {"v100-16gb", "a100-80gb", "h100", "h200", "b200", "mi300x"} <= set(table.worker_types())


def test_families_do_not_mix() -> None:
    """A job type's figures all come from the benchmark that its name says."""
    text = files("services.estimator").joinpath("catalogue_throughputs.csv").read_text("utf-8")
    repository = {"(lambda)": "lambdal/deeplearning-benchmark", "(mlperf)": "mlcommons/"}
    for row in csv.DictReader(text.splitlines()):
        family = row["job_type"].rpartition(" ")[2]
        assert row["source"].startswith(repository[family])


def test_each_source_is_named_with_its_licence() -> None:
    """Of throughputs and prices; one that was not confirmed says so wherever it is shown."""
    text = files("services.estimator").joinpath("catalogue_throughputs.csv").read_text("utf-8")
    cited = [row["source"] for row in csv.DictReader(text.splitlines())]
    cited += [price.source for price in catalogue.prices().values()]
    known = catalogue.sources()
    for figure in cited:
        assert sum(source.name in figure for source in known) == 1, figure
    for source in known:
        assert any(source.name in figure for figure in cited)
        assert source.licence
        assert source.ground
        assert ("UNCONFIRMED" in str(source)) == (not source.confirmed)


def test_derived_figures_say_so_and_what_from() -> None:
    """Steps/s times samples a step are the samples/s that the source is cited with."""
    text = files("services.estimator").joinpath("catalogue_throughputs.csv").read_text("utf-8")
    for row in csv.DictReader(text.splitlines()):
        cited, _, derived = row["source"].partition("; derived: a step is ")
        samples_per_s = float(cited.rpartition(": ")[2].split()[0])
        samples = float(derived.split()[0])
        assert float(row["steps_per_s"]) * samples == pytest.approx(samples_per_s, rel=1e-4)


def test_prices_have_dates_and_sources_and_are_of_accelerators_there_are() -> None:
    """Each is above 0, and of a type that something runs on."""
    prices = catalogue.prices()
    assert set(prices) <= set(catalogue.throughputs().worker_types())
    assert all(price.usd_per_h > 0 and price.as_of and price.source for price in prices.values())


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("v100,cheap,2026,x", "line 2: usd_per_h is 'cheap'; expected USD per hour, above 0"),
        ("v100,0,2026,x", "line 2: usd_per_h is '0'"),
        ("v100,1.0,,x", "line 2: as_of is ''; expected a value"),
        ("v100,1.0", "line 2: as_of is None"),
        ("v100,1,2026,x\nv100,2,2026,x", "line 3: worker_type is 'v100'; expected each type once"),
    ],
)
def test_a_bad_price_is_named_with_its_line(line: str, message: str) -> None:
    """With what would be right."""
    with pytest.raises(TableError, match=message):
        catalogue.parse_prices(f"worker_type,usd_per_h,as_of,source\n{line}\n", "prices.csv")
