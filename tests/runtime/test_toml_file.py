"""TOML that people write: what is wrong is named with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.runtime.toml_file import TomlError, TomlFile, hint


def written(folder: Path, content: bytes) -> Path:
    """A file."""
    path = folder / "a.toml"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a = = 1\n", "is no TOML: Invalid value"),
        (b"a = '\xff'\n", "is no TOML: 'utf-8' codec"),
        (b"a = " + b"[" * 100_000, "is no TOML"),
    ],
)
def test_what_is_no_toml(tmp_path: Path, content: bytes, said: str) -> None:
    """Nor is text in another encoding, nor what is nested without end."""
    path = written(tmp_path, content)
    with pytest.raises(TomlError) as caught:
        TomlFile.read(path)
    assert str(caught.value).startswith(f"{path} {said}")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """It is named, in the system's words."""
    with pytest.raises(TomlError, match=r"none.toml cannot be read: No such file"):
        TomlFile.read(tmp_path / "none.toml")


def test_places(tmp_path: Path) -> None:
    """A key's line, a table's, a quoted key's; of what is not there, the file."""
    path = written(tmp_path, b"\xef\xbb\xbfa = 1\r\n\r\n'b c' = 2\n[d]\n e.f = 3\n[[g]]\n")
    file = TomlFile.read(path)
    assert file.content == {"a": 1, "b c": 2, "d": {"e": {"f": 3}}, "g": [{}]}
    for key, line in {"a": 1, "b c": 3, "d": 4, "e": 5, "g": 6}.items():
        assert file.where(key) == f"{path}, line {line}"
    assert file.where("h") == str(path)


def test_hints() -> None:
    """The nearest name, or all."""
    assert hint("clutser", ("cluster", "name")) == "did you mean 'cluster'?"
    assert hint("xyz", ("cluster", "name")) == "there are cluster, name"
