"""Real models that keep state pass on every delegate that takes them: judged as a farm judges them."""

from __future__ import annotations

import hashlib

import pytest

from delegate_farm import load_delegate
from runtime.api.interpreter import Interpreter
from runtime.errors import FarmRuntimeError
from runtime.judge.agreement import Expected, judge
from runtime.judge.rules import arithmetic_of, keeps_state, rule_for
from runtime.measure.inputs import POOL_SIZE
from runtime.measure.loading import Opener, Subject
from runtime.measure.outputs import run_sets
from runtime.measure.reference import ReferenceKind, make_reference
from runtime.model.reader import read_model
from tests.models.collection import real_model

pytestmark = pytest.mark.exhaustive

MODELS = {
    "coral_keras_lstm_mnist_i8": "pass",
    "tflm_mnist_lstm_f32": "pass",
    # These detect a word, and random inputs hold none: their output is the same for every input set.
    "mww_alexa": None,
    "mww_okay_nabu": None,
    "tflm_keyword_scrambled_i16": None,
}


@pytest.mark.parametrize("delegate", ["cpu", "litert", "gpu"])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_keeps_state_is_never_called_wrong(tmp_path, name, delegate):
    data = real_model(name)
    path = tmp_path / "model.tflite"
    path.write_bytes(data)
    sha256 = hashlib.sha256(data).hexdigest()
    model = read_model(data)
    assert keeps_state(model)
    opener = Opener.prepare(delegate, {})
    found = run_sets(Subject(opener, str(path), sha256, {}))
    reference = make_reference(str(path), sha256, {}, ReferenceKind.REFERENCE_KERNELS)
    peer = _xnnpack(str(path), sha256)
    runs = {} if peer is None else {"xnnpack": peer}
    rule = rule_for(arithmetic_of(model), integer_path=delegate == "cpu", precision="fp32", draws=runs)
    assert len(found.sets) == len(reference.outputs) == 2 * POOL_SIZE, "judged again, many steps later"
    for part in (slice(POOL_SIZE), slice(POOL_SIZE, None)):
        draws = {kind: outputs[part] for kind, outputs in runs.items()}
        expected = Expected(reference.outputs[part], reference.output_facts, draws)
        judged = judge(expected, found.sets[part], rule)
        assert judged.verdict == MODELS[name], judged
        assert judged.verdict == "pass" or "same for every input set" in judged.note


@pytest.mark.parametrize("name", [*MODELS, "seanet_transpose_conv0_i16x8"])
def test_gpu_takes_a_recurrent_or_streaming_model_whole(name):
    delegate = load_delegate("gpu", {"tuning": "none"})
    interpreter = Interpreter(model_content=real_model(name), experimental_delegates=[delegate])
    interpreter.allocate_tensors()
    assert not interpreter.delegation.fallbacks, str(interpreter.delegation)


def _xnnpack(path, sha256):
    """Return the outputs of LiteRT's XNNPACK; None if it does not run the model."""
    try:
        return make_reference(path, sha256, {}, ReferenceKind.XNNPACK).outputs
    except FarmRuntimeError:
        return None
