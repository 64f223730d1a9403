"""TOML that people write: where each key stands, and what a misspelt one may have been."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any


class TomlError(Exception):
    """The file cannot be read, or is no TOML."""


@dataclass(frozen=True)
class TomlFile:
    """A file's content; or none, without a file."""

    path: str
    text: str
    content: dict[str, Any]

    @classmethod
    def read(cls, path: Path) -> TomlFile:
        """Read it; a byte order mark is no part of it.

        Raises
        ------
        TomlError
            It cannot be read, or is no TOML.
        """
        try:
            text = path.read_text("utf-8-sig")
            return cls(str(path), text, tomllib.loads(text))
        except OSError as error:
            raise TomlError(f"{path} cannot be read: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise TomlError(f"{path} is no TOML: {error}") from None

    def where(self, key: str) -> str:
        """``FILE, line N``: where a key, or the table of that name, stands; else ``FILE``."""
        pattern = re.compile(rf"\s*\[*\s*[\"']?{re.escape(key)}[\"']?\s*[=\].]")
        for number, line in enumerate(self.text.splitlines(), 1):
            if pattern.match(line):
                return f"{self.path}, line {number}"
        return self.path


def hint(name: str, known: Collection[str]) -> str:
    """What a name that is none may have been, or which there are."""
    near = get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
