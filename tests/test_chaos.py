"""Workers are killed at random moments, and the result is right all the same."""

import os
import random
import signal
import time
from math import inf
from threading import Timer

import dask
import pytest
from zarr.storage import LocalStore

import ziggurat as zg
from clusters import ceiling, chunks, cluster, expected, make_image, opened
from ziggurat.events import TaskDone
from ziggurat.testing import SlowStore

pytestmark = pytest.mark.timeout(120)

N_KILLS = 10


class Killer:
    """Kills a random worker after each so many tasks, at a random moment of the tasks that run then."""

    def __init__(self, client, seed, every):
        self.workers = client.cluster.workers
        self.random = random.Random(seed)
        self.every = every
        self.killed = []
        self.events = []
        self.timers = []

    def __call__(self, event):
        self.events.append(event)
        if isinstance(event, TaskDone) and event.n_tasks_done % self.every == 0 and len(self.timers) < N_KILLS:
            self.timers.append(Timer(self.random.uniform(0, 0.1), self.kill))
            self.timers[-1].start()

    def kill(self):
        while True:
            # A nanny whose worker dies while it starts gives up.
            up = [n for n in self.workers.values() if n.process is not None and n.process.status.name == "running"]
            alive = [nanny.pid for nanny in up if nanny.pid and nanny.pid not in self.killed]
            if alive:
                self.killed.append(self.random.choice(alive))
                os.kill(self.killed[-1], signal.SIGKILL)
                return
            time.sleep(0.05)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")
@pytest.mark.parametrize(("seed", "shard"), [(1, None), (2, 64)])
def test_killed_workers(seed, shard, tmp_path, monkeypatch):
    monkeypatch.setattr("ziggurat.stages.ONE_TASK_BYTES", 0)
    monkeypatch.setattr("ziggurat.cluster.PULSE_S", 0.0)
    monkeypatch.setattr("ziggurat.cluster.MAX_PULSES_PER_S", inf)
    # Not whole shards: what overhangs is written blindly all the same.
    size = {"n": 511 if shard else 512, "chunk": 32, "n_levels": 4, "seed": seed, "shard": shard}
    right = expected(tmp_path, **size)
    make_image(tmp_path / "image", **size)
    slow = SlowStore(LocalStore(tmp_path / "image"), 0.005)
    failures = {"distributed.scheduler.allowed-failures": 1000, "distributed.comm.timeouts.connect": "5s"}
    with ceiling(4096), dask.config.set(failures), cluster(silence_logs=50) as client:
        killer = Killer(client, seed, every=2 if shard else 5)
        report = zg.consolidate(opened(slow, 4), mode="dask", client=client, progress=killer)
        for timer in killer.timers:
            timer.join()
    assert len(set(killer.killed)) == N_KILLS
    assert chunks(tmp_path / "image") == right  # whole, and nothing beside it
    # Whatever ran twice is counted once.
    assert [level.n_units for level in report.levels] == [level.n_units_total for level in report.levels]
    assert not zg.verify(opened(tmp_path / "image", 4), mode="numpy").is_stale
    # Nor does progress count twice what a dead worker had told.
    done = [event.n_units for event in killer.events]
    assert done == sorted(done) and done[-1] == report.n_units
