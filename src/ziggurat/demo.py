"""A real picture and its labels, rebuilt and checked: what ``ziggurat demo`` runs."""

import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ziggurat.errors import StoreError, ZigguratError

if TYPE_CHECKING:
    import zarr

__all__ = ["make_image", "make_labels", "run"]

type Pixels = npt.NDArray[Any]

_MARK = ".ziggurat-demo"
_N_LEVELS = 4
_CHUNK, _SHARD = 128, 512


def run(directory: str | Path = "ziggurat-demo", echo: Callable[[object], object] = print) -> Path:
    """Make an image and its labels, build their coarser levels, and check every pixel.

    Parameters
    ----------
    directory
        Made if it is not there. What an earlier demo left in it is made anew.
    echo
        Called with each thing to show.

    Returns
    -------
    pathlib.Path
        The OME-Zarr image.

    Raises
    ------
    StoreError
        If `directory` holds anything and was not made by a demo.
    ModuleNotFoundError
        If scikit-image, where the picture comes from, is not installed.
    ZigguratError
        If a level differs from its reference.
    """
    import ziggurat

    pixels = _retina()
    image = _prepare(Path(directory)) / "retina.zarr"
    labels = make_labels(make_image(image, pixels), _vessels(pixels))
    for path, reduce in ((image, _block_mean), (labels, _block_mode)):
        echo(ziggurat.consolidate(str(path)))
        echo(f"checked: {_check(path, reduce):,} pixels equal a plain numpy reference\n")
    echo(f"The image lies in {image}, its labels in {labels}. Look at it with:")
    has_page = (files("ziggurat") / "static" / "index.html").is_file()
    for verb in ("info", "preview", *(["view"] if has_page else [])):
        echo(f"  {_command()} {verb} {shlex.quote(str(image))}")
    return image


def _command() -> str:
    """Return how to call the command line from where the caller is: an environment may not be activated."""
    if shutil.which("ziggurat"):
        return "ziggurat"
    script = Path(sys.executable).with_name("ziggurat")
    near = script.relative_to(Path.cwd()) if script.is_relative_to(Path.cwd()) else script
    return shlex.quote(str(near)) if script.exists() else f"{shlex.quote(sys.executable)} -m ziggurat.cli"


def make_image(path: Path, pixels: Pixels) -> Path:
    """Write `pixels` (c, y, x) as a new sharded OME-Zarr 0.5 image whose coarser levels are still empty.

    Returns `path`.
    """
    group = _make_levels(path, pixels, ("c", "y", "x"))
    _describe(group, {"multiscales": [_multiscale(path.stem, ("c", "y", "x"))]})
    return path


def make_labels(image: Path, labels: Pixels, name: str = "vessels") -> Path:
    """Write `labels` (y, x) as a new label image of `image`, whose coarser levels are still empty.

    Returns the path of the label image.
    """
    import zarr

    _describe(zarr.open_group(image / "labels", mode="w-"), {"labels": [name]})
    path = image / "labels" / name
    group = _make_levels(path, labels, ("y", "x"))
    label = {"source": {"image": "../../"}}
    _describe(group, {"multiscales": [_multiscale(name, ("y", "x"))], "image-label": label})
    return path


def _retina() -> Pixels:
    try:
        from skimage import data
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "the demo's picture comes from scikit-image, which is not installed; pip install 'ziggurat[demo]'"
        ) from error
    return np.moveaxis(data.retina(), -1, 0)


def _vessels(pixels: Pixels) -> Pixels:
    """Return the dark structures of the green channel, each connected one with its own number."""
    from skimage import filters, measure

    green = pixels[1]
    dark = green < filters.threshold_local(green, block_size=101, offset=6)
    return np.asarray(measure.label(dark)).astype("uint16")


