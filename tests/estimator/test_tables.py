"""Throughput tables: what they tell, what they refuse, and that formats agree."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.estimator.tables import (
    TableError,
    ThroughputTable,
    parse_artifact_json,
    parse_csv,
    parse_json,
    parse_table,
)

ARTIFACT = """{
  "k80": {
    "('A (batch size 8)', 1)": {"null": 2.0, "('B', 1)": [1.5, 0.5]},
    "('B', 1)": {"null": 0.0, "('A (batch size 8)', 1)": [0.5, 1.5], "('B', 1)": [0.25, 0.25]}
  },
  "v100_unconsolidated": {"('A (batch size 8)', 2)": {"null": 1}}
}"""
CSV = """job_type,scale_factor,worker_type,steps_per_s,other_job_type,other_steps_per_s,source
A (batch size 8),1,k80,2.0,,,measured
B,1,k80,0.0,,,does not fit
A (batch size 8),2.0,v100_unconsolidated,1,,,

B,1,k80,0.5,A (batch size 8),1.5,
B,1,k80,0.25,B,0.25,
"""
JSON = json.dumps(
    [
        {"job_type": "A (batch size 8)", "scale_factor": 1, "worker_type": "k80", "steps_per_s": 2},
        {"job_type": "B", "scale_factor": 1, "worker_type": "k80", "steps_per_s": 0.0},
        {
            "job_type": "A (batch size 8)",
            "scale_factor": 2,
            "worker_type": "v100_unconsolidated",
            "steps_per_s": 1,
        },
        {
            "job_type": "A (batch size 8)",
            "scale_factor": 1,
            "worker_type": "k80",
            "steps_per_s": 1.5,
            "other_job_type": "B",
            "other_steps_per_s": 0.5,
        },
        {
            "job_type": "B",
            "scale_factor": 1,
            "worker_type": "k80",
            "steps_per_s": 0.25,
            "other_job_type": "B",
            "other_steps_per_s": 0.25,
            "source": "measured",
        },
    ]
)


@pytest.mark.parametrize("text", [ARTIFACT, CSV, JSON], ids=["artifact", "csv", "json"])
def test_formats_agree(text: str) -> None:
    """The three formats say the same, with a byte order mark and CRLF or without."""
    expected = parse_csv(CSV, "t").rows()
    assert parse_table(text, "t").rows() == expected
    assert parse_table("\ufeff" + text.replace("\n", "\r\n"), "t").rows() == expected


def test_lookups_tell_zero_from_unknown() -> None:
    """0.0 is "cannot run", None is "nobody knows"; a pair reads from either side."""
    table = parse_artifact_json(ARTIFACT, "t")
    assert table.alone("A (batch size 8)", 1, "k80") == 2.0
    assert table.alone("B", 1, "k80") == 0.0
    assert table.alone("B", 1, "v100_unconsolidated") is None
    assert table.alone("C", 1, "k80") is None
    assert table.beside("A (batch size 8)", "B", 1, "k80") == (1.5, 0.5)
    assert table.beside("B", "A (batch size 8)", 1, "k80") == (0.5, 1.5)
    assert table.beside("A (batch size 8)", "B", 2, "k80") is None
    assert table.classes() == (("A (batch size 8)", 1), ("A (batch size 8)", 2), ("B", 1))
    assert table.worker_types() == ("k80", "v100_unconsolidated")


def test_rows_of_some_classes_list_pairs_among_them_only() -> None:
    """Each unordered pair stands once, with the later class; unknown classes are left out."""
    table = parse_artifact_json(ARTIFACT, "t")
    (only_b,) = table.rows([("B", 1), ("C", 4)])
    assert [pair.other_job_type for pair in only_b.beside] == ["B"]
    first, second = table.rows([("B", 1), ("A (batch size 8)", 1), ("B", 1)])
    assert [pair.other_job_type for pair in first.beside] == ["B"]
    assert [pair.other_job_type for pair in second.beside] == ["B"]
    assert all(not row.beside for row in table.rows(pairs=False))


@st.composite
def tables(draw: st.DrawFn) -> ThroughputTable:
    """A small table, with some of its pairs."""
    rates = st.floats(min_value=0, max_value=1e6)
    names = draw(st.lists(st.sampled_from("ABCDE"), unique=True, min_size=1))
    alone = {
        (name, scale): {worker: draw(rates) for worker in ("k80", "v100")}
        for name in names
        for scale in (1, 4)
    }
    beside = {
        (a, b, 1): {"v100": (rate := draw(rates), rate if a == b else draw(rates))}
        for a in names
        for b in names
        if a <= b and draw(st.booleans())
    }
    return ThroughputTable("drawn", alone, beside)


@given(tables(), st.booleans())
def test_rows_hold_the_whole_table(table: ThroughputTable, backwards: bool) -> None:
    """A table survives the way over the log, whichever order its classes were sent in."""
    classes = table.classes()[::-1] if backwards else table.classes()
    again = ThroughputTable.from_rows(table.rows(classes), "drawn")
    assert again.rows() == table.rows()
    assert len({row.job_type for row in table.rows()}) * 2 == len(table.rows())


def csv_with(row: str) -> str:
    """The good CSV, and one more row on line 8."""
    return CSV + row + "\n"


@pytest.mark.parametrize(
    ("row", "column", "value"),
    [
        ("C,1,k80,nan,,,", "steps_per_s", "nan"),
        ("C,1,k80,-1,,,", "steps_per_s", "-1"),
        ("C,1,k80,inf,,,", "steps_per_s", "inf"),
        ("C,1,k80,fast,,,", "steps_per_s", "fast"),
        ("C,1,k80,,,,", "steps_per_s", ""),
        ("B,1,k80,3,,,", "steps_per_s", "3"),
        ("C,0,k80,1,,,", "scale_factor", "0"),
        ("C,1.5,k80,1,,,", "scale_factor", "1.5"),
        ("C,1e30,k80,1,,,", "scale_factor", "1e30"),
        ("C,-1,k80,1,,,", "scale_factor", "-1"),
        ("C,two,k80,1,,,", "scale_factor", "two"),
        (" C,1,k80,1,,,", "job_type", " C"),
        (",1,k80,1,,,", "job_type", ""),
        ("C,1,,1,,,", "worker_type", ""),
        ("B,1,k80,1,A (batch size 8),,", "other_steps_per_s", ""),
        ("B,1,k80,1,,1,", "other_job_type", ""),
        ("B,1,k80,1,A (batch size 8),nan,", "other_steps_per_s", "nan"),
        ("B,1,k80,0.5,A (batch size 8),1.5,", "other_job_type", "A (batch size 8)"),
        ("A (batch size 8),1,k80,9.0,B,9.0,", "steps_per_s, other_steps_per_s", (9.0, 9.0)),
        ("A (batch size 8),1,k80,1,A (batch size 8),2,", "other_steps_per_s", "2"),
        ("C,1,k80", "row", ["C", "1", "k80"]),
    ],
)
def test_a_bad_csv_row_is_named(row: str, column: str, value: object) -> None:
    """A bad cell is refused with line, column, value and what would be right."""
    with pytest.raises(TableError) as caught:
        parse_csv(csv_with(row), "mine.csv")
    error = caught.value
    assert (error.where, error.column, error.value) == ("line 8", column, value)
    assert str(error).startswith("mine.csv: line 8: ")
    assert error.expected


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("job_type,scale_factor,worker_type", "steps_per_s"),
        ("job_type,scale,worker_type,steps_per_s", "'scale_factor'"),
        ("job_type,scale_factor,worker_type,steps_per_s,steps_per_s", "each column once"),
        ("", "job_type"),
    ],
)
def test_a_bad_header_is_named(header: str, said: str) -> None:
    """A missing, misspelt or doubled column is refused on line 1, with the right name."""
    with pytest.raises(TableError, match=said) as caught:
        parse_csv(header + "\nA,1,k80,1\n", "mine.csv")
    assert caught.value.where == "line 1"


@pytest.mark.parametrize(
    ("text", "where", "value"),
    [
        ("""{"k80": {"('A', 1)": {"null": NaN}}}""", "k80 / ('A', 1) / null", math.nan),
        ("""{"k80": {"('A', 1)": {"null": -2}}}""", "k80 / ('A', 1) / null", -2),
        ("""{"k80": {"('A', 1)": {"null": true}}}""", "k80 / ('A', 1) / null", True),
        ("""{"k80": {"('A', 1)": {"null": 1e999}}}""", "k80 / ('A', 1) / null", math.inf),
        ("""{"k80": {"('A', 1)": {"null": null}}}""", "k80 / ('A', 1) / null", None),
        ("""{"k80": {"('A', 1)": 3}}""", "k80 / ('A', 1)", 3),
        ("""{"k80": {"A": {"null": 1}}}""", "k80 / A", "A"),
        ("""{"k80": {"('A', 0)": {"null": 1}}}""", "k80 / ('A', 0)", 0),
        ("""{"k80": {"__import__('os')": {"null": 1}}}""", "k80 / __import__('os')", None),
        ("""{"k80": {"('A', 1)": {"('A', 1)": [1]}}}""", "k80 / ('A', 1) / ('A', 1)", [1]),
        ("""{"k80": {"('A', 1)": {"('A', 2)": [1, 1]}}}""", "k80 / ('A', 1) / ('A', 2)", 2),
        ("""{"": {"('A', 1)": {"null": 1}}}""", "", ""),
        ("""{"k80": {}, "k80": {}}""", "an object", "k80"),
        ("""{"k80": }""", "line 1, column 9", None),
        ("""[3]""", "item 1", 3),
        ("""[{"job_type": "A"}]""", "item 1", None),
        ("""[{"job_typ": "A"}]""", "item 1", "job_typ"),
        ("""{}""", "whole table", 0),
        ("""[]""", "whole table", 0),
    ],
)
def test_a_bad_json_cell_is_named(text: str, where: str, value: object) -> None:
    """A bad cell of either JSON is refused with the keys that lead to it."""
    with pytest.raises(TableError) as caught:
        parse_table(text, "mine.json")
    assert caught.value.where == where
    if value is not None:
        assert repr(caught.value.value) == repr(value)


@given(st.sampled_from([ARTIFACT, CSV, JSON]), st.data())
def test_a_damaged_table_is_a_table_or_a_table_error(text: str, data: st.DataObject) -> None:
    """A character changed, lost or doubled anywhere leads to no other exception."""
    place = data.draw(st.integers(0, len(text) - 1))
    instead = data.draw(st.sampled_from(["", text[place] * 2, "\n", "-", "9", "\\", "'", '"', "}"]))
    try:
        table = parse_table(text[:place] + instead + text[place + 1 :], "t")
    except TableError as error:
        assert error.source == "t"  # noqa: PT017 either outcome is right
    else:
        assert ThroughputTable.from_rows(table.rows(), "t").rows() == table.rows()


def test_a_pair_needs_both_classes_alone() -> None:
    """What a class does beside another means nothing without what it does alone."""
    with pytest.raises(TableError, match="steps/s of 'C' alone"):
        parse_csv(csv_with("B,1,k80,1,C,1,"), "mine.csv")


@pytest.mark.parametrize("parse", [parse_json, parse_artifact_json])
def test_the_wrong_kind_of_json_is_refused(
    parse: Callable[[str, str], ThroughputTable],
) -> None:
    """Neither JSON format takes the other for its own."""
    text = ARTIFACT if parse is parse_json else JSON
    with pytest.raises(TableError, match="expected a"):
        parse(text, "mine.json")


@pytest.mark.parametrize("name", ["simulation", "physical_cluster"])
def test_the_artifacts_tables_load_whole(reference_data: Path, name: str) -> None:
    """Every cell of the artifact's files, zeros and odd orders of speed included, is there."""
    path = reference_data / "throughputs" / f"{name}_throughputs.json"
    text = path.read_text("utf-8")
    table = parse_artifact_json(text, str(path))
    cells = 0
    for worker_type, classes in json.loads(text).items():
        for class_key, row in classes.items():
            job_type, scale_factor = class_key[2:-1].rsplit("', ", 1)
            for other_key, rates in row.items():
                cells += 1
                place = (int(scale_factor), worker_type)
                if other_key == "null":
                    assert table.alone(job_type, *place) == rates
                else:
                    other = other_key[2:-1].rsplit("', ", 1)[0]
                    assert table.beside(job_type, other, *place) == tuple(rates)
    assert cells > 10_000


def test_the_artifacts_table_loads_fast(reference_data: Path) -> None:
    """1.2 MB of JSON are a table in well under 100 ms (best of five, this machine being shared)."""
    text = (reference_data / "throughputs" / "simulation_throughputs.json").read_text("utf-8")
    took_s = []
    for _ in range(5):
        start_s = time.process_time()
        parse_artifact_json(text, "simulation")
        took_s.append(time.process_time() - start_s)
    assert min(took_s) < 0.1
