"""`docs/operators.md` says what the registries say, and they leave out nothing that LiteRT has."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

from runtime.errors import DelegateError
from runtime.model.schema import BuiltinOperator
from runtime.ops.support.registry import SPECS
from runtime.tools.operator_table import gpu_types
from tests.needs import REPOSITORY, absent
from tests.oracle import call_in_litert
from tests.runtime.models import Builder

TABLE = REPOSITORY / "docs" / "operators.md"
RESOLVERS = ("BUILTIN_REF", "BUILTIN_WITHOUT_DEFAULT_DELEGATES")
NEWEST = 16


def test_the_table_is_what_the_generator_writes(tmp_path):
    try:
        gpu_types()
    except DelegateError as error:
        absent(f"no gpu delegate: {error}")
    fresh = tmp_path / "operators.md"
    subprocess.run(
        [sys.executable, "-m", "runtime.tools.operator_table", str(fresh)], check=True, cwd=REPOSITORY
    )
    stale = f"stale: python -m runtime.tools.operator_table {TABLE.relative_to(REPOSITORY)}"
    assert TABLE.read_text(encoding="utf-8") == fresh.read_text(encoding="utf-8"), stale


def test_every_operator_states_its_types():
    assert [opcode.name for opcode, spec in SPECS.items() if not (spec.types or spec.note)] == []


def probe(opcode: BuiltinOperator, version: int) -> bytes:
    builder = Builder()
    x, y = builder.input(np.float32, (1,)), builder.tensor(np.float32, (1,))
    builder.operator(opcode, [x], [y], version=version)
    return builder.write([y])


def resolved(litert, probes):
    """Return the (operator, version) pairs that one of LiteRT's resolvers finds a kernel for."""
    return [key for key, model in probes if any(_finds(litert, model, r) for r in RESOLVERS)]


def _finds(litert, model, resolver):
    try:
        litert.Interpreter(model_content=model, experimental_op_resolver_type=litert.OpResolverType[resolver])
    except (RuntimeError, ValueError) as error:
        return "Didn't find op" not in str(error)
    return True


def test_litert_has_no_operator_and_no_version_that_we_lack():
    skipped = ("CUSTOM", "DELEGATE", "PLACEHOLDER_FOR_GREATER_OP_CODES")
    probes = [
        ((opcode.name, version), probe(opcode, version))
        for opcode in BuiltinOperator
        if opcode.name not in skipped
        for version in range(1, NEWEST + 1)
    ]
    found = call_in_litert("tests.runtime.tools.test_operator_table:resolved", probes)
    assert ("CONV_2D", 8) in found
    newest = {BuiltinOperator[name]: version for name, version in found}
    lacking = {o.name: v for o, v in newest.items() if o not in SPECS or SPECS[o].max_version < v}
    assert not lacking
