"""The dask graph of a plan: a plain dict whose tasks are small records, and whose edges are the grids' arithmetic."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

from ziggurat.cascade import Record, Work
from ziggurat.planning import Plan, Task
from ziggurat.stages import Stage
from ziggurat.tasks import run_task

if TYPE_CHECKING:
    from dask.delayed import Delayed

__all__ = ["Graph", "Told", "Wanted", "every", "make_delayed", "make_graph", "run_in_graph"]

type Wanted = Callable[[Task], bool]
type RunInGraph = Callable[[Work, Task, list[Any]], Record]


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
    work: Work, plan: Plan, wanted: Wanted = every, run: RunInGraph = run_in_graph
) -> tuple[Graph, list[Any]]:
    """Return the tasks as a plain graph, and the keys of their records.

    A task waits for the tasks of the stage before that write what it reads: those that the grids' arithmetic names
    in a full rebuild, all of them in a regional one. What all tasks share is one node, sent to each worker once.
    """
    token = uuid4().hex
    shared = f"ziggurat.arrays-{token}"
    graph = Graph(token)
    graph[shared] = work
    keys: list[Any] = []
    barrier: list[Any] = []
    before = ""
    for i, stage in enumerate(plan.stages):
        name = _name(stage, token)
        found = []
        for task in filter(wanted, plan.tasks(i)):
            if plan.is_regional or not i:
                needed: list[Any] = barrier
            else:
                needed = [key for index in plan.waits(task) if (key := (before, *index)) in graph]
            found.append((name, *task.index))
            graph[found[-1]] = (run, shared, task, needed)
        if plan.is_regional:
            barrier = [f"ziggurat.done-{name}"]
            graph[barrier[0]] = (_done, found)
        keys += found
        before = name
    return graph, keys


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
