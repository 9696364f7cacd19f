/**
 * onebus for browsers: follows channels of a onebus server.
 *
 *     import bus from "/onebus.js";
 *
 *     bus.start();
 *     bus.subscribe("/chat", (data) => console.log(data));
 */

import { CatchUp } from "./onebus/catchup.js";
import { Events } from "./onebus/events.js";
import { isVisible, watchPage } from "./onebus/page.js";
import { Server } from "./onebus/server.js";
import { Settings } from "./onebus/settings.js";
import { clientIdOf, sharedName } from "./onebus/sharing.js";
import { Subscriptions } from "./onebus/subscriptions.js";
import { Tabs } from "./onebus/tabs.js";
import { Wire } from "./onebus/wire.js";

/** @typedef {import("./onebus/subscriptions.js").Callback} Callback */
/** @typedef {import("./onebus/positions.js").Message} Message */
/** @typedef {import("./onebus/events.js").EventTypes} EventTypes */

/** What runs between `start` and `stop`. */
class Session {
  /**
   * @param {Server} server
   * @param {Tabs} tabs
   * @param {CatchUp} catchUp
   */
  constructor(server, tabs, catchUp) {
    this.server = server;
    this.tabs = tabs;
    this.catchUp = catchUp;
    /** @type {(() => void)[]} */
    this.endings = [() => tabs.stop(), () => catchUp.stop()];
  }
}

/** A client. Its settings are its properties; set them before `start`. */
export class MessageBus extends Settings {
  /** @type {import("./onebus/settings.js").TransportName | null} */
  #transport = null;
  #events = new Events();
  #subscriptions = new Subscriptions((callback, message) => this.#deliver(callback, message), this.#events);
  /** @type {Session | null} */
  #session = null;
  /** What came while it is paused; null if it is not. @type {[Callback, Message][] | null} */
  #held = null;

  /** @param {Partial<Settings>} [settings] */
  constructor(settings = {}) {
    super();
    Object.assign(this, settings);
  }

  /** The id by which the server knows this client, between `start` and `stop`. */
  get clientId() {
    return this.#session?.server.clientId ?? null;
  }

  /**
   * Call a function with each message of a channel: once, and in order.
   * @param {string} channel
   * @param {Callback} callback
   * @param {number} lastId the message that was read last: 0 for the whole backlog, -1 for what comes from now on, -2
   *   for the newest message and what comes, -3 for the two newest, …
   */
  subscribe(channel, callback, lastId = -1) {
    if (typeof channel !== "string" || channel[0] !== "/") throw new TypeError("A channel is a path, such as /chat.");
    if (typeof callback !== "function") throw new TypeError("Give a function that is called with each message.");
    if (!Number.isInteger(lastId)) throw new TypeError("The last id is a whole number.");
    this.#subscriptions.add(channel, callback, lastId);
    this.#sync();
  }

  /**
   * End subscriptions.
   * @param {string} channel each `*` in it stands for any text
   * @param {Callback} [callback] only those of this function
   * @returns {boolean} whether there were any
   */
  unsubscribe(channel, callback) {
    const hasRemoved = this.#subscriptions.remove(channel, callback);
    if (hasRemoved) this.#sync();
    return hasRemoved;
  }

  /**
   * Be told of what happens: `gap`, `denied`, `error`, `status`, `transport`.
   * @template {keyof EventTypes} Name
   * @param {Name} name
   * @param {(event: EventTypes[Name]) => void} listener
   * @returns {() => void} ends it
   */
  on(name, listener) {
    return this.#events.on(name, listener);
  }

