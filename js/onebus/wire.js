import { Pause, backOff } from "./pause.js";
import { Positions } from "./positions.js";
import { Refusal } from "./server.js";
import { Blocked, longPoll, poll, stream } from "./transports.js";
import { WebSocketLine } from "./websocket.js";

/** @typedef {import("./settings.js").TransportName} TransportName */

/** How long to wait at most, in milliseconds, after an end that many clients may have had at the same time. */
const SPREAD = 1_000;

/** @typedef {{isStreamed: boolean, hasData: boolean}} Outcome */

/**
 * @typedef {object} Ears
 * @property {(batch: import("./positions.js").Batch) => void} onBatch
 * @property {(transport: TransportName | null) => void} onTransport null when the connection is lost
 * @property {(error: Error) => void} onError
 * @property {() => boolean} isVisible whether somebody looks at one of the pages
 */

/** The connection to the server: follows channels, over the best transport that works, until it is closed. */
export class Wire {
  /** @type {TransportName | null} */
  transport = null;
  failures = 0;
  positions;
  #settings;
  #server;
  #ears;
  /** @type {Map<string, number>} */
  #wanted = new Map();
  #attempt = new AbortController();
  /** @type {WebSocketLine | null} */
  #websocket = null;
  #isClosed = false;
  #pause = new Pause();
  #plainRequests = 0;
  #websocketAfter = 0;
  #websocketRefusals = 0;

  /**
   * @param {import("./settings.js").Settings} settings
   * @param {import("./server.js").Server} server
   * @param {Ears} ears
   * @param {string} epoch
   */
  constructor(settings, server, ears, epoch) {
    this.#settings = settings;
    this.#server = server;
    this.#ears = ears;
    this.positions = new Positions([], epoch);
    void this.#run();
  }

  /**
   * Follow these channels and no others.
   * @param {Map<string, number>} wanted from where; those that are followed already go on from where they are
   */
  follow(wanted) {
    const joined = [...wanted.keys()].filter((channel) => !this.#wanted.has(channel));
    const left = [...this.#wanted.keys()].filter((channel) => !wanted.has(channel));
    this.#wanted = wanted;
    for (const channel of joined) {
      if (!this.positions.ids.has(channel)) this.positions.ids.set(channel, wanted.get(channel) ?? 0);
    }
    if (this.#websocket && wanted.size > 0) {
      // What is on its way for a channel that was left still counts: it may be joined again.
      if (joined.length > 0) this.#websocket.follow(joined);
      if (left.length > 0) this.#websocket.leave(left);
    } else if (joined.length > 0 || left.length > 0) {
      this.again();
    }
  }

  /** Find out at once whether the connection is alive, or make another. */
  check() {
    if (this.#websocket) this.#websocket.check();
    else this.again();
  }

  /** Wait no longer, if it waits. */
  wake() {
    this.#pause.end();
  }

  /** Begin anew. */
  again() {
    this.#attempt.abort();
    this.wake();
  }

  close() {
    this.#isClosed = true;
    this.again();
  }

  async #run() {
    while (!this.#isClosed) {
      if (this.#wanted.size === 0) {
        await this.#sleep(Infinity);
        continue;
      }
      const begin = Date.now();
      const transport = this.#choose();
      this.#attempt = new AbortController();
      try {
        const outcome = await this.#use(transport);
        await this.#sleep(this.#interval(transport, outcome) - (Date.now() - begin));
      } catch (problem) {
        if (this.#attempt.signal.aborted) await this.#sleep(this.#least);
        else await this.#recover(transport, /** @type {Error} */ (problem));
      }
    }
  }

  /**
   * @param {TransportName} transport
   * @returns {Promise<Outcome>}
   */
  async #use(transport) {
    const { positions } = this;
    let hasData = false;
    for (const channel of positions.ids.keys()) if (!this.#wanted.has(channel)) positions.ids.delete(channel);
    for (const [channel, id] of this.#wanted) if (!positions.ids.has(channel)) positions.ids.set(channel, id);
    if (transport !== "websocket") this.#plainRequests = Math.max(this.#plainRequests - 1, 0);
    const attempt = this.#attempt;
    const line = {
      server: this.#server,
      settings: this.#settings,
      positions,
      attempt,
      take: (/** @type {import("./positions.js").Message[]} */ answer) => {
        if (attempt.signal.aborted) return;
        hasData ||= answer.length > 0;
        this.#take(transport, answer);
      },
    };
    const ask = {
      websocket: () => this.#useWebsocket(new WebSocketLine(line)),
      streaming: () => stream(line),
      "long-polling": () => longPoll(line),
      polling: () => poll(line),
    };
    const isStreamed = await ask[transport]();
    return { isStreamed, hasData };
  }

  /**
   * @param {WebSocketLine} websocket
   * @returns {Promise<boolean>}
   */
  async #useWebsocket(websocket) {
    this.#websocket = websocket;
    try {
      return await websocket.run();
    } finally {
      this.#websocket = null;
    }
  }

  /**
   * @param {TransportName} transport
   * @param {import("./positions.js").Message[]} answer
   */
  #take(transport, answer) {
    this.failures = 0;
    if (transport === "websocket") {
      this.#websocketRefusals = 0;
    } else if (this.#websocketAfter === Infinity) {
      // The server is there, so it was the websocket that did not get through.
      const times = Math.min(2 ** this.#websocketRefusals++, 10);
      this.#websocketAfter = Date.now() + this.#settings.retryWebsocketAfter * times;
    }
    this.#tellTransport(transport);
    const batch = this.positions.advance(answer);
    for (const channel of batch.denied) this.#wanted.delete(channel);
    if (Object.keys(batch.covers).length > 0 || batch.denied.length > 0) this.#ears.onBatch(batch);
  }

  /** @param {TransportName | null} transport */
  #tellTransport(transport) {
    if (this.transport === transport) return;
    this.transport = transport;
    this.#ears.onTransport(transport);
  }

  /** @returns {TransportName} */
  #choose() {
    const settings = this.#settings;
    const isHeld = settings.enableLongPolling && this.#isAttentive;
    const isPossible = {
      websocket:
        settings.enableLongPolling &&
        typeof WebSocket === "function" &&
        Object.keys(settings.headers).length === 0 &&
        Date.now() >= this.#websocketAfter,
      streaming: isHeld && settings.enableChunkedEncoding && this.#plainRequests === 0,
      "long-polling": isHeld,
      polling: true,
    };
    return settings.transports.find((transport) => isPossible[transport]) ?? "polling";
  }

  get #isAttentive() {
    const { alwaysLongPoll, shouldLongPollCallback } = this.#settings;
    return alwaysLongPoll || (shouldLongPollCallback?.() ?? this.#ears.isVisible());
  }

  get #least() {
    const { minPollInterval, minHiddenPollInterval } = this.#settings;
    return this.#isAttentive ? minPollInterval : minHiddenPollInterval;
  }

