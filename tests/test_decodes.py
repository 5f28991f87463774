"""How often a plan says that chunks are decoded: what counting all cuts says, without it where none parts a chunk."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ziggurat import decodes
from ziggurat.decodes import decodes_along
from ziggurat.geometry import infer_edges
from ziggurat.grid import Level
from ziggurat.steps import Step


def step_of(n, m, chunk, unit, method="mean"):
    levels = [Level("0", (n,), np.dtype("u1"), (chunk,), (chunk,)), Level("1", (m,), np.dtype("u1"), (unit,), (unit,))]
    return Step(*levels, infer_edges((n,), (m,)), method)


def counted(step, block, piece):
    """Decode all chunks of all windows, cut by cut."""
    (edge,), (halo,), chunk = step.edges, step.halos, step.source.chunk[0]
    size = max(1, block // step.target.unit[0]) * step.target.unit[0] if block < edge.m else edge.m
    n_decodes = 0
    for start in range(0, edge.m, size):
        for a in range(start, min(edge.m, start + size), piece):
            first, stop = edge.span(a, min(edge.m, start + size, a + piece))
            first, stop = max(0, first - halo), min(edge.n, stop + halo)
            n_decodes += (stop - 1) // chunk - first // chunk + 1
    return max(1.0, n_decodes / ((stop - 1) // chunk + 1))


@given(
    m=st.integers(1, 40),
    more=st.integers(0, 90),
    chunk=st.integers(1, 12),
    unit=st.integers(1, 12),
    n_units=st.integers(1, 5),
    piece=st.integers(1, 40),
    method=st.sampled_from(["mean", "gaussian"]),
)
def test_decodes_are_counted(m, more, chunk, unit, n_units, piece, method):
    step = step_of(m + more, m, chunk, unit, method)
    block = min(m, unit * n_units)
    assert decodes_along(step, (block,), (piece,), 0) == counted(step, block, piece)


@pytest.mark.parametrize(("block", "piece"), [(16, 16), (48, 16), (48, 48), (1 << 40, 16), (1 << 40, 1 << 40)])
def test_cuts_between_chunks_are_not_looked_at(block, piece, monkeypatch):
    monkeypatch.setattr(decodes, "_cuts", None)
    assert decodes_along(step_of(1 << 40, 1 << 39, 32, 16), (block,), (piece,), 0) == 1.0
