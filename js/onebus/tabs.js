import { randomId } from "./sharing.js";
import { Wire } from "./wire.js";

/** @typedef {import("./positions.js").Batch} Batch */
/** @typedef {import("./settings.js").TransportName} TransportName */

/** How long the leading tab may take to answer another one, in milliseconds. */
const PATIENCE = 4_000;

/**
 * What one tab wants of the connection.
 *
 * @typedef {object} Wish
 * @property {Map<string, number>} channels from where to follow each of them
 * @property {string} epoch
 * @property {boolean} isVisible
 */

/**
 * @typedef {{type: "wish", tab: string, wish: Wish}
 *   | {type: "roll call"}
 *   | {type: "batch", batch: Batch}
 *   | {type: "transport", transport: TransportName | null}} Note
 */

/**
 * The tabs of a browser that share a connection.
 *
 * One of them leads: it holds the lock of that name, and therefore the connection, for what all tabs wish, and hands
 * on what it hears. The browser gives the lock to the next tab when the leader is gone. A tab that gets no answer from
 * a leader that is frozen takes the lock away from it. A tab that cannot share leads itself alone.
 */
export class Tabs {
  /** @type {Wire | null} */
  wire = null;
  #id = randomId();
  #name;
  #makeWire;
  #ears;
  /** @type {Wish} */
  #wish = { channels: new Map(), epoch: "", isVisible: true };
  /** The wishes of the other tabs. @type {Map<string, Wish>} */
  #others = new Map();
  /** @type {BroadcastChannel | null} */
  #radio = null;
  /** Whether one of the tabs is visible. */
  #isSeen = true;
  #life = new AbortController();
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #doubt;

  /**
   * @param {string | null} name of the lock and the broadcast; null not to share
   * @param {(ears: import("./wire.js").Ears, epoch: string) => Wire} makeWire
   * @param {Omit<import("./wire.js").Ears, "isVisible">} ears
   */
  constructor(name, makeWire, ears) {
    this.#name = name;
    this.#makeWire = makeWire;
    this.#ears = ears;
  }

  get isLeader() {
    return this.wire !== null;
  }

  /**
   * Begin to lead, or to be led.
   * @param {Wish} wish
   */
  start(wish) {
    this.#wish = wish;
    this.#life = new AbortController();
    if (this.#name === null) {
      this.#lead();
      return;
    }
    this.#radio = new BroadcastChannel(this.#name);
    this.#radio.onmessage = ({ data }) => this.#read(data);
    void this.#hold(this.#lifeLock(this.#id), this.#life.signal);
    this.#queue();
  }

  /** Leave the connection to the other tabs. */
  stop() {
    this.#resign();
    this.#quieten();
    this.#life.abort();
    this.#radio?.close();
    this.#radio = null;
    this.#others.clear();
  }

  /**
   * Say what this tab wants; the leader answers.
   * @param {Wish} wish
   */
  tell(wish) {
    this.#wish = wish;
    if (this.wire) {
      this.#serve();
      this.#ears.onBatch(this.wire.positions.describe(wish.channels.keys()));
    } else if (this.#radio) {
      this.#post({ type: "wish", tab: this.#id, wish });
      this.#doubt ??= setTimeout(() => this.#takeOver(), PATIENCE);
    }
  }

  #takeOver() {
    this.#quieten();
    this.#queue({ steal: true });
  }

  /** @param {{steal?: boolean}} how */
  #queue({ steal = false } = {}) {
    const { signal } = this.#life;
    const name = /** @type {string} */ (this.#name);
    const lead = async () => {
      if (signal.aborted || this.wire) return;
      this.#lead();
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
    };
    navigator.locks.request(name, steal ? { steal } : { signal }, lead).catch(() => {
      // Another tab took the lock away: this one may have slept.
      if (signal.aborted) return;
      this.#resign();
      this.#queue();
    });
  }

  #lead() {
    this.#quieten();
    this.wire = this.#makeWire(
      {
        onBatch: (batch) => this.#handOn(batch),
        onTransport: (transport) => {
          this.#post({ type: "transport", transport });
          this.#ears.onTransport(transport);
        },
        onError: this.#ears.onError,
        isVisible: () => this.#isSeen,
      },
      this.#wish.epoch,
    );
    this.#post({ type: "roll call" });
    this.#serve();
  }

  #resign() {
    this.wire?.close();
    this.wire = null;
    this.#others.clear();
  }

  get #wishes() {
    return [this.#wish, ...this.#others.values()];
  }

  /** Let the connection follow what all tabs want. */
  #serve() {
    const union = new Map();
    for (const { channels } of this.#wishes) {
      for (const [channel, id] of channels) union.set(channel, Math.min(id, union.get(channel) ?? Infinity));
    }
    this.wire?.follow(union);
    const wasSeen = this.#isSeen;
    this.#isSeen = this.#wishes.some((wish) => wish.isVisible);
    if (this.#isSeen && !wasSeen) this.wire?.check();
  }

  /** @param {Batch} batch */
  #handOn(batch) {
    this.#post({ type: "batch", batch });
    this.#ears.onBatch(batch);
  }

  /** @param {Note} note */
  #read(note) {
    if (note.type === "wish") {
      if (this.wire) this.#grant(note.tab, note.wish);
      return;
    }
    this.#quieten();
    if (note.type === "batch") this.#ears.onBatch(note.batch);
    else if (note.type === "transport") this.#ears.onTransport(note.transport);
    else if (!this.wire) this.tell(this.#wish);
  }

  /**
   * @param {string} tab
   * @param {Wish} wish
   */
  #grant(tab, wish) {
    const wire = /** @type {Wire} */ (this.wire);
    if (!this.#others.has(tab)) void this.#mourn(tab);
    this.#others.set(tab, wish);
    this.#serve();
    if (wish.epoch && wire.positions.epoch && wish.epoch !== wire.positions.epoch) wire.again();
    // The clocks of hidden tabs go slowly; whoever is looked at does not wait for them.
    if (wish.isVisible && wire.transport === null) wire.wake();
    this.#post({ type: "batch", batch: wire.positions.describe(wish.channels.keys()) });
    this.#post({ type: "transport", transport: wire.transport });
  }

  /**
   * Forget what a tab wanted as soon as it is gone, which is when the lock that it holds can be had.
   * @param {string} tab
   */
  async #mourn(tab) {
    const { signal } = this.#life;
    await navigator.locks.request(this.#lifeLock(tab), { signal }, () => {}).catch(() => {});
    if (this.#others.delete(tab) && this.wire) this.#serve();
  }

  /**
   * @param {string} lock
   * @param {AbortSignal} signal
   */
  async #hold(lock, signal) {
    const untilTheEnd = () => new Promise((resolve) => signal.addEventListener("abort", resolve));
    await navigator.locks.request(lock, { signal }, untilTheEnd).catch(() => {});
  }

  /** @param {string} tab */
  #lifeLock(tab) {
    return `${this.#name} tab ${tab}`;
  }

  #quieten() {
    clearTimeout(this.#doubt);
    this.#doubt = undefined;
  }

  /** @param {Note} note */
  #post(note) {
    this.#radio?.postMessage(note);
  }
}
