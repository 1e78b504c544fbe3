"""Model files made to do harm to whoever reads, plans, runs or shows them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from runtime.model.external import ExternalBuffer
from runtime.model.graph import Model, Operator, Signature, Subgraph, Tensor
from runtime.model.schema import BuiltinOperator, TensorType
from runtime.model.writer import write_model
from tests.orchestrator.cli.models import unary_model
from tests.runtime.model.test_hostile import shared_subgraph

HTML = "<script>document.title='owned'</script><img src=x onerror=alert(1)>"
FORMULA = "=cmd|'/C touch owned'!A0"
TERMINAL = "\x1b]0;owned\x07\x1b[2J\x1b[31mdone\r\x9b31m\u202e"


def tensor(index: int, name: str = "t", shape: tuple[int, ...] = (1, 8), **more: object) -> Tensor:
    return Tensor(index, name, TensorType.FLOAT32, shape, **more)  # type: ignore[arg-type]


def graph(*operators: Operator, name: str = "main", tensors: int = 2, **more: object) -> Subgraph:
    """From tensor 0 to the last one."""
    made = tuple(tensor(index, f"t{index}", **more) for index in range(tensors))  # type: ignore[arg-type]
    return Subgraph(0, name, made, (0,), (tensors - 1,), operators)


def model(*subgraphs: Subgraph, **more: object) -> bytes:
    numbered = tuple(replace(found, index=index) for index, found in enumerate(subgraphs))
    return write_model(Model(3, str(more.pop("description", "")), numbered, **more))  # type: ignore[arg-type]


def custom(name: str) -> bytes:
    """One operator that nobody has, of this name; every text of the file is that name."""
    operator = Operator(0, BuiltinOperator.CUSTOM, 1, (0,), (1,), custom_code=name)
    tensors = (tensor(0, name), tensor(1, f"{name} out"))
    found = Subgraph(0, name, tensors, (0,), (1,), (operator,))
    signature = Signature(name, 0, ((name, 0),), ((name, 1),))
    return write_model(Model(3, name, (found,), (signature,), {name: name.encode()}))


def relu(inputs: int = 0, outputs: int = 1, index: int = 0) -> Operator:
    return Operator(index, BuiltinOperator.RELU, 1, (inputs,), (outputs,))


def calls_itself() -> bytes:
    """Build a WHILE whose body is the graph that contains it."""
    options = {"cond_subgraph_index": 0, "body_subgraph_index": 0}
    return model(graph(Operator(0, BuiltinOperator.WHILE, 1, (0,), (1,), options)))


def ring_of_calls(length: int = 100) -> bytes:
    """Every subgraph calls the next one; the last one the first."""
    return model(
        *(
            graph(
                Operator(
                    0,
                    BuiltinOperator.IF,
                    1,
                    (0, 0),
                    (1,),
                    {
                        "then_subgraph_index": (index + 1) % length,
                        "else_subgraph_index": (index + 1) % length,
                    },
                )
            )
            for index in range(length)
        )
    )


def no_such_subgraph() -> bytes:
    return model(
        graph(Operator(0, BuiltinOperator.CALL_ONCE, 1, (), (), {"init_subgraph_index": 2**30}), relu())
    )


def reads_what_nobody_writes() -> bytes:
    """Two operators, each of which waits for the other one's output."""
    return model(graph(relu(2, 1), relu(1, 2, 1), tensors=4))


def long_chain(operators: int) -> bytes:
    """One operator after the other."""
    chain = tuple(relu(index, index + 1, index) for index in range(operators))
    return model(graph(*chain, tensors=operators + 1))


def weights_elsewhere(group: str) -> bytes:
    """Build a constant whose bytes lie in another file of the host."""
    weights = replace(tensor(1, "w"), external_buffer=1)
    operator = Operator(0, BuiltinOperator.ADD, 1, (0, 1), (2,))
    found = Subgraph(0, "main", (tensor(0), weights, tensor(2)), (0,), (2,), (operator,))
    return write_model(Model(3, "", (found,), external=(ExternalBuffer(1, group, 0, 32),)))


def beyond(place: int, value: bytes = b"\xff\xff\xff\x7f") -> bytes:
    """Return a good file with one offset that leads out of it."""
    good = unary_model(size=8)
    return good[:place] + value + good[place + 4 :]


QUICK: dict[str, Callable[[], bytes]] = {
    "worst": lambda: custom(f"{FORMULA}{HTML}\0{TERMINAL}"),
    "gigantic": lambda: model(graph(relu(), shape=(2**31 - 1, 2**31 - 1))),
    "itself": calls_itself,
}
LONG: dict[str, Callable[[], bytes]] = {
    "nul": lambda: custom("a\0b"),
    "formula": lambda: custom(FORMULA),
    "html": lambda: custom(HTML),
    "terminal": lambda: custom(TERMINAL),
    "ring": ring_of_calls,
    "nowhere": no_such_subgraph,
    "wait": reads_what_nobody_writes,
    "large": lambda: model(graph(relu(), shape=(1, 2**31 - 1))),
    "negative": lambda: model(graph(relu(), shape=(-5, -7))),
    "ranks": lambda: model(graph(relu(), shape=(1,) * 5000)),
    "chain": lambda: long_chain(100_000),
    "shadow": lambda: weights_elsewhere("/etc/shadow"),
    "credentials": lambda: weights_elsewhere("../../../agent/credentials.json"),
    "zeros": lambda: weights_elsewhere("/dev/zero"),
    "root": lambda: beyond(0),
    "vtable": lambda: beyond(28),
    "cut": lambda: unary_model()[:40],
    "magic": lambda: b"\x1c\0\0\0TFL3" + b"\xff" * 1000,
    "shared": lambda: shared_subgraph(20_000, 20_000),
    "longname": lambda: custom("x" * 1_000_000),
    "bidi": lambda: custom("\u202e\u2066evil\u2069"),
    "newlines": lambda: custom("a\n2026-01-01 INFO agent rogue is enrolled\nb"),
    "quotes": lambda: custom("\"'`$(touch owned);touch owned|&\\"),
    "template": lambda: custom("{{ 7*7 }}{% include '/etc/passwd' %}${7*7}%(x)s{0}"),
}
"""Name of the model in the campaign -> its bytes."""
