"""Static tables between int64 and string: HASHTABLE, HASHTABLE_IMPORT, HASHTABLE_FIND, HASHTABLE_SIZE."""

from typing import Any

from runtime.ops.state.variable import handle_shape, resource_of
from runtime.ops.support import Kernel, Op, OpContext, TensorType, operator

_PAIRS = {(TensorType.INT64, TensorType.STRING), (TensorType.STRING, TensorType.INT64)}
_TYPES = "INT64 to STRING or STRING to INT64; the handle RESOURCE or INT32"


class HashTable:
    """A table that the first import fills; later ones change nothing, as in `static_hashtable.cc`."""

    def __init__(self) -> None:
        self.entries: dict[Any, Any] | None = None


@operator(Op.HASHTABLE, infer=handle_shape, stateful=True, note=_TYPES)
def hash_table(op: OpContext) -> Kernel:
    """HASHTABLE: the handle of the table with this id."""
    types = (op.option("key_dtype"), op.option("value_dtype"))
    if types not in _PAIRS:
        raise op.unsupported(f"a table from {types[0].name} to {types[1].name} is not defined")
    handle, _ = op.services.resource(HashTable, (str(op.option("table_id")), ""))
    return lambda: op.write().fill(handle)


def _table(op: OpContext) -> HashTable:
    return resource_of(op, HashTable, "hash table")


@operator(Op.HASHTABLE_IMPORT, infer=lambda _op: (), stateful=True, note=_TYPES)
def import_entries(op: OpContext) -> Kernel:
    """HASHTABLE_IMPORT: fill the table with keys and values of one length; of equal keys the first counts."""
    keys, values = op.read(1).reshape(-1), op.read(2).reshape(-1)
    if keys.size != values.size:
        raise op.error(f"{keys.size} keys with {values.size} values")

    def run() -> None:
        table = _table(op)
        if table.entries is None:
            pairs = zip(keys.tolist(), values.tolist(), strict=True)
            # Later entries of a dict replace earlier ones: backwards, the first of equal keys stays.
            table.entries = dict(reversed(list(pairs)))

    return run


@operator(Op.HASHTABLE_FIND, infer=lambda op: (op.input(1).shape,), stateful=True, note=_TYPES)
def find_entries(op: OpContext) -> Kernel:
    """HASHTABLE_FIND: the value of each key of input 1, or the default in input 2 where there is none."""
    keys, default, found = op.read(1).reshape(-1), op.read(2).reshape(-1), op.write().reshape(-1)

    def run() -> None:
        entries = _table(op).entries
        if entries is None:
            raise op.error("the hash table was never filled")
        absent = default[0]
        found[:] = [entries.get(key, absent) for key in keys.tolist()]

    return run


@operator(Op.HASHTABLE_SIZE, infer=lambda _op: ((1,),), stateful=True, note=_TYPES)
def table_size(op: OpContext) -> Kernel:
    """HASHTABLE_SIZE: the number of the table's entries, int64 [1]."""
    size = op.write()
    return lambda: size.fill(len(_table(op).entries or ()))
