"""Chooses the register tile of a product by a small cost model that is fitted to measurements."""

from dataclasses import dataclass
from itertools import islice

from runtime.delegates.gpu.capabilities import Capabilities
from runtime.delegates.gpu.graph.graph import LANES, ceil_div
from runtime.delegates.gpu.graph.parameters import divisor

CACHED_WEIGHTS_BYTES = 256 << 10
"""Bytes of weights that stay in a core's second-level cache while it walks over the pixels. Where a layer has
more, a worker walks over all pixels with one panel before it takes the next. Chosen well below the 1 to 2 MiB
of current server cores, where pixels need room too. Set too large, weights are read from memory again for
every tile of rows; too small, pixels are read again for every panel although the weights would have
stayed."""

_MOST_ROWS = {1: 24, 2: 13, 3: 8, 4: 6, 5: 4, 7: 3}
"""Vectors per row → most rows of a tile, where a register holds 16 floats. Sums, a weight row and an input
value leave two of 32 registers free: with fewer the compiler spills sums to memory."""

_FEW_ROWS = {1: frozenset({1, 2, 3, 4, 6, 8, 12, 16, 20, 24}), 2: frozenset({1, 2, 3, 4, 5, 6, 7, 8, 10, 13})}
"""Vectors per row of such a tile → the rows it may have, or all of the pixels; other widths may have any.
Every tile is a function of its own: with fewer, more sizes share one. By the cost model the convolutions of
nine published networks lose 0.01 % to this, and no layer more than 1.7 %."""

_MOST_ROWS_NARROW = {1: 6}
"""The same where a register holds fewer floats: there are 16 registers of 8, 32 of 4, or a GPU's, and a
vector of the kernels takes several. A tile may have any of these rows."""

_FEWEST_CHAINS = 8
"""Registers of sums that must be in flight to hide the latency of a multiply-add: four cycles on each of two
pipes. A tile with fewer takes as long as one with eight."""

_PANEL_BYTES = 1 << 20
"""Bytes of a panel up to which every tile of rows but the first finds it in a core's second-level cache:
half of what current server cores have, since pixels need room too. Set too large, the panels of deep
products are streamed for every tile; too small, deep products get tall and narrow tiles, whose loads cost a
few per cent."""

_STREAMED_COST = 16.0
"""Cost of a vector of weights from beyond that cache, where a multiply-add costs 1: 64 bytes at 23 GB/s for
each of two cores, as a window of 32 x 250 channels -> 2000 over 42 pixels took it. Loads overlap with
multiply-adds."""

_CLOSE_RATIO = 1.02
"""Costs within this ratio are left to measurement. The model counts what bounds these kernels, so little is
close; `depthwise_conv.py` allows more, as its model sees less. Every further candidate must be compiled:
larger, and the first start takes longer; smaller, and the model's errors stay."""

_LOAD_COST = 0.15
"""Cost of a load of a weight vector or an input value, where a multiply-add costs 1. Fitted to measurements;
larger prefers square tiles."""

_SUM_COST, _UNIT_COST = 4.0, 30.0
"""Cost of a vector of sums that is begun and stored, and of a unit, where a multiply-add costs 1. Fitted to
measurements; larger prefers fewer and larger tiles."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A register tile: `rows` pixels by `columns` channels (a multiple of 16)."""

    rows: int
    columns: int

    @property
    def name(self) -> str:
        """The tile's part of kernel names: m14n32."""
        return f"m{self.rows}n{self.columns}"

    def panels(self, channels: int) -> int:
        """Panels of this width over `channels` outputs."""
        return ceil_div(channels, self.columns)

    def units(self, pixels: int, channels: int) -> int:
        """Tiles over `pixels` rows and `channels` outputs."""
        return ceil_div(pixels, self.rows) * self.panels(channels)

    def order(self, pixels: int, channels: int, weight_bytes: int, phases: int = 1) -> dict[str, int]:
        """Return the order of the tiles as parameters: by panels if a core's cache does not hold all weights.

        `phases`: the number of products that share the panels.
        """
        by_panel = weight_bytes > CACHED_WEIGHTS_BYTES
        inner = phases * ceil_div(pixels, self.rows) if by_panel else self.panels(channels)
        return {"PANEL_OUTER": by_panel, **divisor("INNER_TILES", inner)}


def rank_tiles(
    pixels: int, channels: int, depth: int, workers: int, vector_floats: int, batch: int = 1
) -> list[Tile]:
    """Every sensible tile for `batch` products [pixels, depth] x [depth, channels], the cheapest first.

    `vector_floats`: floats in a register of the device.
    """
    vectors = ceil_div(channels, LANES)
    is_wide = vector_floats >= LANES
    most_rows, few_rows = (_MOST_ROWS, _FEW_ROWS) if is_wide else (_MOST_ROWS_NARROW, {})
    tiles = [
        Tile(rows, LANES * width)
        for width, most in most_rows.items()
        if width <= vectors
        for rows in range(1, min(most, pixels) + 1)
        if rows == pixels or rows in few_rows.get(width, range(most + 1))
    ]
    costs = {tile: _cost(tile, pixels, channels, depth, workers, batch, vector_floats) for tile in tiles}
    return sorted(tiles, key=lambda tile: (costs[tile], -tile.rows))


def best_tiles(pixels: int, channels: int, depth: int, device: Capabilities, batch: int = 1) -> list[Tile]:
    """Return the cheapest tile, and the next one of another width if the model sees no difference."""
    workers, floats = device.compute_units, device.vector_floats
    first, *others = rank_tiles(pixels, channels, depth, workers, floats, batch)
    limit = _CLOSE_RATIO * _cost(first, pixels, channels, depth, workers, batch, floats)
    second = (tile for tile in others if tile.columns != first.columns)
    return [
        first,
        *(t for t in islice(second, 1) if _cost(t, pixels, channels, depth, workers, batch, floats) <= limit),
    ]


def _cost(
    tile: Tile, pixels: int, channels: int, depth: int, workers: int, batch: int, vector_floats: int
) -> float:
    """Half cycles of the busiest worker, times the number of workers: idle workers count as work.

    A cycle is that of a vector of 16 floats, which takes several registers where these are narrower.
    """
    width = tile.columns // LANES
    sums = tile.rows * width
    fewest = ceil_div(_FEWEST_CHAINS * min(vector_floats, LANES), LANES)
    inner = max(sums, fewest) + _LOAD_COST * (tile.rows + width)
    # A tile that has all pixels streams each panel once, whatever a cache holds. 4: weights as float32.
    if tile.rows < pixels and 4 * depth * tile.columns > _PANEL_BYTES:
        inner = max(inner, _STREAMED_COST * width)
    units = batch * tile.units(pixels, channels)
    return ceil_div(units, workers) * workers * (depth * inner + _SUM_COST * sums + _UNIT_COST)
