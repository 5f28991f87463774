"""What Python and compiled loops say to each other about stored chunks."""

__all__ = ["BLOSC", "DONE", "LEFT", "MISSING", "OTHER", "RAW", "READ", "REDUCE", "STORE", "ZSTD"]

RAW, BLOSC, ZSTD = range(3)
"""How chunks are encoded."""

LEFT, DONE, MISSING = range(3)
"""What became of a chunk: left to Python, done, or not stored at all."""

READ, REDUCE, STORE, OTHER = range(4)
"""What is done next: see `ziggurat._jit_perform`; Python does what is another thing."""
