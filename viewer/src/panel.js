// The panel beside the image: sliders, channels, labels and what is known of the levels.

/** An element with attributes, properties that begin with "on", and children; texts are texts, never markup. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (typeof value === "boolean") made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

export const byId = (id) => document.getElementById(id);

export function addSliders(scene) {
  const [level] = scene.image.levels;
  for (const [axis, start] of Object.entries(scene.position)) {
    const size = level.shape[scene.image.axes.indexOf(axis)];
    if (size < 2) continue;
    const shown = element("output", {}, `${start} / ${size - 1}`);
    const move = ({ target }) => {
      shown.textContent = `${target.value} / ${size - 1}`;
      scene.moveTo(axis, Number(target.value));
    };
    const slider = { type: "range", id: `axis-${axis}`, min: 0, max: size - 1, value: start, oninput: move };
    const row = [element("span", {}, axis), element("input", slider), shown];
    byId("sliders").append(element("label", { class: "row" }, ...row));
    byId("sliders").hidden = false;
  }
}

export function addChannels(scene, channels) {
  const repaint = () => scene.repaint(scene.image);
  for (const channel of channels) {
    const [lo, hi] = ["lo", "hi"].map((end) =>
      element("input", {
        type: "number",
        step: "any",
        "aria-label": `${channel.label}: ${end === "lo" ? "black" : "brightest"} at`,
        onchange: ({ target }) => {
          if (Number.isFinite(target.valueAsNumber)) channel[end] = target.valueAsNumber;
          repaint();
        },
      }),
    );
    const show = () => {
      for (const [input, end] of [[lo, "lo"], [hi, "hi"]]) input.value = Number(channel[end].toPrecision(6));
    };
    const adjust = async () => {
      [channel.lo, channel.hi] = await scene.contrast(channel.index);
      show();
      repaint();
    };
    const toggle = async ({ target }) => {
      channel.active = target.checked;
      if (channel.active && channel.lo === undefined) await adjust();
      else repaint();
    };
    const recolor = ({ target }) => {
      channel.color = target.value.slice(1);
      repaint();
    };
    const picker = { type: "color", value: `#${channel.color}`, "aria-label": `colour of ${channel.label}` };
    const box = element("input", { type: "checkbox", checked: channel.active, onchange: toggle });
    const auto = element("button", { title: "Contrast from percentiles", onclick: adjust }, "auto");
    byId("channels").append(
      element(
        "div",
        { class: "channel" },
        element(
          "div",
          { class: "row" },
          element("input", { ...picker, oninput: recolor }),
          element("label", {}, box, ` ${channel.label}`),
        ),
        element("div", { class: "row" }, lo, "to", hi, auto),
      ),
    );
    if (channel.lo !== undefined) show();
  }
  byId("channels").hidden = false;
}

export function addLabels(scene) {
  for (const label of scene.labels) {
    const toggle = ({ target }) => scene.setVisible(label, target.checked);
    byId("labels").append(
      element(
        "label",
        { class: "row check" },
        element("input", { type: "checkbox", checked: true, onchange: toggle }),
        `${label.info.name} (${label.info.levels[0].dtype}, ${label.levels.length} levels)`,
      ),
    );
    byId("labels").hidden = false;
  }
  byId("opacity").addEventListener("input", ({ target }) => scene.setOpacity(Number(target.value)));
}

export function addFacts(info) {
  const { image } = info;
  const name = image.name || info.where.replace(/[/\\]+$/, "").split(/[/\\]/).pop();
  document.title = `${name} · Ziggurat`;
  byId("name").textContent = name;
  byId("where").textContent = info.where;
  const rows = image.levels.map((level) => {
    const scale = level.scale && `scale ${level.scale.map(short).join(" ")}`;
    const shard = level.shard && `shard ${times(level.shard)}`;
    const cells = [[level.name, bytes(level.bytes)], [times(level.shape), scale], [times(level.chunk), shard]];
    return element("tr", {}, ...cells.map(([text, more]) => element("td", {}, text, element("small", {}, more || ""))));
  });
  const head = element("tr", {}, ...["level", "shape", "chunk"].map((text) => element("th", { scope: "col" }, text)));
  byId("levels").append(element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows)));
  const axes = image.axes.map(({ name: axis, unit }) => (unit ? `${axis} in ${unit}` : axis)).join(", ");
  const facts = { axes, dtype: image.levels[0].dtype, method: image.method, "OME-Zarr": image.version };
  for (const [key, value] of Object.entries(facts)) {
    if (value) byId("facts").append(element("dt", {}, key), element("dd", {}, value));
  }
}

/** Say which level is in use: in a corner, and in the table. */
export function showLevel(scene) {
  const use = scene.inUse(scene.image);
  const k = use ? scene.image.levels.indexOf(use.level) : -1;
  byId("level").textContent = use ? `level ${use.level.name}: ${use.level.width} × ${use.level.height}` : "";
  document.body.dataset.level = k;
  document.querySelectorAll("#levels tbody tr").forEach((row, i) => row.classList.toggle("in-use", i === k));
}

export function showProblem(text) {
  const box = byId("problems");
  if (!box.hidden && box.textContent.includes(text)) return;
  box.append(element("div", {}, text));
  box.hidden = false;
}

export function showPointer(scene, found) {
  if (!found) {
    byId("pointer").textContent = "";
    return;
  }
  const at = scene.image.axes.map((axis, i) => (axis === "c" ? null : `${axis} ${found.pixel[i]}`)).filter(Boolean);
  const values = found.values.map((v) => (typeof v === "number" ? short(v) : String(v))).join(", ");
  const labels = found.labels.filter(([, value]) => value !== null).map(([name, value]) => ` · ${name} ${value}`);
  byId("pointer").textContent = `level ${found.level.name} · ${at.join(" ")} · ${values}${labels.join("")}`;
}

const times = (sizes) => sizes.join("×");
const short = (value) => String(Number(value.toPrecision(5)));

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  const power = Math.min(units.length - 1, Math.floor(Math.log2(Math.max(1, n)) / 10));
  return `${Number((n / 1024 ** power).toPrecision(3))}\u00a0${units[power]}`;
}
