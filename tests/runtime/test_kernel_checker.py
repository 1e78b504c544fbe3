"""The checker finds the faults that it is there for, and none in a kernel without one."""

from collections import Counter

import pytest

from tests import needs
from tests.runtime.kernel_checker import (
    CLASSES,
    ROUNDING,
    STEPS,
    Finding,
    cases,
    checked,
    findings,
    left_out,
    page,
)

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
    units, groups, _ = CLASSES
    lines = page(
        {units: cases(listed), groups: cases(tmp_path / "absent")},
        {units: Counter({FAULT: 3}), groups: Counter()},
    ).splitlines()
    assert lines[0].startswith("# ")
    assert "| `matmul` | 2 | 0 |" in lines
    assert f"- {FAULT}, 3 times" in lines
    assert "Findings in kernels of work-groups: 0." in lines


def test_a_step_leaves_every_test_its_first_case(monkeypatch):
    names = ["a.py::test_one[0]", "b.py::test_two", *(f"a.py::test_one[{i}]" for i in range(1, 5))]
    monkeypatch.delenv(STEPS, raising=False)
    assert left_out(names) == set()
    monkeypatch.setenv(STEPS, "3")
    assert left_out(names) == {2, 3, 5}
    assert "`make test-kernels` runs each operator test's first case, and one in 3 behind" in page({}, {}, 3)
    assert "`make test-kernels-all` runs every operator case" in page({}, {})


def test_the_test_whose_case_is_left_out_is_where_the_checker_says():
    file, _, test = ROUNDING.partition("::")
    assert f"def {test}(" in (needs.REPOSITORY / file).read_text(encoding="utf-8")
