"""What Python and compiled loops say to each other about stored chunks."""

__all__ = ["BLOSC", "DONE", "LEFT", "MISSING", "RAW", "ZSTD"]

RAW, BLOSC, ZSTD = range(3)
"""How chunks are encoded."""

LEFT, DONE, MISSING = range(3)
"""What became of a chunk: left to Python, reduced, or not stored at all."""