def _prepare(directory: Path) -> Path:
    """Return `directory`, made and marked as ours, without what an earlier demo left."""
    mark = directory / _MARK
    if not mark.exists():
        if directory.exists() and any(directory.iterdir()):
            raise StoreError(f"{directory} exists and was not made by the demo; name another directory")
        directory.mkdir(parents=True, exist_ok=True)
        mark.write_text("Made by `ziggurat demo`, which makes retina.zarr anew each time it runs.\n")
    if (directory / "retina.zarr").exists():
        shutil.rmtree(directory / "retina.zarr")
    return directory


def _make_levels(path: Path, pixels: Pixels, axes: Sequence[str]) -> "zarr.Group":
    import zarr

    group = zarr.create_group(path)
    for level in range(_N_LEVELS):
        shape = tuple(n >> level if axis in "yx" else n for axis, n in zip(axes, pixels.shape, strict=True))
        chunk = tuple(min(_CHUNK, n) if axis in "yx" else 1 for axis, n in zip(axes, shape, strict=True))
        # A shard holds whole chunks, so that of a small level is the level rounded up.
        shard = tuple(min(_SHARD // _CHUNK, -(-n // c)) * c if c > 1 else 1 for n, c in zip(shape, chunk, strict=True))
        group.create_array(
            str(level), shape=shape, chunks=chunk, shards=shard, dtype=pixels.dtype, dimension_names=list(axes)
        )
    finest = group["0"]
    assert isinstance(finest, zarr.Array)
    finest[...] = pixels
    return group


def _describe(group: "zarr.Group", metadata: dict[str, Any]) -> None:
    group.attrs["ome"] = {"version": "0.5"} | metadata


def _multiscale(name: str, axes: Sequence[str]) -> dict[str, Any]:
    """Return OME-Zarr 0.5 metadata in pixels; level k's grid starts half a level-k pixel in, so that levels overlay."""
    types = [{"name": axis, "type": "channel" if axis == "c" else "space"} for axis in axes]
    datasets = []
    for level in range(_N_LEVELS):
        scale = [float(2**level) if axis in "yx" else 1.0 for axis in axes]
        translation = [(factor - 1) / 2 for factor in scale]
        steps = [{"type": "scale", "scale": scale}, {"type": "translation", "translation": translation}]
        datasets.append({"path": str(level), "coordinateTransformations": steps})
    return {"name": name, "axes": types, "datasets": datasets}


def _blocks(pixels: Pixels) -> Pixels:
    """Return the whole 2 x 2 blocks of the last two axes, as a last axis of 4."""
    height, width = (n // 2 for n in pixels.shape[-2:])
    even = pixels[..., : 2 * height, : 2 * width].reshape(*pixels.shape[:-2], height, 2, width, 2)
    return np.moveaxis(even, -3, -2).reshape(*pixels.shape[:-2], height, width, 4)


def _block_mean(pixels: Pixels) -> Pixels:
    """Halve an image: the mean of each block, rounded half to even."""
    return np.rint(_blocks(pixels).mean(axis=-1)).astype(pixels.dtype)


def _block_mode(labels: Pixels) -> Pixels:
    """Halve a label image: the most frequent value of each block, the smallest on a tie."""
    values = np.sort(_blocks(labels), axis=-1)
    votes = (values[..., :, None] == values[..., None, :]).sum(axis=-1)
    return np.take_along_axis(values, votes.argmax(axis=-1)[..., None], axis=-1)[..., 0]


def _check(path: Path, reduce: Callable[[Pixels], Pixels]) -> int:
    """Compare every coarser level with `reduce` applied again and again; return the number of pixels compared."""
    import zarr

    group = zarr.open_group(path, mode="r")
    expected, n_pixels = np.asarray(group["0"]), 0
    for level in range(1, _N_LEVELS):
        expected = reduce(expected)
        n_wrong = int(np.count_nonzero(np.asarray(group[str(level)]) != expected))
        if n_wrong:
            raise ZigguratError(f"level {level} of {path} differs from its reference in {n_wrong} pixels; report this")
        n_pixels += expected.size
    return n_pixels
