"""Benchmarks: `python -m benchmarks.run`, `benchmarks.cold_start` and `benchmarks.plan_scale`.

Run them from the root of the repository. Nothing here is part of the installed package.
"""
