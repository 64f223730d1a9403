"""``gavel`` commands, run in the tests' own process."""

from __future__ import annotations

from typer.testing import CliRunner, Result

from replay.cli.__main__ import app


def gavel(*arguments: object, stdin: str | None = None) -> Result:
    """Run a command; a traceback fails the test."""
    result = CliRunner().invoke(app, list(map(str, arguments)), input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def flat(text: str) -> str:
    """Text in one line."""
    return " ".join(text.split())
