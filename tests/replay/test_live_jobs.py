"""Jobs as people write them in TOML: what is wrong is named with file, line, key and value."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.live.jobs import JobFileError, job_of

RIGHT = 'job_type = "A3C"\ntotal_steps = 5\n'


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('job_type = "A3C"\ntotal_steps = "many"', "line 2: total_steps is 'many': Expected"),
        ("job_type = { a = 1 }\ntotal_steps = 5", "line 1: job_type is {'a': 1}: Expected `str`"),
        (RIGHT + "job_id = 7", "line 3: job_id is 7: Expected `str`, got `int`"),
        (RIGHT + "[environment]\nA = 1", "line 3: environment[...] is {'A': 1}: Expected `str`"),
        (RIGHT + "weight = 2", "line 3: 'weight' is no key; there are job_id, job_type"),
        (RIGHT + "job_id = 'a b'", "job_id is 'a b'; expected 1 to 64 letters"),
        ("total_steps = 5", "job_type is missing"),
        ('job_type = "A3C"', "total_steps is missing"),
        (RIGHT + "scale_factor = 0", "scale_factor is 0"),
        ("job_type", "is no TOML"),
    ],
)
def test_what_is_wrong_with_a_file(tmp_path: Path, content: str, said: str) -> None:
    """And nothing of it is submitted."""
    path = tmp_path / "job.toml"
    path.write_text(content)
    with pytest.raises(JobFileError) as caught:
        job_of({}, ["python", "train.py"], path, "submit")
    assert str(caught.value).startswith(str(path))
    assert said in str(caught.value)


def test_what_is_typed_goes_before_the_file(tmp_path: Path) -> None:
    """And where it is wrong, it is not the file that is blamed."""
    path = tmp_path / "job.toml"
    path.write_text(RIGHT + 'job_id = "mine"\n')
    assert job_of({"total_steps": 9.0}, [], path, "submit").total_steps == 9.0
    with pytest.raises(JobFileError, match=r"job.toml: job_id is 3: Expected"):
        job_of({"job_id": 3}, [], path, "submit")


def test_a_job_without_an_id_gets_one(tmp_path: Path) -> None:
    """It says what it is, and no two are alike."""
    path = tmp_path / "job.toml"
    path.write_text(RIGHT)
    first, second = (job_of({}, [], path, "submit").job_id for _ in range(2))
    assert first.startswith("a3c-")
    assert first != second
