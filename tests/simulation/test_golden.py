"""Every ordering bug left a log behind; see ``tests/golden/README.md``."""

from __future__ import annotations

import pytest

from replay.verify import verify_log
from services.runtime.file_log import read_log
from tests.golden.write import FOLDER, SOUND
from tests.simulation.invariants import violations
from tests.simulation.scenario import records_of

FILES = {path.stem for path in FOLDER.glob("*.jsonl")}


@pytest.mark.parametrize("name", sorted(FILES - {"must-fail"}))
def test_a_golden_log_verifies(name: str) -> None:
    """What the cores decided when the log was written, they decide now, and it is right."""
    path = FOLDER / f"{name}.jsonl"
    report = verify_log(path)
    assert report.divergence is None, (
        "if cores are meant to decide otherwise: raise BEHAVIOUR where a release has gone out "
        "before, and write the logs anew (tests/golden/write.py)"
    )
    assert report.warnings == []
    assert violations(list(read_log(path))) == []


@pytest.mark.parametrize("name", sorted(SOUND))
def test_what_a_golden_log_holds_happens_again(name: str) -> None:
    """The run that a golden log was written from goes as it went, executors and solvers too."""
    simulation = SOUND[name]()
    simulation.run()
    assert list(records_of(simulation.driver)) == list(read_log(FOLDER / f"{name}.jsonl"))


def test_a_golden_log_that_must_fail() -> None:
    """A plan that the mechanism would not have made is named, though every chain holds."""
    report = verify_log(FOLDER / "must-fail.jsonl")
    assert report.divergence is not None
    assert report.divergence.actor == "mechanism"
    assert "RoundScheduled" in report.divergence.found


def test_every_golden_log_is_listed() -> None:
    """The list says what each file guards."""
    text = (FOLDER / "README.md").read_text()
    assert SOUND.keys() | {"must-fail"} == FILES
    assert all(f"`{name}.jsonl`" in text for name in FILES)
