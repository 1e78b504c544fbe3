"""Two pipelines of a camera's frames on the GPU, each beside its plain form, and what it saves.

    python examples/pipelines.py my.tflite [ROUNDS]

1. Zero copy: a frame is prepared in the memory of the input's buffer, and the scores are read where the
   device has left them. The plain form prepares an array, copies it in by `write`, and scores out by `read`.
2. Asynchronous: the CPU prepares a frame while the device runs the one before, on a second pair of buffers.
   The plain form prepares, runs and reads one frame after the other.

Each form has its turn in every round, in both orders, so that a slow moment of the machine meets all of them.
The figures are an orientation; `measure: {pipeline: ...}` of a campaign measures them in fresh processes.
"""

import sys
import time
from collections.abc import Callable
from statistics import median

import numpy as np
from numpy.typing import NDArray

from delegate_farm import CompiledModel, HardwareAccelerator, TensorBuffer

FRAMES = 16
"""Frames of a turn: the first one of the asynchronous pipeline has none before it to hide behind."""

Values = NDArray[np.float32]
Pair = tuple[list[TensorBuffer], list[TensorBuffer]]


class Pipelines:
    """A classifier of one input and one output of floats, with two pairs of buffers."""

    def __init__(self, model: CompiledModel) -> None:
        self.model = model
        key = model.get_signature_by_index(0)["key"]
        (self.shape,) = [tuple(one["shape"]) for one in model.get_input_tensor_details(key).values()]
        (answer,) = model.get_output_tensor_details(key).values()
        self.scores = int(np.prod(answer["shape"]))
        self.array = np.empty(self.shape, np.float32)
        self.pairs: list[Pair] = [
            (model.create_input_buffers(0), model.create_output_buffers(0)) for _ in "12"
        ]
        rng = np.random.default_rng(0)
        self.frames = rng.integers(0, 256, (FRAMES, *self.shape), dtype=np.uint8)

    def copying(self) -> list[int]:
        """Prepare an array, and copy it and the scores."""
        (inputs, outputs), answers = self.pairs[0], []
        for frame in self.frames:
            prepare(frame, self.array)
            inputs[0].write(self.array)
            self.model.run_by_index(0, inputs, outputs)
            answers.append(int(outputs[0].read(self.scores, np.float32).argmax()))
        return answers

    def in_place(self) -> list[int]:
        """Prepare the frame where the device reads it, and look at the scores where it wrote them."""
        answers = []
        for frame in self.frames:
            self.fill(self.pairs[0], frame)
            self.model.run_by_index(0, *self.pairs[0])
            answers.append(self.answer(self.pairs[0]))
        return answers

    def overlapped(self) -> list[int]:
        """Prepare each frame while the device runs the one before."""
        answers = []
        for number, frame in enumerate(self.frames):
            pair, before = self.pairs[number % 2], self.pairs[1 - number % 2]
            # The run that read this memory has ended: its answer was waited for.
            self.fill(pair, frame)
            self.model.run_async(*pair)
            if number:
                answers.append(self.answer(before))
        return [*answers, self.answer(pair)]

    def fill(self, pair: Pair, frame: NDArray[np.uint8]) -> None:
        """Prepare a frame in the memory of a pair's input."""
        with pair[0][0].lock() as memory:
            prepare(frame, memory[: self.array.nbytes].view(np.float32).reshape(self.shape))

    def answer(self, pair: Pair) -> int:
        """Return the best class, once the run has ended, without a copy of the scores."""
        with pair[1][0].lock() as memory:
            return int(memory[: self.scores * 4].view(np.float32).argmax())


def prepare(frame: NDArray[np.uint8], target: Values) -> None:
    """Write a frame as LiteRT's tools normalise pictures: from -1 to 1."""
    np.multiply(frame, np.float32(1 / 127.5), out=target)
    target -= np.float32(1)


def timed(run: Callable[[], list[int]]) -> tuple[float, list[int]]:
    """Return the milliseconds of one frame, and the answers."""
    start = time.perf_counter()
    answers = run()
    return (time.perf_counter() - start) / FRAMES * 1e3, answers


def main(path: str, rounds: int = 5) -> None:
    """Run all forms in turn, and print what the better ones save."""
    with CompiledModel.from_file(path, HardwareAccelerator.GPU | HardwareAccelerator.CPU) as model:
        pipelines = Pipelines(model)
        forms = {
            "copying": pipelines.copying,
            "in place": pipelines.in_place,
            "overlapped": pipelines.overlapped,
        }
        times: dict[str, list[float]] = {name: [] for name in forms}
        wanted = pipelines.copying()
        event = model.run_async(*pipelines.pairs[0])
        event.wait()
        for number in range(rounds):
            for name in list(forms)[:: -1 if number % 2 else 1]:
                ms, answers = timed(forms[name])
                assert answers == wanted, f"{name} has other answers"
                times[name].append(ms)
    for title, plain, better in (
        ("zero copy", "copying", "in place"),
        ("asynchronous", "in place", "overlapped"),
    ):
        before, after = median(times[plain]), median(times[better])
        print(f"{title}: {before:.3f} -> {after:.3f} ms a frame, saved {before - after:.3f} ms")
    print("the device works on the buffers themselves" if not event.copies else f"copied: {event.copies[0]}")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:3]))
