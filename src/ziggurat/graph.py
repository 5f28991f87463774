"""The dask graph of a plan: a plain dict whose tasks are small records, and whose edges are the grids' arithmetic."""

from collections.abc import Callable
from itertools import batched
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

from ziggurat.cascade import Record, Work
from ziggurat.grid import Shape
from ziggurat.planning import Plan, Task
from ziggurat.stages import Stage
from ziggurat.tasks import run_task

if TYPE_CHECKING:
    from dask.delayed import Delayed

__all__ = ["Graph", "Told", "Wanted", "every", "make_delayed", "make_graph", "run_in_graph"]

type Wanted = Callable[[Task], bool]
type RunInGraph = Callable[[Work, Any, list[Any]], Any]

ENOUGH_TASKS, FULL_TASK_BYTES = 16, 128 << 20
"""What a thread of a cluster is given at least, so that all end together, and the bytes that tasks read together.

A scheduler, its client and a worker take some 10 ms for each task: with two workers, a third of a task of 32 MiB.
"""


class Told(Protocol):
    """What is told how far tasks are; from any thread."""

    def so_far(self, record: Record) -> None:
        """Hear what a task has done by now."""

    def done(self, record: Record) -> None:
        """Hear what a finished task has done."""


class Graph(dict[Any, Any]):
    """A graph that dask identifies by its token: hashing 10,000 tasks would take it seconds."""

    def __init__(self, token: str) -> None:
        from dask.base import normalize_token

        normalize_token.register(Graph, _token_of)
        self.token = token

    def __reduce__(self) -> tuple[type[dict[Any, Any]], tuple[dict[Any, Any]]]:
        return dict, (dict(self),)


def _token_of(graph: Graph) -> str:
    return graph.token


def every(task: Task) -> bool:
    """Want all tasks."""
    return True


def run_in_graph(work: Work, task: Task, needed: list[Any]) -> Record:
    """Run a task; `needed` stands for the tasks that it waits for."""
    return run_task(work, task)


def make_graph(
    work: Work, plan: Plan, wanted: Wanted = every, run: RunInGraph = run_in_graph, n_threads: int | None = None
) -> tuple[Graph, list[Any]]:
    """Return the tasks as a plain graph, and the keys of their records.

    A task waits for the tasks of the stage before that write what it reads: those that the grids' arithmetic names
    in a full rebuild, all of them in a regional one. What all tasks share is one node, sent to each worker once.

    For the `n_threads` of a cluster (0: nobody knows yet) `run` gets several neighbouring tasks at once, a tuple, where
    they are small and enough remain.
    """
    token = uuid4().hex
    shared = f"ziggurat.arrays-{token}"
    graph = Graph(token)
    graph[shared] = work
    keys: list[Any] = []
    barrier: list[Any] = []
    before: dict[Shape, Any] = {}
    for i, stage in enumerate(plan.stages):
        name = _name(stage, token)
        tasks = list(filter(wanted, plan.tasks(i)))
        owners: dict[Shape, Any] = {}
        for group in batched(tasks, _at_once(plan, stage, len(tasks), n_threads)):
            if plan.is_regional or not i:
                needed: list[Any] = barrier
            else:
                waits = (index for task in group for index in plan.waits(task))
                needed = list(dict.fromkeys(before[index] for index in waits if index in before))
            key = (name, *group[0].index)
            graph[key] = (run, shared, group[0] if n_threads is None else group, needed)
            owners.update((task.index, key) for task in group)
            keys.append(key)
        if plan.is_regional:
            barrier = [f"ziggurat.done-{name}"]
            graph[barrier[0]] = (_done, list(dict.fromkeys(owners.values())))
        before = owners
    return graph, keys


def _at_once(plan: Plan, stage: Stage, n_tasks: int, n_threads: int | None) -> int:
    """Return how many tasks are run as one."""
    if not n_threads:
        return 1
    task_bytes = max(1, plan.steps[stage.first - 1].source.nbytes // stage.n_tasks)
    return max(1, min(n_tasks // (ENOUGH_TASKS * n_threads), FULL_TASK_BYTES // task_bytes))


def _name(stage: Stage, token: str) -> str:
    """Return what dask's dashboard groups tasks by: a first word, as further ones may hold no digits there."""
    levels = f"level{stage.first}" if stage.first == stage.last else f"level{stage.first}to{stage.last}"
    return f"ziggurat.{levels}-{token}"


def _done(records: list[Record]) -> None:
    """Stand for all tasks of a stage."""


def make_delayed(work: Work, plan: Plan, finish: Callable[[list[Record]], Any]) -> "Delayed":
    """Return the work as one dask collection; its value is what `finish` makes of the tasks' records."""
    from dask.delayed import Delayed

    graph, keys = make_graph(work, plan)
    name = f"ziggurat.report-{uuid4().hex}"
    return Delayed(name, {**graph, name: (finish, list(keys))})
