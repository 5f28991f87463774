// Pixels to colours.

/** Channels as light that adds up: `planes` and `channels` go together; a channel is {color: [r, g, b], lo, hi}. */
export function paintChannels(rgba, planes, channels) {
  for (let i = 3; i < rgba.length; i += 4) rgba[i] = 255;
  planes.forEach((plane, c) => {
    const { color, lo, hi } = channels[c];
    const [r, g, b] = color.map((part) => part / Math.max(hi - lo, Number.MIN_VALUE));
    for (let i = 0, to = 0; i < plane.length; i++, to += 4) {
      const value = Math.min(plane[i], hi) - lo;
      if (!(value > 0)) continue; // below, and NaN
      rgba[to] += r * value;
      rgba[to + 1] += g * value;
      rgba[to + 2] += b * value;
    }
  });
}

/** Labels in colours that depend on their value alone; 0 stays transparent. */
export function paintLabels(rgba, plane) {
  const out = new Uint32Array(rgba.buffer);
  let [last, color] = [0, 0];
  for (let i = 0; i < plane.length; i++) {
    if (plane[i] !== last) {
      last = plane[i];
      color = Number(last) === 0 ? 0 : labelColor(last);
    }
    out[i] = color;
  }
}

function labelColor(value) {
  const [r, g, b] = labelRgb(value);
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
}

/** A colour [r, g, b] that is saturated and not dark, and far from that of the next label. */
export function labelRgb(value) {
  const wide = BigInt.asUintN(64, BigInt(value));
  let h = Number(wide & 0xffffffffn) ^ Number(wide >> 32n);
  // The finalizer of MurmurHash3: every bit of the label changes every bit of the colour.
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  h = (h ^ (h >>> 16)) >>> 0;
  return hsv((h & 0xffff) / 0x10000, 0.55 + 0.45 * (((h >>> 16) & 0xff) / 255), 0.75 + 0.25 * ((h >>> 24) / 255));
}

function hsv(hue, saturation, value) {
  return [5, 3, 1].map((n) => {
    const k = (n + hue * 6) % 6;
    return Math.round(255 * value * (1 - saturation * Math.max(0, Math.min(k, 4 - k, 1))));
  });
}

/** The values below which lie 0.1 % and 99.9 % of the finite pixels; lo < hi always. */
export function contrastOf(plane) {
  const step = Math.max(1, Math.floor(plane.length / 250000));
  const values = [];
  for (let i = 0; i < plane.length; i += step) if (Number.isFinite(plane[i])) values.push(plane[i]);
  if (values.length === 0) return [0, 1];
  values.sort((a, b) => a - b);
  const at = (share) => values[Math.round(share * (values.length - 1))];
  const [lo, hi] = [at(0.001), at(0.999)];
  if (lo < hi) return [lo, hi];
  const [min, max] = [values[0], values[values.length - 1]];
  return min < max ? [min, max] : [Math.min(0, min), Math.max(min, Math.min(0, min) + 1)];
}

export function parseColor(hex) {
  return [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16));
}
