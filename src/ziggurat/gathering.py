"""How a regional rebuild reads: units whose sources share a shard are rebuilt together, from one partial read of it.

The cascade reads what these functions say, and a plan counts its requests by them. Pure arithmetic.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from ziggurat.boxes import Box, cut, intersect, n_pixels
from ziggurat.dirty import dirty_units
from ziggurat.grid import Level, Shape
from ziggurat.regions import Boxes, as_box
from ziggurat.stages import Stage, Step

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


def bundles(step: Step, stage: Stage, box: Box, dirty: Boxes) -> Iterator[Bundle]:
    """Yield all write units in `box`, a task of the single-level `stage`, that hold `dirty` pixels."""
    bounds = np.array(box)
    inside = np.stack([np.maximum(dirty[:, :, 0], bounds[:, 0]), np.minimum(dirty[:, :, 1], bounds[:, 1])], axis=2)
    units = dirty_units(step, inside)
    grid = step.target.units.grouped(stage.blocks[0])
    places = zip(*(axis.find(units.units[:, i, 0]) for i, axis in enumerate(grid.axes)), strict=True)
    blocks: dict[tuple[int, ...], list[int]] = {}
    for i, index in enumerate(places):
        blocks.setdefault(index, []).append(i)
    single: list[Bundle] = []
    for index, members in blocks.items():
        block = intersect(box, grid.box(index))
        if len(members) == prod(map(len, step.target.units.meeting(block))) and not units.is_patched[members].any():
            yield Bundle((block,), ((),))
        else:
            single += [Bundle((as_box(units.units[i]),), (tuple(map(as_box, units.patches(i))),)) for i in members]
    yield from _joined(step, stage, single)


def _joined(step: Step, stage: Stage, single: list[Bundle]) -> Iterator[Bundle]:
    """Join units whose windows begin in one shard of the source, as far as they fit in one block and one read."""
    if not step.source.is_sharded:
        yield from single
        return
    room, read = prod(stage.blocks[0]), _read_pixels(step, stage)
    found: list[Bundle] = []
    n_units, n_read = 0, 0
    last: Shape = ()
    for bundle in sorted(single, key=lambda b: _first_unit(step, b.targets[0][1])):
        unit, window, place = _size(step, bundle)
        if found and (place != last or n_units + unit > room or n_read + window > read):
            yield _one(found)
            found, n_units, n_read = [], 0, 0
        found.append(bundle)
        n_units, n_read, last = n_units + unit, n_read + window, place
    if found:
        yield _one(found)


def _size(step: Step, bundle: Bundle) -> tuple[int, int, Shape]:
    """Return the pixels of the bundle's units and of its windows, and the source's unit in which they begin."""
    windows = sum(n_pixels(step.window(target)) for _, target in bundle.targets)
    return sum(map(n_pixels, bundle.units)), windows, _first_unit(step, bundle.targets[0][1])


def _one(found: Sequence[Bundle]) -> Bundle:
    return Bundle(tuple(u for b in found for u in b.units), tuple(p for b in found for p in b.patches))


def _first_unit(step: Step, target: Box) -> Shape:
    return step.source.index_of(step.window(target))


def _read_pixels(step: Step, stage: Stage) -> int:
    """Return the pixels that one scattered read may have: zarr is told each by its coordinates, twice over."""
    per_pixel = step.source.dtype.itemsize + 16 * len(step.edges)
    return step.window_bytes(stage.piece) // per_pixel


def batches(step: Step, stage: Stage, targets: Sequence[tuple[int, Box]]) -> Iterator[list[tuple[int, Box]]]:
    """Share `targets` out to reads: of many windows that lie near one another, or of one alone."""
    if not step.source.is_sharded:
        yield from ([t] for t in targets)
        return
    most, batch, n = _read_pixels(step, stage), list[tuple[int, Box]](), 0
    for target in sorted(targets, key=lambda t: _first_unit(step, t[1])):
        size = n_pixels(step.window(target[1]))
        if batch and n + size > most:
            yield batch
            batch, n = [], 0
        batch.append(target)
        n += size
    if batch:
        yield batch


def n_requests(step: Step, stage: Stage, box: Box, dirty: Boxes | None) -> int:
    """Return the requests of one task of a regional rebuild, at most: gets of source and target, and sets."""
    assert dirty is not None
    total = 0
    for bundle in bundles(step, stage, box, dirty):
        total += sum(1 for patches in bundle.patches if patches)
        total += sum(prod(map(len, step.target.units.meeting(unit))) for unit in bundle.units)
        for batch in batches(step, stage, bundle.targets):
            if len(batch) > 1:
                total += n_gets(step.source, [step.window(target) for _, target in batch])
            else:
                # Read in pieces, each on its own.
                total += sum(n_gets(step.source, [step.window(p)]) for p in cut(batch[0][1], stage.piece))
    return total


def n_gets(level: Level, boxes: Sequence[Box]) -> int:
    """Return the requests of one read of all `boxes`: one per chunk or whole shard, two where part of it is read."""
    units = level.units
    if not level.is_sharded:
        return sum(prod(map(len, units.meeting(box))) for box in boxes)
    inside = prod(u // c for u, c in zip(level.unit, level.chunk, strict=True))
    return sum(1 if len(cells) == inside else 2 for cells in cells_by_unit(level, boxes).values())


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
