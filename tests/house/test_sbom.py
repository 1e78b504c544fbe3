"""The list of packages of an installation is that of the lock."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from tests.needs import REPOSITORY


@pytest.mark.exhaustive
def test_the_list_of_packages_holds_what_the_lock_holds():
    subprocess.run(["make", "sbom"], cwd=REPOSITORY, check=True, capture_output=True)
    found = json.loads((REPOSITORY / ".dist/sbom.cdx.json").read_text(encoding="utf-8"))
    lock = (REPOSITORY / "requirements/lab.lock").read_text(encoding="utf-8")
    locked = dict(re.findall(r"^([\w.-]+)==(\S+)", lock, re.MULTILINE))
    assert {part["name"]: part["version"] for part in found["components"]} == locked
    assert all(part["externalReferences"][0]["hashes"] for part in found["components"])
    assert found["metadata"]["component"]["name"] == "delegate-farm"
