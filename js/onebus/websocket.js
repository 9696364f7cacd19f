import { Blocked } from "./transports.js";

/** How long a websocket may take to answer, in milliseconds. */
const PATIENCE = 5_000;

/** One websocket, from its opening to its end. */
export class WebSocketLine {
  #line;
  /** @type {WebSocket | null} */
  #socket = null;
  /** @type {(reason: Error) => void} */
  #giveUp = () => {};
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #verdict;

  /** @param {import("./transports.js").Line} line */
  constructor(line) {
    this.#line = line;
  }

  /**
   * Follow all channels until the websocket ends, which is always an error.
   * @returns {Promise<never>}
   */
  async run() {
    const { server, settings, attempt } = this.#line;
    const socket = new WebSocket(server.websocketUrl, server.websocketProtocols);
    const heartbeat = setInterval(() => this.check(), settings.heartbeatInterval);
    this.#judge(new Blocked("The websocket was not opened in time."));
    try {
      return await new Promise((_, reject) => {
        this.#giveUp = reject;
        attempt.signal.addEventListener("abort", () => reject(new Error("The websocket is not needed.")));
        socket.onopen = () => this.#begin(socket);
        socket.onmessage = ({ data }) => this.#hear(data);
        socket.onclose = ({ code, reason }) => {
          const error = this.#socket ? Error : Blocked;
          reject(new error(reason || `The websocket was closed with ${code}.`));
        };
      });
    } finally {
      this.#socket = socket.onopen = socket.onmessage = socket.onclose = null;
      clearInterval(heartbeat);
      clearTimeout(this.#verdict);
      socket.close();
    }
  }

  /** @param {Iterable<string>} channels */
  follow(channels) {
    const { ids, epoch } = this.#line.positions;
    this.#send({ channels: Object.fromEntries([...channels].map((channel) => [channel, ids.get(channel)])), epoch });
  }

  /** @param {string[]} channels */
  leave(channels) {
    this.#send({ leave: channels });
  }

  /** Ask for a sign of life, and end the websocket if there is none. */
  check() {
    if (!this.#socket) return;
    this.follow([]);
    this.#judge(new Error("The websocket is dead."));
  }

  /** @param {WebSocket} socket */
  #begin(socket) {
    this.#socket = socket;
    this.follow(this.#line.positions.ids.keys());
    this.#judge(new Error("The websocket is silent."));
  }

  /** @param {string} data */
  #hear(data) {
    clearTimeout(this.#verdict);
    try {
      this.#line.take(JSON.parse(data));
    } catch (problem) {
      this.#giveUp(/** @type {Error} */ (problem));
    }
  }

  /** @param {Error} reason of the end, unless something is heard soon */
  #judge(reason) {
    clearTimeout(this.#verdict);
    this.#verdict = setTimeout(() => this.#giveUp(reason), PATIENCE);
  }

  /** @param {object} message */
  #send(message) {
    this.#socket?.send(JSON.stringify(message));
  }
}
