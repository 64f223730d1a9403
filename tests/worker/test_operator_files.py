"""Files of secrets and of reference jobs, which only the worker's operator writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.runtime.config import ConfigError
from services.worker.__main__ import _lines


def test_names_and_texts(tmp_path: Path) -> None:
    """Without a file there are none."""
    path = tmp_path / "secrets.toml"
    path.write_text('TOKEN = "t"\n')
    assert _lines("secrets_file", str(path)) == {"TOKEN": "t"}
    assert _lines("secrets_file", "") == {}


@pytest.mark.parametrize(
    ("content", "said"), [("\nTOKEN = 5\n", "line 2: TOKEN must be text"), ("TOKEN", "is no TOML")]
)
def test_what_is_wrong_is_named(tmp_path: Path, content: str, said: str) -> None:
    """With the setting that names the file; a secret is not shown."""
    path = tmp_path / "secrets.toml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=r"^worker.secrets_file: ") as caught:
        _lines("secrets_file", str(path))
    assert said in str(caught.value)
