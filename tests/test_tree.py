"""A tree is named by its commit, and by a hash that any change of a file changes, except that of a report."""

from __future__ import annotations

import subprocess

import pytest

from tests.needs import REPOSITORY
from tests.tree import NoGitError, Tree, files, fingerprint, tree


def git(root, *arguments):
    who = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.org")
    subprocess.run(["git", *who, *arguments], cwd=root, check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path):
    """Make a repository with a source, a figure and a report, all committed."""
    (tmp_path / "benchmarks/results").mkdir(parents=True)
    for name in ("source.py", "benchmarks/results/start.json", "benchmarks/results/soak.md"):
        (tmp_path / name).write_text("1")
    (tmp_path / ".gitignore").write_text(".suites/\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "--message", "all")
    return tmp_path


# What is written; whether the tree is then modified, and whether its hash is another.
CHANGES = {
    "a source": ("source.py", True, True),
    "a file that nobody added": ("new.py", True, True),
    "a figure": ("benchmarks/results/start.json", False, True),
    "a report": ("benchmarks/results/soak.md", False, False),
    "an ignored file": (".suites/state.json", False, False),
}


@pytest.mark.parametrize(("path", "modified", "another"), CHANGES.values(), ids=CHANGES)
def test_a_change_is_seen(checkout, path, modified, another):
    before = tree(checkout)
    assert not before.modified
    found = fingerprint(checkout)
    (checkout / path).parent.mkdir(exist_ok=True)
    (checkout / path).write_text("2")
    assert tree(checkout) == Tree(before.commit, modified)
    assert (fingerprint(checkout) != found) == another


def test_a_file_that_is_gone_or_can_be_run_is_a_change(checkout):
    found = [fingerprint(checkout)]
    (checkout / "source.py").chmod(0o755)
    found.append(fingerprint(checkout))
    (checkout / "source.py").unlink()
    found.append(fingerprint(checkout))
    assert len(set(found)) == 3
    assert "source.py" not in files(checkout)


def test_a_folder_without_git_has_no_commit_and_no_hash(tmp_path):
    assert str(tree(tmp_path)) == "a tree that git does not know"
    with pytest.raises(NoGitError, match=str(tmp_path)):
        fingerprint(tmp_path)


def test_this_tree_is_named():
    found = tree(REPOSITORY)
    if found.commit is None:
        pytest.skip("this tree is no checkout of git")
    assert found.commit[:12] in str(found)
    assert ("not modified" in str(found)) is not found.modified
