// Drawn over the image: the outlines of the tiles in use, and the scale bar.

const SYMBOLS = {
  ...{ kilometer: "km", meter: "m", centimeter: "cm", millimeter: "mm", micrometer: "µm" },
  ...{ nanometer: "nm", picometer: "pm", angstrom: "Å" },
};

function symbol(unit) {
  return SYMBOLS[unit] ?? unit ?? "";
}

/** Outline the tiles of the level in use, each with the level's number, where `isOn`. */
export function drawOutlines(canvas, scene, isOn) {
  const ratio = window.devicePixelRatio;
  const { clientWidth, clientHeight } = canvas;
  if (canvas.width !== clientWidth * ratio || canvas.height !== clientHeight * ratio) {
    [canvas.width, canvas.height] = [clientWidth * ratio, clientHeight * ratio];
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, clientWidth, clientHeight);
  const use = isOn ? scene.inUse(scene.image) : null;
  if (!use) return;
  context.font = "600 12px system-ui, sans-serif";
  for (const { bounds, x, y } of use.tiles) {
    const { viewport } = scene.viewer;
    const from = viewport.pixelFromPoint(bounds.getTopLeft(), true);
    const to = viewport.pixelFromPoint(bounds.getBottomRight(), true);
    const box = [from.x + 0.5, from.y + 0.5, to.x - from.x - 1, to.y - from.y - 1];
    // Dark under light, so that the lines are seen on any image.
    for (const [color, lineWidth] of [["#000a", 4], ["#ffb454", 1.5]]) {
      [context.strokeStyle, context.lineWidth] = [color, lineWidth];
      context.strokeRect(...box);
    }
    const text = `${use.level.name} · ${y},${x}`;
    const width = context.measureText(text).width;
    if (width + 16 > to.x - from.x || to.y - from.y < 26) continue;
    context.fillStyle = "#000b";
    context.fillRect(from.x + 3, from.y + 3, width + 8, 18);
    context.fillStyle = "#ffb454";
    context.fillText(text, from.x + 7, from.y + 16);
  }
}

/** A bar of a round length, about 100 pixels long. */
export function drawScaleBar(element, scene) {
  const [level] = scene.image.levels;
  const [, , width] = scene.image.place;
  const perPixel = width / (scene.viewer.viewport.getZoom(true) * element.parentElement.clientWidth);
  element.hidden = !(perPixel > 0 && Number.isFinite(perPixel));
  if (element.hidden) return;
  const power = 10 ** Math.floor(Math.log10(100 * perPixel));
  const length = [5, 2, 1].map((n) => n * power).find((n) => n <= 100 * perPixel) ?? power;
  const bar = element.firstElementChild;
  bar.style.width = `${length / perPixel}px`;
  const { unit } = scene.image.info.axes[level.x];
  const isPixels = !unit && level.step[level.x] === 1;
  bar.textContent = `${Number(length.toPrecision(3))} ${isPixels ? "px" : symbol(unit)}`;
}
