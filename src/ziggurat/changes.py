"""Finding what changed: marks that any process leaves, fingerprints of level 0, and the journal of a running job."""

import hashlib
import json
import logging
import math
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from ziggurat.chunkgrid import ChunkGrid
from ziggurat.errors import LockError, StoreError
from ziggurat.grid import Level
from ziggurat.planning import Plan, Task
from ziggurat.regions import Boxes
from ziggurat.sidecar import PREFIX, Sidecar, local_directory, stored_units

if TYPE_CHECKING:
    import zarr

    from ziggurat.cascade import Record

__all__ = ["Fingerprints", "Journal", "add_mark", "changed_boxes", "forget_marks", "locked", "read_marks", "task_name"]

logger = logging.getLogger(__name__)

_FINGERPRINTS = "fingerprints.npz"
_HEADER = "journal/plan.json"


@contextmanager
def locked(array: "zarr.Array[Any]", timeout_s: float, name: str = "lock") -> Iterator[None]:
    """Hold the pyramid of level 0 `array`, or what else `name` stands for, where it lies on a local file system.

    The operating system lets go of the lock when the process dies.

    Raises
    ------
    LockError
        When another call holds it for longer than `timeout_s`.
    """
    directory = local_directory(array)
    if directory is None or array.read_only:
        yield
        return
    path = directory / PREFIX / name
    path.parent.mkdir(exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=timeout_s)
    except Timeout:
        raise LockError(
            f"another call has held the pyramid of {directory} for over {timeout_s:g} s: wait for it, or raise "
            "lock_timeout_s"
        ) from None
    try:
        yield
    finally:
        lock.release()


def add_mark(array: "zarr.Array[Any]", boxes: Boxes) -> None:
    """Leave a record that `boxes` of level 0 changed, under a key of its own."""
    Sidecar(array).write(f"marks/{uuid4().hex}.json", json.dumps(boxes.tolist()).encode())


def read_marks(array: "zarr.Array[Any]") -> tuple[list[str], Boxes]:
    """Return the names of all marks, and their boxes."""
    sidecar = Sidecar(array)
    names = sidecar.names("marks")
    contents = sidecar.read_all(names)
    boxes = [box for content in contents.values() for box in json.loads(content)]
    return list(contents), np.array(boxes, np.int64).reshape(-1, array.ndim, 2)


def forget_marks(array: "zarr.Array[Any]", names: Iterable[str]) -> None:
    """Remove the marks that a rebuild has honoured."""
    Sidecar(array).delete_all(names)


@dataclass(frozen=True, slots=True, eq=False)
class Fingerprints:
    """Number, size and stamp of each stored write unit of level 0, at one time."""

    rows: NDArray[np.int64]

    @classmethod
    def take(cls, array: "zarr.Array[Any]") -> "Fingerprints":
        """List the stored objects of `array`."""
        return cls(stored_units(array))

    @classmethod
    def load(cls, array: "zarr.Array[Any]") -> "Fingerprints | None":
        """Return what the last rebuild saw; None where no rebuild left anything."""
        content = Sidecar(array).read(_FINGERPRINTS)
        if content is None:
            return None
        with np.load(BytesIO(content)) as file:
            # Units are numbered on the grid: another shape or unit makes the numbers meaningless.
            if file["grid"].tolist() != _grid_of(array):
                return None
            return cls(file["rows"])

    def save(self, array: "zarr.Array[Any]") -> None:
        """Leave the fingerprints beside the array, in one compact object."""
        content = BytesIO()
        np.savez_compressed(content, rows=self.rows, grid=np.array(_grid_of(array)))
        Sidecar(array).write(_FINGERPRINTS, content.getvalue())


def _grid_of(array: "zarr.Array[Any]") -> list[list[int]] | list[int]:
    axes = ChunkGrid.of(array).axes
    if all(axis.is_regular for axis in axes):
        return [list(array.shape), [axis.size for axis in axes]]
    return [edge for axis in axes for edge in (*axis.starts, axis.n)]


def changed_boxes(before: Fingerprints, now: Fingerprints, level: Level) -> Boxes:
    """Return the write units of `level` that were set, replaced or deleted between two fingerprints."""
    rows = np.concatenate([before.rows, now.rows])
    _, first, count = np.unique(rows, axis=0, return_index=True, return_counts=True)
    numbers = np.unique(rows[first[count == 1], 0])
    index = (
        np.stack(np.unravel_index(numbers, level.grid), axis=1) if len(numbers) else np.zeros((0, len(level.grid)), int)
    )
    return np.stack([np.stack(a.bounds(index[:, i]), axis=1) for i, a in enumerate(level.units.axes)], axis=1)


NOTED_AFTER_S = 2.0
"""Seconds of a run before its finished tasks are recorded."""


class Journal:
    """The finished tasks of one plan, one small object each, so that a later call does just the rest.

    Parameters
    ----------
    array : zarr.Array
        Level 0.
    plan : Plan
        The plan that is run.
    """

    def __init__(self, array: "zarr.Array[Any]", plan: Plan) -> None:
        self.sidecar = Sidecar(array)
        self.header = _header(plan)
        self.started_s = time.time()
        self.early: list[str] = []

    def start(self) -> set[str]:
        """Forget what earlier runs did, and begin: no task is finished."""
        self.clear()
        self.sidecar.write(_HEADER, json.dumps(self.header).encode())
        return set()

    def resume(self) -> set[str]:
        """Return the finished tasks of the interrupted run of the same plan.

        Raises
        ------
        StoreError
            When the interrupted run had another plan.
        """
        found = self.sidecar.read(_HEADER)
        if found is None:
            return self.start()
        before = json.loads(found)
        differing = [key for key in self.header if self.header[key] != before.get(key)]
        if differing:
            said = "; ".join(f"{key} was {before.get(key)}, is {self.header[key]}" for key in differing)
            raise StoreError(f"the interrupted run cannot be resumed: {said}. Ask for the same, or run without resume")
        self.started_s = -math.inf  # what was interrupted once may be again, before those seconds are over
        done = {name.rpartition("/")[2] for name in self.sidecar.names("journal/done")}
        logger.info("resuming: %d tasks are done", len(done))
        return done

    def note(self, task: "Task | Record") -> None:
        """Record that a task is done; those of the first seconds with the first one after them, if there is one.

        An object per task is a twentieth of the work of a short run, which is done again as quickly.
        """
        self.early.append(task_name(task))
        if time.time() - self.started_s >= NOTED_AFTER_S:
            self.flush()

    def flush(self) -> None:
        """Record what is not recorded yet."""
        while self.early:
            self.sidecar.write(f"journal/done/{self.early.pop()}", b"1")

    def clear(self) -> None:
        """Remove all records."""
        self.sidecar.delete(_HEADER)
        self.sidecar.clear("journal")


def task_name(task: "Task | Record") -> str:
    """Return a name for a task, or for the record of one, that is unique in its plan."""
    return f"{task.stage}-{'.'.join(map(str, task.index))}"


def _header(plan: Plan) -> dict[str, Any]:
    regions = b"".join(d.boxes.tobytes() for d in plan.dirty) if plan.dirty is not None else b"everything"
    return {
        "method": plan.method,
        "nodata": repr(plan.steps[0].nodata) if plan.steps else "None",
        "levels": [[level.name, str(level.shape), str(level.unit), str(level.dtype)] for level in plan.levels],
        "geometry": [repr(step.edges) for step in plan.steps],
        "regions": hashlib.sha256(regions).hexdigest(),
        "stages": [json.loads(json.dumps(asdict(stage))) for stage in plan.stages],
    }
