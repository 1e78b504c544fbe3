"""The working tree as git knows it: its files, its commit, and a name for its content."""

from __future__ import annotations

import hashlib
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.needs import REPOSITORY

RESULTS = "benchmarks/results"
"""Folder of figures and reports. What a run writes there says nothing about the tree that it ran on."""


class NoGitError(RuntimeError):
    """Git is not installed, or does not know the folder."""


@dataclass(frozen=True, slots=True)
class Tree:
    """The tree of a run. `commit`: None where git does not know it; `modified`: whether anything but figures
    differs from the commit.
    """

    commit: str | None
    modified: bool = False

    def __str__(self) -> str:
        if self.commit is None:
            return "a tree that git does not know"
        return f"tree `{self.commit[:12]}`, {'modified' if self.modified else 'not modified'}"


def tree(root: Path = REPOSITORY) -> Tree:
    """Return the tree as it is now. Whoever reports on a run asks when the run begins."""
    try:
        commit = _git(root, "rev-parse", "HEAD").decode().strip()
        changed = _git(root, "status", "--porcelain", "--", ".", f":(exclude){RESULTS}")
    except NoGitError:
        return Tree(None)
    return Tree(commit, bool(changed))


def files(root: Path = REPOSITORY) -> list[str]:
    """Return the paths that git tracks or would track and that exist. Raises `NoGitError`."""
    listed = os.fsdecode(_git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"))
    return sorted({name for name in listed.split("\0") if name and (root / name).is_file()})


def fingerprint(root: Path = REPOSITORY) -> str:
    """Return a hash of all names and contents but the reports that suites write. Raises `NoGitError`."""
    found = hashlib.sha256()
    for name in files(root):
        if not (name.startswith(f"{RESULTS}/") and name.endswith(".md")):
            path = root / name
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            found.update(f"{name}\0{os.access(path, os.X_OK)}\0{content}\0".encode(errors="surrogateescape"))
    return found.hexdigest()


def _git(root: Path, *arguments: str) -> bytes:
    try:
        return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise NoGitError(f"git {arguments[0]} in {root}: {error}") from error
