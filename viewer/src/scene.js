// What is shown: the image and its label images, each a tiled image of OpenSeadragon.
import OpenSeadragon from "openseadragon";
import * as zarr from "zarrita";
import { contrastOf, paintChannels, paintLabels, parseColor } from "./paint.js";
import { Level } from "./pixels.js";
import { makeSource } from "./source.js";
import { DataStore } from "./store.js";

/** Most pixels along an axis that the contrast is taken from, at the coarsest level. */
const SAMPLED = 1024;

class Layer {
  constructor(root, info) {
    this.info = info;
    this.axes = info.axes.map((axis) => axis.name);
    this.levels = info.levels.map((level) => new Level(root, level, this.axes, info.zarr_format));
    this.visible = true;
    this.isLabel = info.is_label && /int|bool/.test(info.levels[0].dtype);
  }

  /** The box in which it lies, in the axes' units: [left, top, width]. */
  get place() {
    const [level] = this.levels;
    return [level.start[level.x], level.start[level.y], level.width * level.step[level.x]];
  }

  /** The pixel of `level` along each axis at a place in the axes' units; 0 along axes that it does not name. */
  indexAt(level, place, channel = 0) {
    return this.axes.map((axis, i) => {
      if (axis === "c") return channel;
      if (!(axis in place)) return 0;
      const pixel = Math.floor((place[axis] - level.start[i]) / level.step[i]);
      return Math.max(0, Math.min(level.shape[i] - 1, pixel));
    });
  }
}

export class Scene {
  /**
   * @param element  where OpenSeadragon lives
   * @param info     what the server says
   * @param onChange what is called when the state or the level in use may have changed
   * @param onError  what is told of errors
   */
  constructor(element, info, onChange, onError) {
    const root = zarr.root(new DataStore());
    this.image = new Layer(root, info.image);
    this.labels = info.labels.map((label) => new Layer(root, label));
    this.opacity = 0.5;
    this.onChange = onChange;
    this.onError = onError;
    this.position = {}; // pixel of level 0 along the axes with a slider
    const [level] = this.image.levels;
    this.image.axes.forEach((axis, i) => {
      if (i !== level.y && i !== level.x && axis !== "c") {
        this.position[axis] = axis === "z" ? Math.floor((level.shape[i] - 1) / 2) : 0;
      }
    });
    this.viewer = OpenSeadragon({
      element,
      drawer: "canvas",
      showNavigationControl: false,
      maxZoomPixelRatio: 40,
      minZoomImageRatio: 0.05,
      minPixelRatio: 0.5,
      visibilityRatio: 0.2,
      animationTime: 0.4,
      imageLoaderLimit: 8,
      timeout: 120000,
      gestureSettingsMouse: { clickToZoom: false, dblClickToZoom: true },
    });
    this.viewer.addHandler("update-viewport", () => {
      this.#smooth();
      onChange();
    });
    this.viewer.addHandler("fully-loaded-change", () => onChange());
  }

  /** Show everything; the channels are those of `channelsOf`. */
  async open(channels) {
    this.channels = channels;
    await this.repaint(this.image);
    this.viewer.viewport.goHome(true);
    await Promise.all(this.labels.map((label) => this.repaint(label)));
  }

  get isReady() {
    const layers = [this.image, ...this.labels].filter((layer) => layer.visible);
    return layers.every((layer) => layer.item?.getFullyLoaded() && !layer.isBusy);
  }

  /** The level of a layer that is in use, the finest that is drawn, and its tiles; null before anything is. */
  inUse(layer) {
    const { item } = layer;
    const drawn = item ? item.getTilesToDraw().map(({ tile }) => tile) : [];
    if (drawn.length === 0) return null;
    const n = Math.max(...drawn.map((tile) => tile.level));
    return { level: item.source.levelOf(n), tiles: drawn.filter((tile) => tile.level === n) };
  }

