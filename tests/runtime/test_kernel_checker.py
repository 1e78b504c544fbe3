"""The checker finds the faults that it is there for, and none in a kernel without one."""

import pytest

from tests.runtime.kernel_checker import Finding, checked, findings

pytestmark = pytest.mark.exhaustive


def test_races_and_accesses_outside_are_found_and_nothing_else():
    code, said, report = checked("-q", "tests/runtime/planted_kernel_faults.py")
    assert code == 0, said + report
    place = ("input.cl:1",)
    assert set(findings(report)) == {
        Finding("outside", "Invalid read of size 4 in global memory", place),
        Finding("outside", "Invalid write of size 4 in global memory", place),
        Finding("race", "Read-write data race in global memory", place),
        Finding("race", "Write-write data race in global memory", place),
    }
