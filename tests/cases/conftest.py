import itertools

import pytest
from helpers import FORMATS, STORES, Way

# Each format, kind of store and mode twice at least, and each format with both kinds of store.
FEW = [
    ("v3", "memory", "numpy"),
    ("v3", "local", "dask-units"),
    ("v3-sharded", "memory", "dask-units"),
    ("v3-sharded", "local", "auto"),
    ("v2", "memory", "auto"),
    ("v2", "local", "numpy"),
    ("v2", "local", "dask"),
    ("v3-sharded", "local", "dask"),
]


@pytest.fixture(params=itertools.product(FORMATS, STORES, ("numpy", "dask-units", "auto")), ids="-".join)
def way(request, tmp_path):
    """Every format, kind of store and mode."""
    return Way(*request.param, tmp_path)


@pytest.fixture(params=FEW, ids="-".join)
def few_ways(request, tmp_path):
    """For tests that have many parameters of their own."""
    return Way(*request.param, tmp_path)
