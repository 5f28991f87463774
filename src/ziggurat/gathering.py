"""How a regional rebuild reads: units whose sources share a shard are rebuilt together, from one partial read of it.

The cascade reads what these functions say, and a plan counts its requests by them. Pure arithmetic.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from ziggurat.boxes import Box, cut, intersect, n_pixels
from ziggurat.forest import Forest
from ziggurat.geometry import own
from ziggurat.grid import Level, Shape, ceil_div, cut_units
from ziggurat.stages import Stage
from ziggurat.steps import Step

__all__ = ["Bundle", "batches", "bundles", "cells_by_unit", "n_gets", "n_requests"]


@dataclass(frozen=True, slots=True)
class Bundle:
    """Write units that are rebuilt together.

    Attributes
    ----------
    units : tuple of Box
        The units; a single one may be a block of several, all of it dirty.
    patches : tuple of tuple of Box
        What is computed of each, where the rest of it is read; nothing where all of it is computed.
    """

    units: tuple[Box, ...]
    patches: tuple[tuple[Box, ...], ...]

    @property
    def targets(self) -> list[tuple[int, Box]]:
        """The boxes to compute, each with the number of its unit."""
        pairs = enumerate(zip(self.units, self.patches, strict=True))
        return [(i, target) for i, (unit, patches) in pairs for target in patches or (unit,)]


def bundles(forest: Forest, which: Iterable[int]) -> Iterator[Bundle]:
    """Share units of the first level of a stage out to those that are rebuilt together."""
    units = [Bundle((forest.box(0, unit),), (forest.patches(0, unit),)) for unit in which]
    yield from _joined(forest.steps[0], forest.stage, units)


def _joined(step: Step, stage: Stage, single: list[Bundle]) -> Iterator[Bundle]:
    """Join units whose windows begin in one shard of the source, as far as they fit in one block and one read."""
    if not step.source.is_sharded:
        yield from single
        return
    room, read = prod(stage.blocks[0]), _read_pixels(step, stage)
    found: list[Bundle] = []
    n_units, n_read = 0, 0
    last: Shape = ()
    sizes = [_size(step, bundle) for bundle in single]
    for i in sorted(range(len(single)), key=lambda i: sizes[i][2]):
        bundle, (unit, window, place) = single[i], sizes[i]
        if found and (place != last or n_units + unit > room or n_read + window > read):
            yield _one(found)
            found, n_units, n_read = [], 0, 0
        found.append(bundle)
        n_units, n_read, last = n_units + unit, n_read + window, place
    if found:
        yield _one(found)


def _size(step: Step, bundle: Bundle) -> tuple[int, int, Shape]:
    """Return the pixels of the bundle's units and of its windows, and the source's unit in which they begin."""
    windows = [step.window(target) for _, target in bundle.targets]
    return sum(map(n_pixels, bundle.units)), sum(map(n_pixels, windows)), step.source.index_of(windows[0])


def _one(found: Sequence[Bundle]) -> Bundle:
    return Bundle(tuple(u for b in found for u in b.units), tuple(p for b in found for p in b.patches))


def _read_pixels(step: Step, stage: Stage) -> int:
    """Return the pixels that one scattered read may have: zarr is told each by its coordinates, twice over."""
    per_pixel = step.source.dtype.itemsize + 16 * len(step.edges)
    return step.window_bytes(stage.piece) // per_pixel


def batches(step: Step, stage: Stage, targets: Sequence[tuple[int, Box]]) -> Iterator[list[tuple[int, Box]]]:
    """Share `targets` out to reads: of many windows that lie near one another, or of one alone."""
    if not step.source.is_sharded or len(targets) == 1:
        yield from ([target] for target in targets)
        return
    windows = [step.window(box) for _, box in targets]
    places = [step.source.index_of(window) for window in windows]
    most, batch, n = _read_pixels(step, stage), list[tuple[int, Box]](), 0
    for i in sorted(range(len(targets)), key=lambda i: places[i]):
        size = n_pixels(windows[i])
        if batch and n + size > most:
            yield batch
            batch, n = [], 0
        batch.append(targets[i])
        n += size
    yield batch


def n_requests(forest: Forest) -> int:
    """Return the requests of one task of a regional rebuild, at most: gets of source and target, and sets."""
    step, stage = forest.steps[0], forest.stage
    total = sum(len(units) + int(units.is_patched.sum()) for units in forest.units)
    reads: list[list[Box]] = []
    for bundle in _all_bundles(forest):
        for batch in batches(step, stage, bundle.targets):
            windows = [step.window(target) for _, target in batch]
            if len(batch) > 1:
                reads.append(windows)
                continue
            # One alone is read block by block, in pieces.
            blocks = cut_units(batch[0][1], step.target, stage.blocks[0]) if not bundle.patches[0] else [batch[0][1]]
            reads += ([step.window(piece)] for block in blocks for piece in cut(block, stage.piece))
    return total + n_gets(step.source, reads)


def _all_bundles(forest: Forest) -> Iterator[Bundle]:
    """Yield what is rebuilt together in the first level, under all roots."""
    waiting = [(i, forest.roots(i)) for i in range(len(forest.units))]
    while waiting:
        i, units = waiting.pop()
        blocks, left = forest.blocks(i, units)
        for block in blocks:
            for step in reversed(forest.steps[1 : i + 1]):
                block = own(step.edges, block)
            yield Bundle((block,), ((),))
        if i:
            waiting += [(i - 1, forest.children(i, unit)) for unit in left]
        else:
            yield from bundles(forest, left)


def n_gets(level: Level, reads: Iterable[Sequence[Box]]) -> int:
    """Return the requests of reads of some boxes each: one per chunk or whole shard, two where part of it is read."""
    units = level.units
    if not level.is_sharded:
        return sum(prod(map(len, units.meeting(box))) for boxes in reads for box in boxes)
    inside = [u // c for u, c in zip(level.unit, level.chunk, strict=True)]
    total = 0
    for boxes in reads:
        if len(boxes) == 1 and level.is_regular:
            cells = [(a // c, ceil_div(b, c)) for (a, b), c in zip(boxes[0], level.chunk, strict=True)]
            whole = prod(max(0, b // n - ceil_div(a, n)) for (a, b), n in zip(cells, inside, strict=True))
            total += 2 * prod(map(len, units.meeting(boxes[0]))) - whole
        else:
            met = cells_by_unit(level, boxes).values()
            total += sum(1 if len(cells) == prod(inside) else 2 for cells in met)
    return total


def cells_by_unit(level: Level, boxes: Sequence[Box]) -> dict[Shape, dict[Shape, list[int]]]:
    """Return the chunks that `boxes` meet, by the write unit that they lie in, each with the numbers of the boxes."""
    found: dict[Shape, dict[Shape, list[int]]] = {}
    units, chunks = level.units, level.chunks
    for i, box in enumerate(boxes):
        for index in product(*units.meeting(box)):
            cells = found.setdefault(index, {})
            for cell in product(*chunks.meeting(intersect(box, units.box(index)))):
                cells.setdefault(cell, []).append(i)
    return found
