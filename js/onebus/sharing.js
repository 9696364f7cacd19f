/** @typedef {import("./settings.js").Settings} Settings */

/**
 * The name under which the tabs of a browser share a connection; null if they do not.
 *
 * Tabs that would ask for something else, or as somebody else, get another name.
 * @param {Settings} settings
 * @returns {string | null}
 */
export function sharedName({ sharing, baseUrl, secret, headers }) {
  const isPossible = globalThis.navigator?.locks && typeof BroadcastChannel === "function" && globalThis.document;
  if (sharing === false || !isPossible) return null;
  const url = new URL(baseUrl, document.baseURI).href;
  return `onebus ${url} ${sharing} ${checksum(JSON.stringify([secret, headers]))}`;
}

/**
 * The id of this client. Tabs that share a connection are one client, with an id that they find in the browser.
 * @param {string | null} name
 */
export function clientIdOf(name) {
  const id = randomId();
  if (name === null) return id;
  try {
    const found = localStorage.getItem(name);
    if (found === null) localStorage.setItem(name, id);
    return found ?? id;
  } catch {
    return id; // The browser does not let pages store anything.
  }
}

/** 32 hexadecimal digits. */
export function randomId() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * Tells secrets apart without telling them.
 * @param {string} text
 */
function checksum(text) {
  let sum = 0;
  for (const letter of text) sum = (Math.imul(sum, 31) + /** @type {number} */ (letter.codePointAt(0))) | 0;
  return (sum >>> 0).toString(16);
}
