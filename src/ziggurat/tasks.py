"""Runs one task: all of its box, or the dirty units in it, tree by tree."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ziggurat.blocks import Block, reduce_into
from ziggurat.boxes import Box, corner, n_pixels, shape_of, slices
from ziggurat.cascade import Record, Sink, Walk, Work, ignore, reading, taken_requests
from ziggurat.climbing import walk_of
from ziggurat.forest import Forest
from ziggurat.gathering import Bundle, batches, bundles
from ziggurat.handle import Handle
from ziggurat.planning import Task
from ziggurat.policy import counted_retries
from ziggurat.regions import meeting
from ziggurat.runtime import zarr_settings

__all__ = ["run_task"]


def _go_on(so_far: Record) -> None:
    """Let a task go on."""


def run_task(work: Work, task: Task, pulse: Callable[[Record], None] = _go_on) -> Record:
    """Build the task's box of the last level of its stage and all that lies below it, or what is dirty of it.

    `pulse` is told before each block is written what was done so far, and raises where the work is to stop.
    """
    work.expect()
    with zarr_settings(work.handles[0].settings), counted_retries() as retries:
        walk = walk_of(work, task, retries, pulse)
        if task.dirty is None:
            walk.build(walk.stage.last, task.box, ignore)
        else:
            forest = Forest.of(work.steps, walk.stage, task.box, task.dirty)
            for i in reversed(range(len(forest.units))):
                _rebuild(walk, forest, i, forest.roots(i), ignore)
        walk.leave()
    return replace(walk.record(), requests=taken_requests(work))


def _rebuild(walk: Walk, forest: Forest, i: int, which: NDArray[Any], sink: Sink) -> None:
    """Rebuild units of the stage's level `i` and the dirty ones below; `sink` gets their boxes and pixels."""
    k = walk.stage.first + i
    blocks, left = forest.blocks(i, which)
    for block in blocks:
        walk.build(k, block, sink)
    if i == 0:
        for bundle in bundles(forest, left):
            _rebuild_bundle(walk, k, bundle, sink)
        return
    for unit in left:
        box, patches = forest.box(i, unit), forest.patches(i, unit)
        pixels = walk.memory(k, shape_of(box))
        if patches:
            pixels = _stored(walk, k, box, pixels)
        _rebuild(walk, forest, i - 1, forest.children(i, unit), _receiver(walk, k, box, patches or (box,), pixels))
        walk.write(k, box, pixels, patches)
        sink(box, pixels)


def _stored(walk: Walk, k: int, unit: Box, room: NDArray[Any]) -> NDArray[Any]:
    """Read a unit that is there already, into `room` if that can be."""
    pixels = walk.work.handles[k].read(unit, room)
    walk.bytes_read += pixels.nbytes
    return pixels


def _receiver(walk: Walk, k: int, unit: Box, targets: Sequence[Box], pixels: NDArray[Any]) -> Sink:
    """Return what reduces a unit of the level below into the `targets` of a `unit` of level `k`."""
    step, origin, boxes = walk.work.steps[k - 1], corner(unit), np.array(targets)

    def receive(child: Box, found: NDArray[Any]) -> None:
        for part in meeting(boxes, step.sent(child)):
            window = step.window(part)
            source = found[slices(window, corner(child))]
            reduce_into(step, source, corner(window), part, pixels[slices(part, origin)])

    return receive


def _rebuild_bundle(walk: Walk, k: int, bundle: Bundle, sink: Sink) -> None:
    """Rebuild units of the first level of a stage together."""
    if len(bundle.units) == 1 and not bundle.patches[0]:
        walk.build(k, bundle.units[0], sink)
        return
    step = walk.work.steps[k - 1]
    blocks = _rooms(walk, k, bundle.units)
    for i, (unit, patches) in enumerate(zip(bundle.units, bundle.patches, strict=True)):
        if patches:
            blocks[i] = _stored(walk, k, unit, blocks[i])
    for batch in batches(step, walk.stage, bundle.targets):
        places = [blocks[i][slices(target, corner(bundle.units[i]))] for i, target in batch]
        _read_batch(walk, k, [target for _, target in batch], places)
    for unit, block, patches in zip(bundle.units, blocks, bundle.patches, strict=True):
        walk.write(k, unit, block, patches)
        sink(unit, block)


def _rooms(walk: Walk, k: int, boxes: Sequence[Box]) -> list[NDArray[Any]]:
    """Return room for several boxes of level `k` at once."""
    ends = list(accumulate(map(n_pixels, boxes)))
    room = walk.memory(k, (ends[-1],))
    return [room[end - n_pixels(box) : end].reshape(shape_of(box)) for end, box in zip(ends, boxes, strict=True)]


def _read_batch(walk: Walk, k: int, targets: Sequence[Box], places: Sequence[NDArray[Any]]) -> None:
    """Compute `targets` of level `k` from windows that are read together."""
    step, source = walk.work.steps[k - 1], walk.work.handles[k - 1]
    if len(targets) == 1 or not isinstance(source, Handle):
        for target, place in zip(targets, places, strict=True):
            block = Block(step, target, place)
            walk.read(block)
            block.settle()
        return
    windows = [step.window(target) for target in targets]
    with reading(source.level, windows[0]):
        found = source.read_many(windows)
    for window, pixels, target, place in zip(windows, found, targets, places, strict=True):
        walk.bytes_read += pixels.nbytes
        reduce_into(step, pixels, corner(window), target, place)
