"""What people type, read and checked: every refusal names the option, the value and the remedy.

Light on imports, as every start of ``gavel`` passes through here.
"""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path

import typer

from schemas.domain import Entity

#: More than any cluster has; a larger count is a slip.
MAX_WORKERS = 1_000_000
#: More than any trace has, and than fit into memory at once.
MAX_JOBS = 10_000_000
#: A shorter round, s, is a slip, and a simulation of it has no end.
MIN_ROUND_S = 0.001
#: Three centuries in seconds: longer than anything that is waited for.
MAX_S = 1e10
#: Names that a message lists.
_LISTED = 30


class InputError(Exception):
    """What was given makes no sense; the message says where, and what would be right."""


class OptionError(InputError):
    """An option whose value makes no sense; nothing was done."""

    def __init__(self, option: str, value: object, expected: str) -> None:
        super().__init__(f"{option} is {value!r:.80}; expected {expected}")
        self.option = option


def examples(*lines: str) -> str:
    """Lines for the end of a help text, each on its own."""
    return "\n".join(("Examples:", *(f"  {line}" for line in lines)))


def counts(option: str, text: str, *, least: int = 0) -> dict[str, int]:
    """Read ``v100=36,k80=12`` as numbers of workers.

    Raises
    ------
    OptionError
        A part is no such pair, its number is no whole number from ``least``, or a type comes twice.
    """
    found: dict[str, int] = {}
    for name, number in _pairs(option, text, f"{least} or more workers, as in v100=36,k80=12"):
        is_count = re.fullmatch("[0-9]{1,7}", number)
        if not is_count or not least <= int(number) <= MAX_WORKERS:
            expected = f"a whole number of workers for {name}, {least} to {MAX_WORKERS}"
            raise OptionError(option, number, expected)
        found[name] = int(number)
    return found


def prices(option: str, text: str) -> dict[str, float]:
    """Read ``v100=0.74,k80=0.135`` as USD per worker and hour.

    Raises
    ------
    OptionError
        A part is no such pair, its number is no price, or a type comes twice.
    """
    found = {}
    for name, number in _pairs(option, text, "prices, as in v100=0.74,k80=0.135"):
        price = _number(number)
        if not 0 <= price < math.inf:
            raise OptionError(option, number, f"USD per hour for {name}, 0 or more")
        found[name] = price
    return found


def parameters(option: str, text: str) -> dict[str, float | str]:
    """Read ``floor=0.3,normalise=none`` as a policy's parameters; what is a number is one.

    Raises
    ------
    OptionError
        A part is no such pair, or a parameter comes twice.
    """
    found: dict[str, float | str] = {}
    for name, value in _pairs(option, text, "parameters of the policy, as in floor=0.3"):
        number = _number(value)
        found[name] = value if math.isnan(number) else number
    return found


def entities(option: str, text: str) -> tuple[Entity, ...]:
    """Read ``lab=2,lab/vision=1:fifo,lab/speech=1`` as the entities of a hierarchy.

    Raises
    ------
    OptionError
        A part is no NAME=WEIGHT[:fairness|fifo], or an entity comes twice.
    """
    found = []
    for path, value in _pairs(option, text, "NAME=WEIGHT[:fairness|fifo], as in lab=2,lab/nlp=1"):
        weight, colon, policy = value.partition(":")
        if not 0 <= _number(weight) < math.inf or (colon and policy not in {"fairness", "fifo"}):
            expected = f"a weight for {path}, 0 or more, then nothing, :fairness or :fifo"
            raise OptionError(option, value, expected)
        parent, _, name = path.rpartition("/")
        found.append(
            Entity(
                entity_id=name,
                parent=parent.rpartition("/")[2],
                weight=_number(weight),
                policy=policy or "fairness",
            )
        )
    return tuple(found)


def window(option: str, text: str, num_jobs: int) -> tuple[int, int]:
    """Read ``100:300`` as positions of the first job measured and of the first not measured.

    Raises
    ------
    OptionError
        It is no pair of positions in order, or reaches beyond the last of ``num_jobs``.
    """
    found = re.fullmatch("([0-9]{1,9}):([0-9]{1,9})", text)
    first, last = map(int, found.groups()) if found else (0, 0)
    if not first < last <= num_jobs:
        expected = f"FIRST:LAST with FIRST < LAST <= {num_jobs}, the number of jobs"
        raise OptionError(option, text, expected)
    return first, last


