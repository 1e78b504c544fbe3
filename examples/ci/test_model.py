"""The model of this project is fast enough and right."""

from delegate_farm import How, assert_accuracy, assert_latency

MODEL = "model.tflite"
HOW = How(options={"threads": 1})


def test_the_model_is_fast_enough() -> None:
    """Half of all runs end within 5 ms."""
    assert_latency(MODEL, "cpu", max_ms=5, how=HOW)


def test_the_model_computes_what_litert_computes() -> None:
    """Its outputs agree with those of LiteRT's reference kernels."""
    assert_accuracy(MODEL, "cpu", how=HOW)
