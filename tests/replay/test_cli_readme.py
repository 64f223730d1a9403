"""The README's session is one that works, and prints what it is shown to print."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from replay.cli.__main__ import FAILED, INTERRUPTED, OK, WRONG_USAGE

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
BLOCK = re.compile(r"<!-- tested.*?-->\n```console\n(.*?)```", re.DOTALL)


def steps() -> list[tuple[str, list[str]]]:
    """(command, the lines shown under it) of all marked blocks, in order."""
    found: list[tuple[str, list[str]]] = []
    for block in BLOCK.findall(README):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
    return found


def words(text: str) -> set[str]:
    """Names and labels, without the figures that another machine or release may have."""
    return set(re.findall(r"[A-Za-z_]{3,}", text))


@pytest.mark.timeout(600)
def test_the_session_works(tmp_path: Path) -> None:
    """Each command exits with 0 and prints every word that the README shows under it."""
    gavel = f'gavel() {{ PYTHONPATH="{ROOT}" "{sys.executable}" -P -m replay.cli "$@"; }}'
    assert len(steps()) > 5
    for command, shown in steps():
        done = subprocess.run(
            ["/bin/bash", "-c", f"{gavel}; {command}"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        for line in shown:
            assert words(line) <= words(done.stdout), f"{command}\n{line}"


@pytest.mark.parametrize("code", [OK, FAILED, WRONG_USAGE, INTERRUPTED])
def test_exit_codes_are_documented(code: int) -> None:
    """The README's table has each exit code."""
    assert f"\n| {code} | " in README


def test_short_enough_to_be_read() -> None:
    """The README stays under 520 lines."""
    assert README.count("\n") < 520
