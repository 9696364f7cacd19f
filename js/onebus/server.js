/** @typedef {import("./positions.js").Message} Message */
/** @typedef {import("./positions.js").Positions} Positions */

/** The server answered, but not with messages. */
export class Refusal extends Error {
  /**
   * @param {number} status
   * @param {string} code
   * @param {string} text
   * @param {number | null} retryAfter how many milliseconds the server wants to be left alone
   */
  constructor(status, code, text, retryAfter = null) {
    super(text || `The server answered ${status}.`);
    this.name = "Refusal";
    this.status = status;
    this.code = code;
    this.retryAfter = retryAfter;
  }
}

/** The server, as one client knows it: where it is, and how it is asked. */
export class Server {
  #settings;
  /** Grows from page to page, too, because the pages of a browser may share the client id. */
  #sequence = 0;

  /**
   * @param {import("./settings.js").Settings} settings
   * @param {string} clientId
   */
  constructor(settings, clientId) {
    this.#settings = settings;
    this.clientId = clientId;
  }

  /** Where websockets are opened. */
  get websocketUrl() {
    return this.#url("ws").replace(/^http/, "ws");
  }

  /** What to offer to the server when a websocket is opened; a secret cannot be sent in another way. */
  get websocketProtocols() {
    const { secret } = this.#settings;
    return secret ? ["onebus", `bearer.${base64url(secret)}`] : ["onebus"];
  }

  /**
   * Ask for messages.
   * @param {Positions} positions
   * @param {{isHeld?: boolean, isStreamed?: boolean, signal?: AbortSignal}} how
   * @returns {Promise<Response>}
   */
  async poll(positions, { isHeld = false, isStreamed = false, signal } = {}) {
    const { headers, secret, fetch } = this.#settings;
    const form = new URLSearchParams([...positions.ids].map(([channel, id]) => [channel, String(id)]));
    form.set("__epoch", positions.epoch);
    // One that is not held must not end one that is: it has no number.
    if (isHeld) form.set("__seq", String(this.#next()));
    const response = await fetch(this.#url("poll") + (isHeld ? "" : "?dlp=t"), {
      method: "POST",
      body: form,
      headers: {
        ...(isStreamed ? {} : { "Dont-Chunk": "true" }),
        ...(secret ? { Authorization: `Bearer ${secret}` } : {}),
        ...headers,
      },
      cache: "no-store",
      signal,
    });
    if (response.ok) return response;
    const problem = await refusal(response);
    if (problem.code !== "channel_denied") throw problem;
    return new Response(JSON.stringify([{ channel: "/__denied", data: [...positions.ids.keys()] }]), {
      headers: { "Content-Type": "application/json" },
    });
  }

  /** @param {string} what */
  #url(what) {
    const base = new URL(this.#settings.baseUrl, globalThis.document?.baseURI);
    return new URL(`message-bus/${this.clientId}/${what}`, base).href;
  }

  #next() {
    this.#sequence = Math.max(this.#sequence + 1, Date.now());
    return this.#sequence;
  }
}

/** @param {Response} response */
async function refusal(response) {
  const { error = {} } = await response.json().catch(() => ({}));
  const seconds = Number.parseFloat(response.headers.get("Retry-After") ?? "");
  return new Refusal(response.status, error.code ?? "", error.text ?? "", seconds >= 0 ? seconds * 1000 : null);
}

/** @param {string} text */
function base64url(text) {
  const bytes = String.fromCharCode(...new TextEncoder().encode(text));
  return btoa(bytes).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}
