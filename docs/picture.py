"""Draws the picture of the README: ``python docs/picture.py`` writes docs/pictures/pyramid.png."""

from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib
import numpy as np
from PIL import Image
from skimage import data

import ziggurat as zg

__all__ = ["draw"]


def draw(path: Path) -> None:
    """Write a preview of Hubble's deep field, which was touched in two places."""
    matplotlib.use("agg")
    pixels = np.moveaxis(data.hubble_deep_field(), -1, 0)
    with TemporaryDirectory() as place:
        pyramid = zg.build(pixels, f"{place}/hubble.zarr", axes="cyx", chunks=(1, 64, 64))
        for region in ((slice(440, 510), slice(690, 760)), (slice(610, 640), slice(480, 510))):
            pyramid.set_array(40, (slice(None), *region))
        figure = zg.preview(pyramid, regions="touched", where={"y": (380, 800), "x": (400, 820)})
        buffer = BytesIO()
        figure.savefig(buffer, dpi=72)
    # A palette keeps it small; PNG of the photograph itself would be four times as large.
    Image.open(buffer).convert("RGB").quantize(64, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    draw(Path(__file__).parent / "pictures" / "pyramid.png")
