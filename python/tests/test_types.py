"""Types: the package and a program that uses it, by `mypy --strict`; the stub of the native
half."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import subprocess
import sys

import distlock

HERE = pathlib.Path(__file__).parent
PACKAGE = pathlib.Path(distlock.__file__).parent


def run(directory: pathlib.Path, *command: str) -> None:
    """In a directory in which the tool may leave what it likes; not among the sources."""
    environment = dict(os.environ, MYPY_CACHE_DIR=str(directory / "cache"))
    command = (sys.executable, "-m", *command)
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_package_is_typed(directory: pathlib.Path) -> None:
    assert (PACKAGE / "py.typed").exists()
    run(directory, "mypy", "--strict", "--warn-unused-ignores", "-p", "distlock")


def test_programs_and_tests_are_typed(directory: pathlib.Path) -> None:
    files = sorted(str(path) for path in HERE.glob("*.py"))
    assert len(files) > 5
    run(directory, "mypy", "--strict", "--warn-unused-ignores", *files)


def test_the_stub_is_that_of_the_module(directory: pathlib.Path) -> None:
    (directory / "allowed").write_text(
        # Of every class that Python cannot make.
        "distlock._distlock.__all__\n"
    )
    run(directory, "mypy.stubtest", "--allowlist", "allowed", "--ignore-unused-allowlist",
        "distlock._distlock")  # fmt: skip


def test_what_is_exported_is_there() -> None:
    assert sorted(distlock.__all__) == distlock.__all__
    for name in distlock.__all__:
        assert getattr(distlock, name).__doc__, name
    public = {name for name in vars(distlock) if not name.startswith("_")}
    assert public == set(distlock.__all__)
    assert importlib.util.find_spec("distlock._distlock") is not None
