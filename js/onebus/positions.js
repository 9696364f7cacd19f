/** @typedef {{channel: string, global_id: number, message_id: number, data: any}} Message */

/**
 * What was heard at once. A batch says from where to where it covers each channel, so that whoever stands before its
 * beginning knows that something is missing.
 *
 * @typedef {object} Batch
 * @property {string} epoch the life of all channels; ids of different lives cannot be compared
 * @property {Record<string, [from: number, to: number]>} covers
 * @property {Message[]} messages those after `from`, up to `to`, as far as this client may see them
 * @property {Record<string, [first: number, last: number]>} gaps what was forgotten within what is covered
 * @property {string[]} denied
 */

/** How far one connection has read each channel. */
export class Positions {
  /** @type {Map<string, number>} */
  ids;
  epoch;

  /**
   * @param {Iterable<[string, number]>} ids
   * @param {string} epoch
   */
  constructor(ids = [], epoch = "") {
    this.ids = new Map(ids);
    this.epoch = epoch;
  }

  /**
   * Move on to the end of an answer.
   * @param {Message[]} answer
   * @returns {Batch}
   */
  advance(answer) {
    /** @type {Batch} */
    const batch = { epoch: this.epoch, covers: {}, messages: [], gaps: {}, denied: [] };
    for (const message of answer) {
      const { channel, data } = message;
      if (channel === "/__epoch") {
        this.#live(data);
      } else if (channel === "/__gap") {
        batch.gaps = data;
        for (const [name, [, last]] of entries(batch.gaps)) this.#move(batch, name, last);
      } else if (channel === "/__denied") {
        batch.denied = data;
        for (const name of batch.denied) this.ids.delete(name);
      } else if (channel === "/__status") {
        for (const [name, id] of entries(/** @type {Record<string, number>} */ (data))) this.#move(batch, name, id);
      } else if (message.message_id > (this.ids.get(channel) ?? Infinity)) {
        this.#move(batch, channel, message.message_id);
        batch.messages.push(message);
      }
    }
    batch.epoch = this.epoch;
    return batch;
  }

  /**
   * Say where some channels stand, as a batch without messages.
   * @param {Iterable<string>} channels
   * @returns {Batch}
   */
  describe(channels) {
    /** @type {Batch} */
    const batch = { epoch: this.epoch, covers: {}, messages: [], gaps: {}, denied: [] };
    for (const channel of channels) {
      const id = this.ids.get(channel);
      if (id !== undefined) batch.covers[channel] = [id, id];
    }
    return batch;
  }

  /** @param {string} epoch */
  #live(epoch) {
    if (this.epoch && this.epoch !== epoch) {
      for (const [channel, id] of this.ids) this.ids.set(channel, Math.min(id, 0));
    }
    this.epoch = epoch;
  }

  /**
   * @param {Batch} batch
   * @param {string} channel
   * @param {number} id
   */
  #move(batch, channel, id) {
    const position = this.ids.get(channel);
    if (position === undefined) return;
    batch.covers[channel] ??= [position, position];
    batch.covers[channel][1] = id;
    this.ids.set(channel, id);
  }
}

/**
 * @template Value
 * @param {Record<string, Value>} object
 */
function entries(object) {
  return Object.entries(object);
}