def checkpoint_seconds(option: str, text: str, round_s: float) -> tuple[float, float]:
    """Read ``5`` or ``4,6`` as seconds to load and to save a checkpoint.

    Raises
    ------
    OptionError
        They are no such seconds, or leave no time in a round to train in.
    """
    parts = [_number(part) for part in text.split(",")]
    load_s, save_s = parts if len(parts) == 2 else (parts[0], parts[0])
    if len(parts) > 2 or not (0 <= load_s < math.inf and 0 <= save_s < math.inf):
        raise OptionError(option, text, "seconds, as in 5, or LOAD,SAVE as in 4,6")
    if load_s + save_s >= round_s:
        expected = f"less than a round ({round_s:g} s) in all, or a round gets nothing done"
        raise OptionError(option, text, expected)
    return load_s, save_s


def positive(option: str, value: float, unit: str = "seconds", *, zero: bool = False) -> float:
    """Check that a number is finite and above 0 (or ``zero``).

    Raises
    ------
    OptionError
        It is not.
    """
    if not (0 < value <= MAX_S or (zero and value == 0)):
        expected = f"{unit} {'from' if zero else 'above'} 0, at most {MAX_S:g}"
        raise OptionError(option, value, expected)
    return value


def round_length(value: float) -> float:
    """Check ``--round``.

    Raises
    ------
    OptionError
        It is no number of seconds, or is too short.
    """
    if not MIN_ROUND_S <= value <= MAX_S:
        raise OptionError("--round", value, f"seconds from {MIN_ROUND_S:g}, at most {MAX_S:g}")
    return value


def job_count(value: int) -> int:
    """Check ``--jobs``, how many to draw.

    Raises
    ------
    OptionError
        It is none, or more than can be.
    """
    if not 1 <= value <= MAX_JOBS:
        raise OptionError("--jobs", value, f"1 to {MAX_JOBS}")
    return value


def one_of(option: str, name: str, known: Collection[str]) -> str:
    """Check that a name is a known one.

    Raises
    ------
    OptionError
        It is not; the message has the nearest, or all there are.
    """
    if name not in known:
        near = get_close_matches(name, known, n=1, cutoff=0.6)
        listed = sorted(known)
        more = f", ... ({len(known)} in all)" if len(known) > _LISTED else ""
        expected = (
            f"one of {', '.join(listed[:_LISTED])}{more}" if known else "none: there are none"
        )
        raise OptionError(option, name, f"{expected}; perhaps {near[0]}" if near else expected)
    return name


def trace_file(path: Path | None) -> Path | None:
    """Check that a file, a folder or the standard input (``-``) is there to be read.

    Raises
    ------
    typer.BadParameter
        It is not.
    """
    if path is not None and str(path) != "-" and not path.exists():
        raise typer.BadParameter(f"file {str(path)!r} does not exist.")
    return path


def new_file(option: str, path: Path, *, force: bool) -> Path:
    """Check that a file can be made, without making it.

    Raises
    ------
    OptionError
        Its folder is missing, it is no ordinary file, or it exists and ``force`` is not given.
    """
    if not path.parent.is_dir():
        raise OptionError(
            option, str(path), f"a file in a folder that exists; {path.parent} is not"
        )
    if path.exists() and not path.is_file():
        raise OptionError(option, str(path), "an ordinary file; it is a folder or a device")
    if path.exists() and not force:
        raise OptionError(option, str(path), "a new file; it exists (--force replaces it)")
    return path


@contextmanager
def put_when_whole(path: Path) -> Iterator[Path]:
    """Another file of the folder to write to: takes the path's place once all went well.

    What was at the path is there until then, and nothing else is left behind. The name's end is
    the same, as it may say how the file is written.
    """
    partial = path.with_name(f".{secrets.token_hex(4)}.partial-{path.name}")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _pairs(option: str, text: str, expected: str) -> Iterator[tuple[str, str]]:
    seen = set()
    for part in text.split(","):
        name, equals, number = (piece.strip() for piece in part.partition("="))
        if not (name and equals and number):
            raise OptionError(option, text, f"NAME=VALUE[,...]: {expected}")
        if name in seen:
            raise OptionError(option, text, f"each name once; {name} comes twice")
        seen.add(name)
        yield name, number


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
