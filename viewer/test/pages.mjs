// Opens pages in Chromium as a person would, and tells what they show. Reads a JSON object from stdin:
//   {"chromium": path, "pages": [{"url", "picture": path, "scheme": "light", "steps": [["click", "#outline"], ...],
//    "points": [[x, y], ...]}]}
// and prints a JSON list of what was seen; "at" is where in the picture the points (of level 0) are.
import { chromium } from "playwright-core";

const TIMEOUT_MS = 60000;

async function stdin() {
  let text = "";
  for await (const part of process.stdin) text += part;
  return JSON.parse(text);
}

async function settled(page) {
  // The viewer takes note of a change in its next frame.
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  const isDone = () => document.body.dataset.state !== "loading";
  await page.waitForFunction(isDone, null, { timeout: TIMEOUT_MS });
}

async function look(browser, { url, picture, scheme, steps, points }) {
  const page = await browser.newPage({ viewport: { width: 1100, height: 700 }, colorScheme: scheme ?? "light" });
  page.setDefaultTimeout(TIMEOUT_MS);
  const errors = [];
  const elsewhere = [];
  page.on("pageerror", (error) => errors.push(error.message));
  page.on("request", (request) => {
    if (!request.url().startsWith(url) && !request.url().startsWith("data:")) elsewhere.push(request.url());
  });
  await page.goto(url);
  await settled(page);
  for (const [what, selector, value] of steps ?? []) {
    if (what === "zoom") await page.evaluate((by) => window.ziggurat.viewer.viewport.zoomBy(by, null, true), selector);
    else await page[what](selector, value);
    await settled(page);
  }
  const seen = await page.evaluate((places) => {
    const { image, viewer } = window.ziggurat;
    const [level] = image.levels;
    const [stepY, stepX] = [level.step[level.y], level.step[level.x]];
    const at = ([x, y]) => {
      // In units of the image's width, which is the viewer's.
      const point = viewer.viewport.getCenter();
      [point.x, point.y] = [(x + 0.5) / level.width, ((y + 0.5) * stepY) / (level.width * stepX)];
      return viewer.viewport.viewportToWindowCoordinates(point);
    };
    return {
      state: document.body.dataset.state,
      level: Number(document.body.dataset.level),
      problems: document.getElementById("problems").textContent,
      text: document.body.innerText,
      background: getComputedStyle(document.body).backgroundColor,
      at: places.map(at).map(({ x, y }) => [x, y]),
    };
  }, points ?? []);
  await page.screenshot({ path: picture });
  await page.close();
  return { ...seen, errors, elsewhere };
}

const { chromium: executablePath, pages } = await stdin();
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });
const seen = [];
for (const page of pages) seen.push(await look(browser, page));
await browser.close();
console.log(JSON.stringify(seen));
