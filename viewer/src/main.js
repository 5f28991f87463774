// The page: it asks the server what there is, shows it, and says in `data-state` of the body how far it is.
import { drawOutlines, drawScaleBar } from "./overlay.js";
import { addChannels, addFacts, addLabels, addSliders, byId, showLevel, showPointer, showProblem } from "./panel.js";
import { channelsOf, Scene } from "./scene.js";

const THEMES = { "light dark": "◐", light: "☀", dark: "☾" };

function useTheme(theme) {
  document.documentElement.style.colorScheme = theme;
  byId("theme").textContent = THEMES[theme];
  localStorage.setItem("ziggurat-theme", theme);
}

function addTheme() {
  const names = Object.keys(THEMES);
  const saved = localStorage.getItem("ziggurat-theme");
  let at = Math.max(0, names.indexOf(saved));
  useTheme(names[at]);
  byId("theme").addEventListener("click", () => useTheme(names[(at = (at + 1) % names.length)]));
}

function showError(error) {
  showProblem([error.message, error.cause?.message].filter(Boolean).join(": "));
}

async function start() {
  addTheme();
  const response = await fetch("info.json");
  if (!response.ok) throw new Error(`the server says ${response.status}; was it stopped?`);
  const info = await response.json();
  addFacts(info);
  info.problems.forEach(showProblem);

  let isOpen = false;
  const update = () => {
    if (!isOpen) return;
    document.body.dataset.state = scene.isReady ? "ready" : "loading";
    showLevel(scene);
    drawOutlines(byId("overlay"), scene, byId("outline").checked);
    drawScaleBar(byId("scalebar"), scene);
  };
  const scene = new Scene(byId("image"), info, update, showError);
  window.ziggurat = scene; // for the console, and for tests

  const channels = channelsOf(info);
  await Promise.all(
    channels.map(async (channel) => {
      if (channel.window || channel.active) {
        [channel.lo, channel.hi] = channel.window ?? (await scene.contrast(channel.index));
      }
    }),
  );
  addSliders(scene);
  if (!scene.image.isLabel) addChannels(scene, channels);
  addLabels(scene);
  addButtons(scene, update);
  await scene.open(channels);
  isOpen = true;
  update();
}

function addButtons(scene, update) {
  const { viewport } = scene.viewer;
  const zoom = (factor) => () => viewport.zoomBy(factor).applyConstraints();
  byId("zoom-in").addEventListener("click", zoom(2));
  byId("zoom-out").addEventListener("click", zoom(0.5));
  byId("zoom-home").addEventListener("click", () => viewport.goHome());
  byId("outline").addEventListener("change", update);
  const image = byId("image");
  image.addEventListener("pointermove", async ({ clientX, clientY }) => {
    const { left, top } = image.getBoundingClientRect();
    const found = await scene.probe(clientX - left, clientY - top).catch(() => null);
    showPointer(scene, found);
  });
  image.addEventListener("pointerleave", () => showPointer(scene, null));
}

start().catch((error) => {
  document.body.dataset.state = "failed";
  showError(error);
});