  /**
   * The time from the beginning of a request that went well to the beginning of the next one.
   * @param {TransportName} transport
   * @param {Outcome} outcome
   */
  #interval(transport, { isStreamed, hasData }) {
    const { callbackInterval, backgroundCallbackInterval } = this.#settings;
    if (isStreamed) return SPREAD * Math.random();
    if (transport !== "polling" && hasData) return 0;
    return this.#isAttentive ? callbackInterval : backgroundCallbackInterval;
  }

  /**
   * @param {TransportName} transport
   * @param {Error} problem
   */
  async #recover(transport, problem) {
    const { retryChunkedAfterRequests, callbackInterval, maxPollInterval } = this.#settings;
    if (transport === "websocket" && problem instanceof Blocked) {
      // Either the server is away or the websocket is blocked: the next transport will tell.
      this.#websocketAfter = Infinity;
      return;
    }
    if (transport === "streaming" && problem instanceof Blocked) {
      this.#plainRequests = retryChunkedAfterRequests;
      return;
    }
    if (this.#websocketAfter === Infinity) this.#websocketAfter = 0;
    this.#tellTransport(null);
    this.#ears.onError(problem);
    if (problem instanceof Refusal && problem.status === 429) {
      await this.#stayAway((problem.retryAfter ?? callbackInterval) + SPREAD * Math.random());
    } else {
      this.failures += 1;
      await this.#sleep(backOff(this.failures, maxPollInterval));
    }
  }

  /**
   * Sleep, whatever happens meanwhile.
   * @param {number} milliseconds
   */
  async #stayAway(milliseconds) {
    const end = Date.now() + milliseconds;
    while (!this.#isClosed && Date.now() < end) await this.#sleep(end - Date.now());
  }

  /** @param {number} milliseconds */
  async #sleep(milliseconds) {
    if (!this.#isClosed) await this.#pause.wait(Math.max(milliseconds, this.#least));
  }
}
