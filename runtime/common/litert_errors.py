"""Rewrites LiteRT's messages: the cause first, once, without source lines and what follows from it."""

import re
from typing import Final

# The name may have dots of its own: it ends in front of the one that ends the sentence, behind which the next
# sentence may follow without a space.
_CUSTOM: Final = re.compile(r"Encountered unresolved custom op: (\S+?)\.(?=\s|$|See)")
_BUILTIN: Final = re.compile(r"Didn't find op for builtin opcode '(\w+)' version '(\d+)'")
_NODE: Final = re.compile(r"\s*Node number (\d+) \(([^)]*)\) (failed to \w+)\.?")
_NOISE: Final = re.compile(
    r"(?:[\w.-]+/)+[\w.-]+\.(?:cc|h):\d+:?\s*"
    r"|See instructions: \S+\s*"
    r"|Failed to apply the default TensorFlow Lite delegate indexed at \d+\.\s*"
    r"|Registration failed\.\s*"
)


def cause_of(text: str) -> str:
    """Return the cause that a message of LiteRT tells, after whatever stands in front of it.

    `ERROR: a/b.cc:9 x != y (1 != 2)Node number 3 (CONV_2D) failed to prepare.` becomes `CONV_2D (operator 3)
    failed to prepare: x != y (1 != 2)`. A text that is no message of LiteRT's stays as it is.
    """
    if (custom := _CUSTOM.search(text)) is not None:
        return f"custom operator {custom[1]}: LiteRT has no kernel for it"
    if (builtin := _BUILTIN.search(text)) is not None:
        return f"{builtin[1]} of version {builtin[2]}: this LiteRT has no kernel for it"
    node = _NODE.search(text)
    if node is None:
        return text
    said = " ".join(_NOISE.sub("", text[: node.start()]).split()).removeprefix("RuntimeError: ")
    return f"{node[2]} (operator {node[1]}) {node[3]}" + (f": {said}" if said else "")
