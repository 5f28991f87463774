// One image or label image as a tile source of OpenSeadragon: its levels where their metadata say, exactly.
import OpenSeadragon from "openseadragon";

const [MIN_TILE, MAX_TILE] = [256, 1024];

/** Tiles are chunks, several of them where they are small, parts of them where they are large. */
function tileSize(chunk, size) {
  const whole = chunk < MIN_TILE ? chunk * Math.ceil(MIN_TILE / chunk) : chunk;
  return Math.min(size, whole > MAX_TILE ? MAX_TILE : whole);
}

/**
 * @param levels  of pixels.js, finest first
 * @param paint   async (level, y0, y1, x0, x1, rgba): fill the colours of a box of pixels
 * @param isTransparent whether what lies below shows through
 * @param onError what is told when a tile cannot be painted
 */
export function makeSource(levels, paint, isTransparent, onError) {
  const first = levels[0];
  const [stepY, stepX] = [first.step[first.y], first.step[first.x]];
  const extent = first.width * stepX; // OpenSeadragon's unit of length
  const levelOf = (n) => levels[levels.length - 1 - n]; // its finest level is the last
  const tile = (level) => [tileSize(level.chunk[level.x], level.width), tileSize(level.chunk[level.y], level.height)];
  const box = (level, tx, ty) => {
    const [w, h] = tile(level);
    return [ty * h, Math.min((ty + 1) * h, level.height), tx * w, Math.min((tx + 1) * w, level.width)];
  };
  const place = (level) => ({
    left: (level.start[level.x] - first.start[first.x]) / extent,
    top: (level.start[level.y] - first.start[first.y]) / extent,
    dx: level.step[level.x] / extent,
    dy: level.step[level.y] / extent,
  });

  const source = new OpenSeadragon.TileSource({
    width: first.width,
    height: (first.height * stepY) / stepX,
    tileSize: MIN_TILE,
    minLevel: 0,
    maxLevel: levels.length - 1,
    ready: true,
  });
  return Object.assign(source, {
    levelOf,
    getTileWidth: (n) => tile(levelOf(n))[0],
    getTileHeight: (n) => tile(levelOf(n))[1],
    getLevelScale: (n) => levelOf(n).width / first.width,
    getNumTiles(n) {
      const level = levelOf(n);
      const [w, h] = tile(level);
      return new OpenSeadragon.Point(Math.ceil(level.width / w), Math.ceil(level.height / h));
    },
    getPixelRatio(n) {
      // A level is fine enough when its coarser axis is.
      const { dx, dy } = place(levelOf(n));
      const ratio = Math.max(dx, dy) * OpenSeadragon.pixelDensityRatio;
      return new OpenSeadragon.Point(ratio, ratio);
    },
    getTileAtPoint(n, point) {
      const level = levelOf(n);
      const { left, top, dx, dy } = place(level);
      const [w, h] = tile(level);
      const count = this.getNumTiles(n);
      const at = (position, size, many) => Math.max(0, Math.min(many - 1, Math.floor(position / size)));
      return new OpenSeadragon.Point(
        at((point.x - left) / dx, w, count.x),
        at((point.y - top) / dy, h, count.y),
      );
    },
    getTileBounds(n, tx, ty, isSource) {
      const level = levelOf(n);
      const [y0, y1, x0, x1] = box(level, tx, ty);
      if (isSource) return new OpenSeadragon.Rect(0, 0, x1 - x0, y1 - y0);
      const { left, top, dx, dy } = place(level);
      return new OpenSeadragon.Rect(left + x0 * dx, top + y0 * dy, (x1 - x0) * dx, (y1 - y0) * dy);
    },
    getTileUrl: (n, tx, ty) => `${source._uniqueIdentifier}/${n}/${tx}/${ty}`,
    hasTransparency: () => isTransparent,
    async downloadTileStart(job) {
      const { level: n, x, y } = job.tile;
      try {
        const level = levelOf(n);
        const [y0, y1, x0, x1] = box(level, x, y);
        const image = new ImageData(x1 - x0, y1 - y0);
        await paint(level, y0, y1, x0, x1, image.data);
        const canvas = document.createElement("canvas");
        [canvas.width, canvas.height] = [image.width, image.height];
        const context = canvas.getContext("2d");
        context.putImageData(image, 0, 0);
        job.finish(context, null, "context2d");
      } catch (error) {
        onError(error);
        job.fail(String(error), null);
      }
    },
    downloadTileAbort() {},
  });
}
