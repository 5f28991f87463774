// Reads the pyramid's objects from the server beside the page.

/** A store for zarrita. An object that is not there is undefined; anything else that goes wrong is an error. */
export class DataStore {
  async get(key, options = {}) {
    // zarrita asks for the attributes of arrays of version 2, which have seldom any, and which nothing here needs.
    if (key.endsWith("/.zattrs")) return undefined;
    return this.#fetch(key, options);
  }

  async getRange(key, range, options = {}) {
    const bytes =
      "suffixLength" in range ? `-${range.suffixLength}` : `${range.offset}-${range.offset + range.length - 1}`;
    return this.#fetch(key, { ...options, headers: { Range: `bytes=${bytes}` } });
  }

  async #fetch(key, options) {
    const path = key.split("/").filter(Boolean).map(encodeURIComponent).join("/");
    const response = await fetch(`data/${path}`, options);
    if (response.status === 404) return undefined;
    if (!response.ok) throw new Error(`${key}: ${response.status} ${(await response.text()) || response.statusText}`);
    return new Uint8Array(await response.arrayBuffer());
  }
}
