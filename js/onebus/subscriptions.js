/** @typedef {import("./positions.js").Batch} Batch */
/** @typedef {(data: any, globalId: number, messageId: number) => void} Callback */

/** How many batches are kept for a subscription that is behind. */
const MAX_WAITING = 1_000;

class Subscription {
  /** Whether it missed something, or does not know yet where it stands: then it has to be caught up. */
  isBehind;
  isOver = false;
  /** What was heard while it is behind. @type {Batch[]} */
  waiting = [];

  /**
   * @param {string} channel
   * @param {Callback} callback
   * @param {number} position the id of the last message that was delivered, or a negative one as the server knows it
   */
  constructor(channel, callback, position) {
    this.channel = channel;
    this.callback = callback;
    this.position = position;
    /** Whether it begins with whatever the server has, and does not mind what was forgotten before. */
    this.isNew = position <= 0;
    this.isBehind = this.isNew;
  }
}

/**
 * The subscriptions of one page, each with a position of its own.
 *
 * A batch is delivered to the subscriptions that stand within what it covers. One that stands before that has missed
 * something: it falls behind, keeps what it hears, and asks the server for the rest. So it does not matter who
 * connects when, and from where: every message is delivered once and in order, or a gap is told.
 */
export class Subscriptions {
  epoch = "";
  /** @type {Subscription[]} */
  #all = [];
  #deliver;
  #events;

  /**
   * @param {(callback: Callback, message: import("./positions.js").Message) => void} deliver
   * @param {import("./events.js").Events} events
   */
  constructor(deliver, events) {
    this.#deliver = deliver;
    this.#events = events;
  }

  /**
   * @param {string} channel
   * @param {Callback} callback
   * @param {number} lastId
   */
  add(channel, callback, lastId) {
    this.#all.push(new Subscription(channel, callback, lastId));
  }

  /**
   * @param {string} pattern a channel, in which each `*` stands for any text
   * @param {Callback} [callback] only this one
   * @returns {boolean} whether there was anything to remove
   */
  remove(pattern, callback) {
    const parts = pattern.split("*").map((part) => part.replace(/[\\^$.|?+()[\]{}]/g, "\\$&"));
    const name = new RegExp(`^${parts.join(".*")}$`, "s");
    return this.#end((one) => name.test(one.channel) && (!callback || one.callback === callback));
  }

  /** Where to begin with each channel that is not followed yet. @returns {Map<string, number>} */
  get wanted() {
    return lowest(this.#all.filter((one) => !one.isNew));
  }

  /** What to ask the server for at once; one position per channel. @returns {Map<string, number>} */
  get behind() {
    return new Map(this.#all.filter((one) => one.isBehind).map((one) => [one.channel, one.position]));
  }

  /**
   * Take what came over the connection.
   * @param {Batch} batch
   */
  hear(batch) {
    this.epoch ||= batch.epoch;
    if (batch.epoch && batch.epoch !== this.epoch) {
      // The server knows which of the two is the present one.
      for (const one of this.#all) fallBehind(one, batch);
      return;
    }
    this.#deny(batch);
    const followers = this.#all.filter((one) => batch.covers[one.channel]);
    const ready = followers.filter((one) => !one.isBehind && one.position >= batch.covers[one.channel][0]);
    for (const one of followers) if (!ready.includes(one)) fallBehind(one, batch);
    this.#accept(ready, batch);
  }

  /**
   * Take what the server said when it was asked for what is missing.
   * @param {Map<string, number>} asked
   * @param {Batch} batch
   */
  catchUp(asked, batch) {
    const askers = this.#all.filter((one) => one.isBehind && asked.get(one.channel) === one.position);
    if (batch.epoch && batch.epoch !== this.epoch) this.#live(batch.epoch);
    this.#deny(batch);
    const waiting = askers.map((one) => one.waiting);
    for (const one of askers) {
      one.isBehind = false;
      one.waiting = [];
      // A channel of which there is nothing to say is an empty one.
      batch.covers[one.channel] ??= [one.position, Math.max(one.position, 0)];
    }
    this.#accept(askers, batch);
    askers.forEach((one, index) => {
      for (const heard of waiting[index]) this.#hearAgain(one, heard);
    });
  }

  /** @param {string} epoch */
  #live(epoch) {
    if (this.epoch) {
      for (const one of this.#all) {
        one.position = Math.min(one.position, 0);
        one.isBehind = true;
        one.isNew = true;
      }
      this.#events.emit("gap", { channel: null, reset: true });
    }
    this.epoch = epoch;
  }

  /**
   * @param {Subscription} one
   * @param {Batch} batch
   */
  #hearAgain(one, batch) {
    const cover = batch.covers[one.channel];
    if (batch.epoch !== this.epoch || !cover) return;
    if (one.isBehind || cover[0] > one.position) fallBehind(one, batch);
    else this.#accept([one], batch);
  }

  /**
   * @param {Subscription[]} ready
   * @param {Batch} batch
   */
  #accept(ready, batch) {
    this.#tellGaps(ready, batch);
    for (const message of batch.messages) {
      for (const one of ready) {
        if (one.isOver || one.channel !== message.channel || message.message_id <= one.position) continue;
        one.position = message.message_id;
        this.#deliver(one.callback, message);
      }
    }
    for (const one of ready) {
      const [from, to] = batch.covers[one.channel];
      one.position = to < from ? to : Math.max(one.position, to);
      one.isNew = false;
    }
  }

  /**
   * @param {Subscription[]} ready
   * @param {Batch} batch
   */
  #tellGaps(ready, batch) {
    for (const [channel, position] of lowest(ready.filter((one) => !one.isNew))) {
      const [from, to] = batch.covers[channel];
      const [first, last] = batch.gaps[channel] ?? [0, -1];
      const firstMissed = Math.max(first, position + 1);
      if (to < from) this.#events.emit("gap", { channel, reset: true });
      else if (firstMissed <= last) this.#events.emit("gap", { channel, firstMissed, lastMissed: last, reset: false });
    }
  }

  /** @param {Batch} batch */
  #deny({ denied }) {
    for (const channel of denied) {
      if (this.#end((one) => one.channel === channel)) this.#events.emit("denied", { channel });
    }
  }

  /** @param {(one: Subscription) => boolean} isMeant */
  #end(isMeant) {
    const ended = this.#all.filter(isMeant);
    for (const one of ended) one.isOver = true;
    this.#all = this.#all.filter((one) => !one.isOver);
    return ended.length > 0;
  }
}

/**
 * @param {Subscription} one
 * @param {Batch} batch
 */
function fallBehind(one, batch) {
  one.isBehind = true;
  const [from, to] = batch.covers[one.channel] ?? [0, -1];
  // Whoever forgets what was heard will only have to ask once more.
  if (one.waiting.length >= MAX_WAITING) one.waiting = [];
  if (to >= from) one.waiting.push(batch);
}

/**
 * @param {Subscription[]} subscriptions
 * @returns {Map<string, number>}
 */
function lowest(subscriptions) {
  const ids = new Map();
  for (const { channel, position } of subscriptions) {
    ids.set(channel, Math.min(position, ids.get(channel) ?? Infinity));
  }
  return ids;
}
