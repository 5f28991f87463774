// Pixels of one level: boxes of a plane, put together from chunks, the last of which are kept decoded.
import * as zarr from "zarrita";

const KEPT_BYTES = 256 * 2 ** 20;

class ChunkCache {
  #chunks = new Map();
  #bytes = 0;

  /** The chunk called `key`, from `read()` unless it is kept; the one that was used longest ago goes first. */
  get(key, read) {
    let entry = this.#chunks.get(key);
    if (entry) {
      this.#chunks.delete(key);
    } else {
      entry = { chunk: read(), bytes: 0 };
      entry.chunk.then(
        ({ data }) => this.#grow(entry, data.byteLength ?? data.length),
        () => this.#chunks.delete(key),
      );
    }
    this.#chunks.set(key, entry);
    return entry.chunk;
  }

  #grow(entry, bytes) {
    entry.bytes = bytes;
    this.#bytes += bytes;
    for (const [key, old] of this.#chunks) {
      if (this.#bytes <= KEPT_BYTES || old === entry) break;
      this.#chunks.delete(key);
      this.#bytes -= old.bytes;
    }
  }
}

const cache = new ChunkCache();

export class Level {
  #array;

  /**
   * @param root   zarrita's root of the store
   * @param info   what the server says of the level
   * @param axes   names of the axes
   * @param format of zarr, 2 or 3
   */
  constructor(root, info, axes, format) {
    Object.assign(this, info);
    this.root = root;
    this.axes = axes;
    this.open = format === 2 ? zarr.open.v2 : zarr.open.v3;
    [this.y, this.x] = planeAxes(axes);
    this.height = this.shape[this.y];
    this.width = this.shape[this.x];
  }

  async #chunk(coords) {
    this.#array ??= this.open(this.path ? this.root.resolve(`/${this.path}`) : this.root, { kind: "array" });
    const array = await this.#array;
    return cache.get(`${this.path}:${coords}`, () => array.getChunk(coords));
  }

  /**
   * The box [y0, y1) x [x0, x1) of the plane that `index` gives along the other axes, in C order, of numbers: integers
   * of 64 bits are rounded, but for `wide`, when they stay as they are.
   */
  async read(index, y0, y1, x0, x1, { wide = false } = {}) {
    const width = x1 - x0;
    let out;
    const pieces = [];
    for (let cy = Math.floor(y0 / this.chunk[this.y]); cy * this.chunk[this.y] < y1; cy++) {
      for (let cx = Math.floor(x0 / this.chunk[this.x]); cx * this.chunk[this.x] < x1; cx++) {
        const coords = index.map((i, axis) => Math.floor(i / this.chunk[axis]));
        coords[this.y] = cy;
        coords[this.x] = cx;
        pieces.push(this.#chunk(coords).then((chunk) => ({ chunk, coords })));
      }
    }
    for (const { chunk, coords } of await Promise.all(pieces)) {
      out ??= newArray(chunk.data, (y1 - y0) * width, wide);
      const top = coords[this.y] * chunk.shape[this.y];
      const left = coords[this.x] * chunk.shape[this.x];
      const [fromY, toY] = [Math.max(y0, top), Math.min(y1, top + chunk.shape[this.y])];
      const [fromX, toX] = [Math.max(x0, left), Math.min(x1, left + chunk.shape[this.x])];
      const offset = index.reduce(
        (sum, i, axis) =>
          axis === this.y || axis === this.x ? sum : sum + (i % chunk.shape[axis]) * chunk.stride[axis],
        0,
      );
      const get = getter(chunk.data, wide);
      for (let y = fromY; y < toY; y++) {
        let at = offset + (y - top) * chunk.stride[this.y] + (fromX - left) * chunk.stride[this.x];
        let to = (y - y0) * width + fromX - x0;
        for (let x = fromX; x < toX; x++, to++, at += chunk.stride[this.x]) out[to] = get(at);
      }
    }
    return out;
  }
}

/** The positions of y and x among the axes: those called so, else the last two. */
export function planeAxes(axes) {
  const [y, x] = [axes.indexOf("y"), axes.indexOf("x")];
  return y >= 0 && x >= 0 ? [y, x] : [axes.length - 2, axes.length - 1];
}

function newArray(data, length, wide) {
  if (isWide(data) && !wide) return new Float64Array(length);
  return isTyped(data) ? new data.constructor(length) : new Uint8Array(length);
}

function getter(data, wide) {
  if (isWide(data) && !wide) return (i) => Number(data[i]);
  return isTyped(data) ? (i) => data[i] : (i) => Number(data.get(i));
}

/** Booleans come in a class of zarrita's own. */
function isTyped(data) {
  return ArrayBuffer.isView(data);
}

function isWide(data) {
  return data instanceof BigInt64Array || data instanceof BigUint64Array;
}
