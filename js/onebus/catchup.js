import { Pause, backOff } from "./pause.js";
import { Positions } from "./positions.js";
import { Refusal } from "./server.js";

/** Asks the server, in requests of its own, for what subscriptions have missed. */
export class CatchUp {
  #settings;
  #server;
  #subscriptions;
  #onError;
  #isRunning = false;
  #isStopped = false;
  #pause = new Pause();
  #lastAsked = 0;

  /**
   * @param {import("./settings.js").Settings} settings
   * @param {import("./server.js").Server} server
   * @param {import("./subscriptions.js").Subscriptions} subscriptions
   * @param {(error: Error) => void} onError
   */
  constructor(settings, server, subscriptions, onError) {
    this.#settings = settings;
    this.#server = server;
    this.#subscriptions = subscriptions;
    this.#onError = onError;
  }

  /**
   * Ask until nobody is behind any more; what is wanted in one go is asked for in one go.
   * @returns {Promise<boolean>} whether anything was asked for
   */
  async run() {
    this.#pause.end();
    if (this.#isRunning) return false;
    this.#isRunning = true;
    let failures = 0;
    let hasAsked = false;
    const { minPollInterval, maxPollInterval } = this.#settings;
    while (!this.#isStopped && this.#subscriptions.behind.size > 0) {
      hasAsked = true;
      await this.#pause.wait(Math.max(this.#lastAsked + minPollInterval - Date.now(), 0));
      this.#lastAsked = Date.now();
      try {
        await this.#ask();
        failures = 0;
      } catch (problem) {
        if (this.#isStopped) break;
        this.#onError(/** @type {Error} */ (problem));
        failures += 1;
        await this.#pause.wait(retryAfter(problem) ?? backOff(failures, maxPollInterval));
      }
    }
    this.#isRunning = false;
    return hasAsked;
  }

  stop() {
    this.#isStopped = true;
    this.#pause.end();
  }

  async #ask() {
    const asked = this.#subscriptions.behind;
    const positions = new Positions(asked, this.#subscriptions.epoch);
    const signal = AbortSignal.timeout(this.#settings.silenceTimeout);
    const response = await this.#server.poll(positions, { signal });
    const answer = await response.json();
    if (!this.#isStopped) this.#subscriptions.catchUp(asked, positions.advance(answer));
  }
}

/**
 * @param {unknown} problem
 * @returns {number | null}
 */
function retryAfter(problem) {
  return problem instanceof Refusal ? problem.retryAfter : null;
}
