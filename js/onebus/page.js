/**
 * What happens to the page that the client lives in. Without a page, in Node.js for example, nothing ever does.
 *
 * @typedef {object} PageEvents
 * @property {() => void} onSeen it was shown or hidden
 * @property {() => void} onAwake the network or the machine is back
 * @property {() => void} onFrozen it will not run for a while, and maybe never again
 * @property {() => void} onThawed
 */

export function isVisible() {
  return globalThis.document?.visibilityState !== "hidden";
}

/**
 * @param {PageEvents} events
 * @returns {() => void} ends it
 */
export function watchPage({ onSeen, onAwake, onFrozen, onThawed }) {
  const { document, window } = globalThis;
  if (!document || !window) return () => {};
  const life = new AbortController();
  const { signal } = life;
  document.addEventListener("visibilitychange", onSeen, { signal });
  window.addEventListener("online", onAwake, { signal });
  document.addEventListener("freeze", onFrozen, { signal });
  document.addEventListener("resume", onThawed, { signal });
  window.addEventListener("pagehide", (event) => event.persisted && onFrozen(), { signal });
  window.addEventListener("pageshow", (event) => event.persisted && onThawed(), { signal });
  return () => life.abort();
}
