"""The checker finds the faults that it is there for, and none in a kernel without one."""

from collections import Counter

import pytest

from tests.runtime.kernel_checker import CLASSES, Finding, cases, checked, findings, page

FAULT = Finding("add", "Invalid read of size 4 in global memory", ("input.cl:1",))


@pytest.mark.exhaustive
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


def test_the_report_counts_the_cases_that_ran_and_names_each_finding(tmp_path):
    listed = tmp_path / "listed"
    names = ("matmul.test_add", "matmul.test_mul", "test_element_types")
    ran = [f'<testcase classname="tests.runtime.ops.{name}" name="case"/>' for name in names]
    skipped = '<testcase classname="tests.runtime.ops.image.test_resize" name="case"><skipped/></testcase>'
    listed.write_text(f"<testsuites><testsuite>{''.join(ran)}{skipped}</testsuite></testsuites>")
    assert cases(listed) == {"matmul": 2, "test_element_types.py": 1}
    units, groups = CLASSES
    lines = page(
        {units: cases(listed), groups: cases(tmp_path / "absent")},
        {units: Counter({FAULT: 3}), groups: Counter()},
    ).splitlines()
    assert lines[0].startswith("# ")
    assert "| `matmul` | 2 | 0 |" in lines
    assert f"- {FAULT}, 3 times" in lines
    assert "Findings in kernels of work-groups: 0." in lines
