"""The tools of delegates work in the boundary of an arm, inside a runner's: each with empty caches."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.processes.environment import for_runner, own_caches
from agent.processes.left_files import LOG_FILE
from agent.processes.sandbox.boundary import TEMPORARY_FOLDER, boundary_for
from agent.processes.sandbox.inner import InnerBoundary
from agent.processes.sandbox.reach import Reach
from agent.processes.supervisor import Launch, start
from tests.agent.embedded_agent import PATIENCE_S
from tests.needs import compiler
from tests.sweeps import slowly

NUMPY = "import numpy as n; a = n.ones((600, 600), 'f'); assert (a @ a == 600).all()"
LITERT = """
from ai_edge_litert.interpreter import Interpreter
interpreter = Interpreter(model_path=sys.argv[1], num_threads=2)
interpreter.allocate_tensors()
interpreter.invoke()
"""
CPU = """
import delegate_farm
interpreter = delegate_farm.Interpreter(model_path=sys.argv[1], num_threads=2)
interpreter.allocate_tensors()
interpreter.invoke()
"""
OPENCL = """
import numpy, pyopencl as cl
context = cl.create_some_context(interactive=False)
queue = cl.CommandQueue(context)
array = numpy.arange(4096, dtype='f')
held = cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=array)
text = 'kernel void twice(global float *a) { a[get_global_id(0)] *= 2; }'
cl.Program(context, text).build().twice(queue, array.shape, (64,), held)
found = numpy.empty_like(array)
cl.enqueue_copy(queue, found, held)
assert (found == 2 * array).all()
"""
GPU = """
import delegate_farm
delegate = delegate_farm.load_delegate('gpu')
interpreter = delegate_farm.Interpreter(model_path=sys.argv[1], experimental_delegates=[delegate])
interpreter.allocate_tensors()
interpreter.invoke()
"""
OPENMP = """
#include <omp.h>
int main(void) {
    int sum = 0;
#pragma omp parallel num_threads(2) reduction(+ : sum)
    sum += 1;
    return sum == 2 ? 0 : 1;
}
"""


def in_an_arm(folder: Path, command: list[str], model: Path, **variables: str) -> None:
    """Run a command in the boundary of an arm, inside a runner's."""
    arm, caches = folder / "arm", folder / "caches"
    for made in (arm, caches, folder / TEMPORARY_FOLDER):
        made.mkdir()
    environment = {**for_runner(), **own_caches(caches), "TMPDIR": str(arm), **variables}
    reach = Reach(command, environment, read=[model], write=[folder])
    boundary, inner = boundary_for(reach, folder), InnerBoundary((arm, caches))
    launch = Launch(command, environment, folder, own_group=True, boundary=boundary, inner=inner)
    assert start(launch).wait(PATIENCE_S) == 0, (folder / LOG_FILE).read_text()[-3000:]


@pytest.mark.parametrize(
    "code",
    [slowly(NUMPY), slowly(LITERT), slowly(CPU), slowly(OPENCL), GPU],
    ids=["numpy", "litert", "cpu", "opencl", "gpu"],
)
def test_it_computes_with_threads_and_empty_caches(tmp_path, tiny, code):
    variables = {"OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}
    in_an_arm(tmp_path, [sys.executable, "-P", "-c", f"import sys\n{code}", str(tiny)], tiny, **variables)


@pytest.mark.slow
def test_an_opencl_program_is_kept_in_the_cache_of_the_arm(tmp_path, tiny):
    in_an_arm(tmp_path, [sys.executable, "-P", "-c", OPENCL], tiny)
    assert any(path.is_file() for path in (tmp_path / "caches").rglob("*"))


@pytest.mark.slow
def test_libraries_that_bind_their_threads_go_on(tmp_path, tiny):
    in_an_arm(tmp_path, [sys.executable, "-P", "-c", OPENCL], tiny, POCL_AFFINITY="1")


def test_openmp_that_binds_its_threads_goes_on(tmp_path, tiny):
    (tmp_path / "bound.c").write_text(OPENMP)
    program = tmp_path / "bound"
    command = [compiler(), "-fopenmp", "-o", str(program), str(tmp_path / "bound.c")]
    subprocess.run(command, check=True, env=dict(os.environ))
    in_an_arm(tmp_path, [str(program)], tiny, OMP_PROC_BIND="true", OMP_NUM_THREADS="2")
