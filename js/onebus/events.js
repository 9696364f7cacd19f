/** @typedef {{channel: string, firstMissed: number, lastMissed: number, reset: false}} MissedMessages */
/** @typedef {{channel: string | null, reset: true}} Reset a null channel stands for all of them */

/**
 * @typedef {object} EventTypes
 * @property {MissedMessages | Reset} gap messages were forgotten before they could be read
 * @property {{channel: string}} denied the server does not let this client follow a channel
 * @property {{error: Error}} error a request or a callback failed; requests are repeated
 * @property {{status: "started" | "paused" | "stopped"}} status
 * @property {{transport: import("./settings.js").TransportName | null, isLeader: boolean}} transport how messages
 *   arrive; null when the connection is lost
 */

/** Tells whoever wants to know. */
export class Events {
  /** @type {Map<string, Set<(event: any) => void>>} */
  #listeners = new Map();

  /**
   * @template {keyof EventTypes} Name
   * @param {Name} name
   * @param {(event: EventTypes[Name]) => void} listener
   * @returns {() => void} ends it
   */
  on(name, listener) {
    const listeners = this.#listeners.get(name) ?? new Set();
    this.#listeners.set(name, listeners.add(listener));
    return () => void listeners.delete(listener);
  }

  /**
   * @template {keyof EventTypes} Name
   * @param {Name} name
   * @param {EventTypes[Name]} event
   */
  emit(name, event) {
    for (const listener of this.#listeners.get(name) ?? []) {
      try {
        listener(event);
      } catch (problem) {
        console.error(`onebus: a listener of "${name}" failed`, problem);
      }
    }
  }
}
