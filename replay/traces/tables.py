"""Throughput tables from files: the built-in one, or a user's."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from services.estimator import catalogue
from services.estimator.interference import with_modelled_pairs
from services.estimator.tables import TableError, ThroughputTable, parse_csv, parse_table

#: Tables that come with the program, by name.
BUILT_IN = ("builtin", "catalogue")


def builtin_table() -> ThroughputTable:
    """Job types of the paper on k80, p100 and v100: isolated rates as cited, pairs modelled.

    For first steps and examples. The figures and their sources are in
    ``services/estimator/builtin_throughputs.csv``, the model and its errors in
    ``services/estimator/interference.py``.
    """
    text = files("services.estimator").joinpath("builtin_throughputs.csv").read_text("utf-8")
    return with_modelled_pairs(parse_csv(text, "built-in throughputs"))


def named_table(name: str) -> ThroughputTable:
    """The table of a file, or the one that comes with the program under a name of ``BUILT_IN``.

    Raises
    ------
    TableError, OSError
        See ``read_table``.
    """
    if name == "builtin":
        return builtin_table()
    return catalogue.throughputs() if name == "catalogue" else read_table(Path(name))


def read_table(path: Path) -> ThroughputTable:
    """Read the artifact's JSON, our CSV or our JSON; told apart by what is in the file.

    Raises
    ------
    TableError
        The file is not UTF-8, or see ``services.estimator.tables``.
    OSError
        The file cannot be read.
    """
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = f"byte {error.start}"
        value = content[error.start : error.end]
        raise TableError(str(path), where, "text", value, "UTF-8") from None
    return parse_table(text, str(path))