  /** Large pixels are shown as they are; small ones are averaged. */
  #smooth() {
    const use = this.inUse(this.image);
    if (!use) return;
    const [, , width] = this.image.place;
    const perUnit = (this.viewer.viewport.getZoom(true) * this.viewer.container.clientWidth) / width;
    const isSmooth = use.level.step[use.level.x] * perUnit < 1;
    if (isSmooth !== this.isSmooth) this.viewer.drawer.setImageSmoothingEnabled((this.isSmooth = isSmooth));
  }

  /** The place that the sliders mean, in the axes' units. */
  get slice() {
    const [level] = this.image.levels;
    const centre = (axis, pixel) => {
      const i = this.image.axes.indexOf(axis);
      return level.start[i] + (pixel + 0.5) * level.step[i];
    };
    return Object.fromEntries(Object.entries(this.position).map(([axis, pixel]) => [axis, centre(axis, pixel)]));
  }

  moveTo(axis, pixel) {
    this.position[axis] = pixel;
    for (const layer of [this.image, ...this.labels]) this.repaint(layer);
  }

  setOpacity(opacity) {
    this.opacity = opacity;
    for (const label of this.labels) label.item?.setOpacity(this.#opacityOf(label));
  }

  setVisible(layer, visible) {
    layer.visible = visible;
    layer.item?.setOpacity(this.#opacityOf(layer));
    if (visible) this.repaint(layer);
  }

  #opacityOf(layer) {
    if (!layer.visible) return 0;
    return layer === this.image ? 1 : this.opacity;
  }

  /**
   * Paint a layer anew, and let it take the old one's place when it is complete, so that nothing flickers. What is
   * asked for meanwhile is done afterwards, once.
   */
  async repaint(layer) {
    if (layer.isBusy) {
      layer.again = true;
      return;
    }
    layer.isBusy = true;
    this.onChange();
    do {
      layer.again = false;
      const before = layer.item;
      layer.item = await this.#add(layer, before);
      if (before) this.viewer.world.removeItem(before);
      layer.item.setOpacity(this.#opacityOf(layer));
    } while (layer.again);
    layer.isBusy = false;
    this.onChange();
  }

  #add(layer, before) {
    const [left, top, width] = layer.place;
    const [imageLeft, imageTop, imageWidth] = this.image.place;
    const { world } = this.viewer;
    return new Promise((resolve, reject) => {
      this.viewer.addTiledImage({
        tileSource: makeSource(layer.levels, this.#painter(layer), layer.isLabel, this.onError),
        x: (left - imageLeft) / imageWidth,
        y: (top - imageTop) / imageWidth,
        width: width / imageWidth,
        index: before ? world.getIndexOfItem(before) + 1 : undefined,
        opacity: before ? 0 : this.#opacityOf(layer),
        preload: true,
        success: ({ item }) => {
          if (!before || item.getFullyLoaded()) return resolve(item);
          item.addOnceHandler("fully-loaded-change", () => resolve(item));
        },
        error: ({ message }) => reject(new Error(message)),
      });
    });
  }

  #painter(layer) {
    const place = this.slice;
    if (layer.isLabel) {
      return async (level, y0, y1, x0, x1, rgba) =>
        paintLabels(rgba, await level.read(layer.indexAt(level, place), y0, y1, x0, x1, { wide: true }));
    }
    // A copy: the panel edits them while tiles are painted. A label image of floats is shown as an image.
    const own = layer === this.image ? this.channels : [{ index: 0, color: "ffffff", active: true, lo: 0, hi: 1 }];
    const channels = own.filter((c) => c.active).map((c) => ({ ...c, color: parseColor(c.color) }));
    return async (level, y0, y1, x0, x1, rgba) => {
      const indices = channels.map((c) => layer.indexAt(level, place, c.index));
      paintChannels(rgba, await Promise.all(indices.map((i) => level.read(i, y0, y1, x0, x1))), channels);
    };
  }

  /** The contrast that suits a channel where the sliders are: percentiles of the coarsest level. */
  async contrast(channel) {
    const level = this.image.levels.at(-1);
    const middle = (size) => {
      const start = Math.max(0, Math.floor((size - SAMPLED) / 2));
      return [start, Math.min(size, start + SAMPLED)];
    };
    const index = this.image.indexAt(level, this.slice, channel);
    return contrastOf(await level.read(index, ...middle(level.height), ...middle(level.width)));
  }

  /** What lies at a point of the viewer's element, at the levels that are shown: pixel and values; null outside. */
  async probe(x0, y0) {
    const use = this.inUse(this.image);
    if (!use) return null;
    const spot = this.viewer.viewport.pointFromPixel(new OpenSeadragon.Point(x0, y0), true);
    const [left, top, width] = this.image.place;
    const { level } = use;
    const [y, x] = [this.image.axes[level.y], this.image.axes[level.x]];
    const place = { ...this.slice, [x]: left + spot.x * width, [y]: top + spot.y * width };
    const value = async (layer, at, index) => {
      const inside = [at.y, at.x].every((i) => {
        const pixel = (place[layer.axes[i]] - at.start[i]) / at.step[i];
        return pixel >= 0 && pixel < at.shape[i];
      });
      const [row, column] = [index[at.y], index[at.x]];
      return inside ? (await at.read(index, row, row + 1, column, column + 1, { wide: true }))[0] : null;
    };
    const shown = this.channels.filter((c) => c.active);
    const indices = shown.map((c) => this.image.indexAt(level, place, c.index));
    const values = await Promise.all(indices.map((index) => value(this.image, level, index)));
    const labels = this.labels.filter((label) => label.visible);
    const found = await Promise.all(
      labels.map((label) => {
        const shownAt = this.inUse(label)?.level;
        return shownAt ? value(label, shownAt, label.indexAt(shownAt, place)) : null;
      }),
    );
    if (values.every((v) => v === null)) return null;
    const names = labels.map((label, i) => [label.info.name, found[i]]);
    return { level, pixel: this.image.indexAt(level, place), values, labels: names };
  }
}

const RGB = ["red", "green", "blue", "fourth"];
const PALETTE = ["ff00ff", "00ff00", "00bfff", "ffff00", "ff8000", "ff4060"];

/** The channels of an image, as the metadata say, else as they usually are. */
export function channelsOf(info) {
  const { axes, levels } = info.image;
  const c = axes.findIndex((axis) => axis.name === "c");
  const count = c < 0 ? 1 : levels[0].shape[c];
  const known = info.channels ?? [];
  const isRgb = known.length === 0 && (count === 3 || count === 4) && levels[0].dtype === "uint8";
  return Array.from({ length: count }, (_, index) => {
    const { label, color, active, window } = known[index] ?? {};
    const usual = isRgb ? ["ff0000", "00ff00", "0000ff", "ffffff"][index] : PALETTE[index % PALETTE.length];
    const usualName = isRgb ? RGB[index] : count === 1 ? "intensity" : `channel ${index}`;
    return {
      index,
      label: label ?? usualName,
      color: color && /^[0-9a-f]{6}$/.test(color) ? color : count === 1 ? "ffffff" : usual,
      active: known[index] ? active : isRgb ? index < 3 : index < 4,
      window: window ?? (isRgb ? [0, 255] : null),
    };
  });
}
