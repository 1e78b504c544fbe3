"""Processors that are sold under one name are told apart."""

import pytest

from runtime.delegates.processor import Processor, processor

EPYC = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: 17
model name\t: AMD EPYC
stepping\t: 1
cpu MHz\t\t: 2596.138
flags\t\t: fpu avx512f avx512_bf16
"""


@pytest.fixture
def read(tmp_path):
    def write(text: str) -> Processor:
        path = tmp_path / f"cpuinfo{len(list(tmp_path.iterdir()))}"
        path.write_text(text)
        return processor(path)

    return write


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("family\t: 25", "family\t: 26"),
        ("model\t\t: 17", "model\t\t: 1"),
        ("stepping\t: 1", "stepping\t: 2"),
        ("avx512_bf16", ""),
    ],
)
def test_family_model_stepping_and_instruction_sets_count(read, old, new):
    assert read(EPYC) != read(EPYC.replace(old, new))


def test_clock_and_order_of_flags_do_not(read):
    other = EPYC.replace("2596.138", "3100.0").replace("fpu avx512f", "avx512f fpu")
    assert read(EPYC) == read(other)
    assert read(EPYC).model == "AuthenticAMD 25 17 1"


def test_all_cores_of_a_machine_with_several_kinds_count(read):
    big, small = "CPU implementer: 0x41\nCPU part: 0xd44\nFeatures: asimd\n", "CPU part: 0xd05\n"
    assert read(big + small).model == "0x41 0xd44+0xd05"
    assert read(big + small) != read(big)


def test_a_host_without_a_description_has_its_machine_type(read):
    assert read("").features == "unknown"
    assert read("").model
