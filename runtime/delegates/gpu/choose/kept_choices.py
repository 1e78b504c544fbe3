"""Tuning winners of earlier starts, and the short list still to time.

Nothing is compiled or timed here; who times is `runtime.delegates.gpu.choose.tuning`.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from runtime.delegates.gpu.capabilities import Capabilities
from runtime.delegates.gpu.keep.cache import Cache
from runtime.delegates.gpu.layout.source import function_of, kernel_source, parameters_of
from runtime.delegates.gpu.lowering.spec import Candidate
from runtime.delegates.gpu.settings.choices import key_of, parsed
from runtime.delegates.gpu.settings.options import Options
from runtime.errors import DelegateError

_SHORTLIST = {"none": 1, "fast": 2, "exhaustive": 99}
"""Candidates of a node that are compiled and timed, by the option `tuning`; 99 means all. Compiling takes
most of the first start: 0.1 to 0.2 seconds for each function with PoCL."""

_LIGHT_SHARE = {"none": 0.0, "fast": 0.02, "exhaustive": 0.0}
"""Share of the graph's estimated time below which equal nodes together get no second candidate, by the option
`tuning`. Chosen: even a candidate that is a fifth faster would gain less than half a percent there."""

_BYTE_WEIGHT = 8
"""Flops that take about as long as a byte of traffic: about 200 GFLOP/s of a core with AVX-512 against 25
GB/s from memory. It only ranks nodes by weight; larger puts those that copy first."""


@dataclass(frozen=True, slots=True)
class KeptChoices:
    """The tuning winners of earlier starts by the option `tuning`, or only the `given`, as names by keys.

    `made`: the choices of this start, whether they were timed, kept or given.
    """

    device: Capabilities
    cache: Cache
    effort: str
    given: Mapping[str, str] | None = None
    made: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, device: Capabilities, cache: Cache, options: Options) -> "KeptChoices":
        """Open a device's cache, or take the choices in the options. Raises `DelegateError`."""
        given = None if options.choices is None else parsed(options.choices)
        return cls(device, cache, options.tuning, given)

    def shortlist(self, alternatives: Sequence[Sequence[Candidate]]) -> list[list[Candidate]]:
        """Return the allowed candidates; of those that were compared before, the winner alone."""
        return [self.winner(node) or node for node in self.allowed(alternatives)]

    def allowed(self, alternatives: Sequence[Sequence[Candidate]]) -> list[list[Candidate]]:
        """Return the candidates that the option `tuning` allows; one of light nodes, as compiling is slow."""
        keys = [self.key(node) for node in alternatives]
        weights: dict[str, int] = {}
        for key, node in zip(keys, alternatives, strict=True):
            weights[key] = weights.get(key, 0) + weight(node[0])
        light = _LIGHT_SHARE[self.effort] * sum(weights.values())
        most = _SHORTLIST[self.effort]
        return [
            list(node[: most if weights[key] >= light else 1])
            for key, node in zip(keys, alternatives, strict=True)
        ]

    def winner(self, node: Sequence[Candidate]) -> list[Candidate]:
        """Return the winner of an earlier comparison of these candidates; none if there was none.

        Raises `DelegateError` where choices are given and none is for this comparison.
        """
        # One that was alone was never compared: no choice is kept of it, nor demanded of those given.
        name = self.recall(self.key(node)) if len(node) > 1 else None
        found = [candidate for candidate in node if candidate.name == name]
        if not found and name is not None and self.given is not None:
            raise DelegateError(f"gpu delegate: option 'choices': no kernel here is called {name!r}")
        return found

    def key(self, node: Sequence[Candidate]) -> str:
        """Hash device, threads, the option `tuning`, and the candidates' functions and parameters."""
        functions = [
            (c.name, [(function_of(launch).identity, parameters_of(launch)) for launch in c.launches])
            for c in node
        ]
        files = tuple(sorted({launch.instance.source for c in node for launch in c.launches}))
        # `Capabilities.key` does not have the compute units, which the option `threads` lowers.
        content = repr(
            (self.device.key, self.device.compute_units, self.effort, functions, _digest_of(files))
        )
        return hashlib.sha256(content.encode()).hexdigest()

    def recall(self, key: str) -> str | None:
        """Return the winner of an earlier start, or the given one.

        Raises `DelegateError` where choices are given and this one is not among them.
        """
        if self.given is None:
            kept = self.cache.read("tuning", key)
            found = None if kept is None else kept.decode()
        else:
            found = self.given.get(key_of(key))
            if found is None:
                raise DelegateError(
                    f"gpu delegate: option 'choices' has none for {key_of(key)}: they were made for another "
                    "model, device, driver or version, or with other options; leave it out to time them again"
                )
        if found is not None:
            self.note(key, found)
        return found

    def note(self, key: str, winner: str) -> None:
        """Count a winner among the choices of this start."""
        self.made[key_of(key)] = winner

    def remember(self, key: str, winner: str) -> None:
        """Keep a winner for later starts."""
        self.note(key, winner)
        self.cache.write("tuning", key, winner.encode())


_IN_FRONT = ("common.cl", "portable.cl", "portable_opencl.cl", "halves.cl")
"""Files of `kernels/` of which kernels have a part, beside their own."""


@cache
def _digest_of(files: tuple[str, ...]) -> str:
    text = "".join(kernel_source(name) for name in (*_IN_FRONT, *files))
    return hashlib.sha256(text.encode()).hexdigest()


def weight(candidate: Candidate) -> int:
    """Return an estimate of a candidate's time, in flops."""
    return sum(launch.flops + _BYTE_WEIGHT * launch.bytes for launch in candidate.launches)
