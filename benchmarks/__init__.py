"""Benchmarks: `make bench`, or `python -m benchmarks --help`, from the root of the repository.

Each is a module of its own, `python -m benchmarks.NAME --help`, that leaves every single run in `results/NAME.json`;
`python -m benchmarks.results` composes RESULTS.md and the charts of what is there. Nothing here is part of the
installed package.
"""
