"""Compiles the kernels that partitions need into a device's library, before any of them is opened."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

from runtime.delegates.abilities import Primed
from runtime.delegates.base import Partition
from runtime.delegates.gpu.alternatives import lowered
from runtime.delegates.gpu.backends.base import Backend, KeepingBackend
from runtime.delegates.gpu.choose.kept_choices import KeptChoices
from runtime.delegates.gpu.graph.simulation import Quantised
from runtime.delegates.gpu.keep.cache import own_digest
from runtime.delegates.gpu.keep.progress import announced
from runtime.delegates.gpu.layout.source import Function, Source, assemble_functions, function_of
from runtime.delegates.gpu.settings.options import Options
from runtime.errors import DelegateError

_KIND: Final = "primed"

_BATCH: Final = 32
"""Kernels that are compiled together. A kernel that the driver refuses costs the others of its batch, which a
model that needs them then compiles; larger batches lose more, smaller ones leave cores idle at their ends."""


def prime(
    name: str,
    partitions: Iterable[Partition],
    backend: KeepingBackend,
    options: Options,
    way: Callable[[Partition], Quantised],
) -> Primed:
    """See `runtime.delegates.priming.Primable`. `way`: what becomes of the quantised tensors of each."""
    device, kept = backend.capabilities.name, backend.cache
    if kept.folder is None or kept.fault:
        raise DelegateError(
            f"gpu delegate: no kernel would be kept ({kept.fault or 'the cache is switched off'}); name a "
            "folder with the option serialization_dir, or FARM_CACHE_DIR"
        )
    entry = _entry(name, backend, options)
    known: list[str] = json.loads(kept.read(_KIND, entry) or b"[]")
    # The list may outlive its kernels, which are removed from a full cache separately.
    if known and all((kept.folder / "kernels" / key).exists() for key in known):
        return Primed(device, len(known), 0)
    with announced(f"collecting the kernels of models for {device}") as announcement:
        functions = _most_frequent(
            _needed(partition, backend, options, way(partition)) for partition in partitions
        )
        compiled, keys, failures = 0, list[str](), list[str]()
        for first in range(0, len(functions), _BATCH):

            def say(done: int, before: int = first) -> None:
                announcement.doing = (
                    f"compiling kernels for {device}, {before + done} of {len(functions)} are done"
                )

            source = assemble_functions(functions[first : first + _BATCH], backend.capabilities)
            try:
                compiled += _compile(source, backend, say)
                keys.extend(backend.kernel_keys(source).values())
            except DelegateError as error:
                failures.append(str(error).splitlines()[0])
    # A list that is incomplete is not kept, so that the next call tries again.
    if not failures and not kept.fault:
        kept.write(_KIND, entry, json.dumps(keys).encode())
    return Primed(device, len(keys) - compiled, compiled, tuple(dict.fromkeys(failures)))


def _compile(source: Source, backend: Backend, say: Callable[[int], None]) -> int:
    """Compile the kernels that are not kept yet, and return their number; `say` gets the number done so far.

    Raises `DelegateError`.
    """
    missing = 0

    def counted(done: int, count: int) -> None:
        nonlocal missing
        missing = count
        say(len(source.kernels) - count + done)

    with backend.errors("compiling kernels"):
        backend.compile(source, counted)
    return missing


def _entry(name: str, backend: Backend, options: Options) -> str:
    """Return the key of the list of functions that partitions of that name need with these options."""
    # The text of a context differs from process to process.
    asked = replace(options, context=None)
    content = (name, own_digest(), backend.capabilities.key, repr(backend.capabilities), repr(asked))
    return hashlib.sha256("\0".join(content).encode()).hexdigest()


def _needed(partition: Partition, backend: Backend, options: Options, way: Quantised) -> Iterator[Function]:
    """Yield the functions that the first start of a partition compiles: those that it would time."""
    try:
        _, alternatives = lowered(partition, backend.capabilities, options, way)
    except DelegateError:
        return  # it would run on the CPU
    for node in KeptChoices.of(backend.capabilities, backend.cache, options).allowed(alternatives):
        for candidate in node:
            yield from (function_of(launch) for launch in candidate.launches)


def _most_frequent(partitions: Iterable[Iterable[Function]]) -> list[Function]:
    """All functions, those that the most partitions need first: an early end then leaves the rare ones."""
    uses = Counter[Function]()
    for functions in partitions:
        uses.update(set(functions))
    # Ties are broken by the text, so that every run forms the same batches.
    return [function for function, _ in sorted(uses.items(), key=lambda one: (-one[1], one[0].identity))]
