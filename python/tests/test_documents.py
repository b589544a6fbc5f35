"""The examples of the documents are run, in the local group and by a host's agent."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest
from conftest import PATIENCE, Group

ROOT = pathlib.Path(__file__).parents[2]
# What each example of doc/python.md prints.
PRINTED = [
    "held: True\n",
    "True valid clean\n",
    "done once at a time\n",
    "one of four: licences\n",
    "printed: True\n",
    "leads: True\n",
    "twice: 2\n",
]


def examples(document: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / document).read_text(), re.M | re.S)


def run(text: str, directory: pathlib.Path, **variables: str) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("DISTLOCK_")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", text],
        cwd=directory,
        env=environment | variables,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("number", range(len(PRINTED)))
@pytest.mark.parametrize("way", ["local", "client"])
def test_an_example_does_what_it_says(
    number: int, way: str, directory: pathlib.Path, shop: Group
) -> None:
    found = examples("doc/python.md")
    assert len(found) == len(PRINTED)
    where = {
        "local": ("DISTLOCK_DIR", directory / "own"),
        "client": ("DISTLOCK_SOCKET", shop.socket(1)),
    }
    variable, value = where[way]
    assert run(found[number], directory, **{variable: str(value)}) == PRINTED[number]


def test_the_readme_runs(directory: pathlib.Path) -> None:
    (example,) = examples("python/README.md")
    printed = run(example, directory, DISTLOCK_DIR=str(directory / "own"))
    assert re.fullmatch(r"held, fence \d+\n", printed)
