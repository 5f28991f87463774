"""Previews: all levels of a pyramid side by side, at the same physical place."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ziggurat.api import Factors, Regions, changes_of, plan, verify
from ziggurat.boxes import Box
from ziggurat.errors import LevelError, RegionError
from ziggurat.opening import Where, open_pyramid
from ziggurat.places import default_place, panels
from ziggurat.planes import Planes
from ziggurat.pyramid import Pyramid
from ziggurat.regions import Boxes, as_box, as_boxes
from ziggurat.remote import Backend, check_options

if TYPE_CHECKING:
    from ziggurat.drawing import Preview

__all__ = ["preview"]


def preview(
    target: Where | Pyramid,
    *,
    where: Any = None,
    regions: "Regions | str" = None,
    levels: Sequence[int] | None = None,
    dark: bool | None = None,
    method: str = "auto",
    factors: Factors = None,
    nodata: float | int | None = None,
    storage_options: dict[str, Any] | None = None,
    backend: Backend = "fsspec",
) -> "Preview":
    """Draw all levels side by side at the same physical place, so that shifts and wrong methods show.

    Channels are composited, labels have random colours that stay the same, and all levels share the contrast of the
    finest one: its 1st to 99.8th percentile. Of axes that are neither seen nor channels the middle is shown, of time
    the first.

    Parameters
    ----------
    target : path, URL, zarr store, zarr.Group, Pyramid, or sequence of zarr.Array
        The pyramid; arrays are listed finest first.
    where : region, optional
        The place, in any form that an entry of `regions` may have: pixels of level 0, or physical units, as in
        ``{"y": (10.0, 12.5)}``. By default where neighbouring pixels differ most, or around the first region.
    regions : iterable of tuple, or {"touched", "marked", "changed", "stale"}, optional
        As in `ziggurat.consolidate`: they are outlined in level 0, and in every other level the write units that depend
        on them. ``"stale"`` verifies the pyramid and outlines the write units that are stale now.
    levels : sequence of int, optional
        Numbers of the levels that are shown; all by default.
    dark : bool, optional
        Light text on black, or the contrary; by default as matplotlib's style says.
    method, factors, nodata, storage_options, backend
        As in `ziggurat.consolidate`; the method tells how far a region reaches.

    Returns
    -------
    matplotlib.figure.Figure
        Which a notebook shows, and ``savefig`` writes.

    Raises
    ------
    ImportError
        When matplotlib is not installed: ``pip install 'ziggurat[plot]'``.
    RegionError, LevelError
        When the place or a region leaves level 0, or there is no such level.

    Examples
    --------
    >>> import zarr
    >>> levels = [zarr.create_array({}, shape=(n, n), chunks=(16, 16), dtype="uint8") for n in (64, 32)]
    >>> figure = preview(levels, regions=[(slice(0, 9), 5)])
    >>> [axes.get_title() for axes in figure.axes]
    ['the whole, from level 0', 'level 0: 64 x 64', 'level 1: 32 x 32']
    """
    try:
        from ziggurat.drawing import draw
    except ImportError as error:
        raise ImportError(f"a preview is drawn with matplotlib ({error}): pip install 'ziggurat[plot]'") from error
    if isinstance(target, Pyramid):
        check_options(target, storage_options, backend)
        pyramid = target
    else:
        pyramid = open_pyramid(target, storage_options=storage_options, backend=backend)
    shown = _shown(pyramid, levels)
    options: dict[str, Any] = {"method": method, "factors": factors, "nodata": nodata}
    touched, stale = _changes(pyramid, regions, options)
    place = _place(pyramid, where) if where is not None else default_place(pyramid, _around(pyramid, touched, stale))
    is_clean = regions is not None and not len(touched) and not any(map(len, stale))
    title = f"{pyramid.name or pyramid.where}{': nothing to rebuild' if is_clean else ''}"
    return draw(title, panels(pyramid, place, shown, touched, stale), _units(pyramid), dark)


def _shown(pyramid: Pyramid, levels: Sequence[int] | None) -> list[int]:
    numbers = range(len(pyramid))
    for k in levels or ():
        if k not in numbers:
            raise LevelError(f"{pyramid.where} has no level {k}: choose from 0 to {len(pyramid) - 1}")
    return list(numbers if levels is None else levels)


def _place(pyramid: Pyramid, where: Any) -> Box:
    boxes = pyramid.boxes([where])
    if not len(boxes):
        raise RegionError(f"where {where!r} holds no pixel of {pyramid.where}: name a larger place")
    return as_box(boxes[0])


def _changes(pyramid: Pyramid, regions: Any, options: dict[str, Any]) -> tuple[Boxes, list[Boxes]]:
    """Return what changed in level 0, and per level the write units that depend on it, or are stale."""
    none = as_boxes([], len(pyramid.levels[0].shape))
    stale = [none] * len(pyramid)
    if regions is None:
        return none, stale
    if isinstance(regions, str) and regions == "stale":
        for k, check in enumerate(verify(pyramid, progress=False, **options).levels, 1):
            stale[k] = as_boxes([pyramid.levels[k].units.box(i) for i in check.stale], len(pyramid.levels[0].shape))
        return none, stale
    boxes, _ = changes_of(pyramid, regions)
    touched = as_boxes([pyramid.levels[0].box], len(pyramid.levels[0].shape)) if boxes is None else boxes
    made = plan(pyramid, regions=[as_box(b) for b in touched], **options)
    if not made.is_regional:
        return touched, [none, *(as_boxes([level.box], len(level.shape)) for level in pyramid.levels[1:])]
    for k, dirty in enumerate(made.dirty or (), 1):
        stale[k] = dirty.boxes if dirty.units is None else dirty.units.units
    return touched, stale


def _around(pyramid: Pyramid, touched: Boxes, stale: Sequence[Boxes]) -> Box | None:
    """Return the first region, or where in level 0 the first stale unit lies."""
    for k, boxes in enumerate((touched, *stale[1:])):
        if len(boxes):
            axes = zip(as_box(boxes[0]), pyramid.levels[0].shape, pyramid.levels[k].shape, strict=True)
            return tuple((start * n // m, -(-stop * n // m)) for (start, stop), n, m in axes)
    return None


def _units(pyramid: Pyramid) -> tuple[str, str]:
    """Return what is written along the axes that run right and down."""
    planes = Planes.of(pyramid)
    units = {axis.name: axis.unit for axis in pyramid.image.axes} if pyramid.image else {}
    names = [pyramid.axes[i] if i is not None else "" for i in (planes.x, planes.y)]
    has_scale = pyramid.levels[0].scale is not None
    texts = [f"{name} [{units.get(name) or ('' if has_scale else 'pixels of level 0')}]" for name in names]
    return texts[0].replace(" []", ""), texts[1].replace(" []", "") if names[1] else ""