  /** Connect, and deliver what was missed since `stop`. */
  start() {
    if (this.#session) return;
    const name = sharedName(this);
    const server = new Server(this, clientIdOf(name));
    const onError = (/** @type {Error} */ error) => this.#events.emit("error", { error });
    const tabs = new Tabs(name, (ears, epoch) => new Wire(this, server, ears, epoch), {
      onBatch: (batch) => this.#hear(batch),
      onTransport: (transport) => this.#tellTransport(transport),
      onError,
    });
    const catchUp = new CatchUp(this, server, this.#subscriptions, onError);
    const session = (this.#session = new Session(server, tabs, catchUp));
    session.endings.push(this.#watch(tabs));
    tabs.start(this.#wish);
    this.#sync();
    this.#tellStatus();
  }

  /** Disconnect. Subscriptions stay, and go on from where they are with the next `start`. */
  stop() {
    const session = this.#session;
    if (!session) return;
    this.#session = null;
    this.#transport = null;
    for (const end of session.endings) end();
    this.#tellStatus();
  }

  /** Keep messages back until `resume`. */
  pause() {
    if (!this.#session || this.#held) return;
    this.#held = [];
    this.#tellStatus();
  }

  /** Deliver what was kept back, and go on. */
  resume() {
    const held = this.#held;
    if (!held) return;
    this.#held = null;
    this.#tellStatus();
    for (const [callback, message] of held) this.#deliver(callback, message);
  }

  /** @returns {"started" | "paused" | "stopped"} */
  status() {
    if (!this.#session) return "stopped";
    return this.#held ? "paused" : "started";
  }

  /** What there is to know about this client, for people who look for the reason of something. */
  diagnostics() {
    const { server, tabs } = this.#session ?? {};
    return {
      status: this.status(),
      clientId: server?.clientId ?? null,
      isLeader: tabs?.isLeader ?? false,
      isVisible: isVisible(),
      transport: this.#transport,
      failures: tabs?.wire?.failures ?? 0,
      epoch: this.#subscriptions.epoch,
      positions: Object.fromEntries(this.#subscriptions.wanted),
      behind: Object.fromEntries(this.#subscriptions.behind),
      heldBack: this.#held?.length ?? 0,
    };
  }

  /** Let the server and the other tabs know what this one wants. */
  #sync() {
    this.#tell();
    void this.#catchUp();
  }

  async #catchUp() {
    if (await this.#session?.catchUp.run()) this.#tell();
  }

  #tell() {
    this.#session?.tabs.tell(this.#wish);
  }

  /** @returns {import("./onebus/tabs.js").Wish} */
  get #wish() {
    const { wanted, epoch } = this.#subscriptions;
    return { channels: wanted, epoch, isVisible: isVisible() };
  }

  /** @param {import("./onebus/positions.js").Batch} batch */
  #hear(batch) {
    this.#subscriptions.hear(batch);
    if (this.#subscriptions.behind.size > 0) void this.#catchUp();
    if (batch.denied.length > 0) this.#tell();
  }

  /**
   * @param {Tabs} tabs
   * @returns {() => void} ends it
   */
  #watch(tabs) {
    const onAwake = () => {
      this.#sync();
      tabs.wire?.check();
    };
    const end = watchPage({
      onSeen: () => (isVisible() ? onAwake() : this.#tell()),
      onAwake,
      onFrozen: () => tabs.stop(),
      onThawed: () => {
        tabs.stop();
        tabs.start(this.#wish);
        this.#sync();
      },
    });
    const heartbeat = setInterval(() => isVisible() && this.#tell(), this.heartbeatInterval);
    return () => {
      clearInterval(heartbeat);
      end();
    };
  }

  /**
   * @param {Callback} callback
   * @param {Message} message
   */
  #deliver(callback, message) {
    if (this.#held) {
      this.#held.push([callback, message]);
      return;
    }
    try {
      callback(message.data, message.global_id, message.message_id);
    } catch (problem) {
      console.error(`onebus: a callback of ${message.channel} failed`, problem);
      this.#events.emit("error", { error: /** @type {Error} */ (problem) });
    }
  }

  /** @param {import("./onebus/settings.js").TransportName | null} transport */
  #tellTransport(transport) {
    if (transport === this.#transport) return;
    this.#transport = transport;
    this.#events.emit("transport", { transport, isLeader: this.#session?.tabs.isLeader ?? false });
  }

  #tellStatus() {
    this.#events.emit("status", { status: this.status() });
  }
}

/** A client for the whole page. */
export default new MessageBus();
