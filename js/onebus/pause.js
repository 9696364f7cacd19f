/** A wait that can be ended early. */
export class Pause {
  /** Ends it. */
  end = () => {};

  /** @param {number} milliseconds Infinity waits until it is ended */
  async wait(milliseconds) {
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let timer;
    await new Promise((resolve) => {
      this.end = () => resolve(null);
      if (milliseconds < Infinity) timer = setTimeout(resolve, milliseconds);
    });
    clearTimeout(timer);
    this.end = () => {};
  }
}

/**
 * How long to wait after some failures: twice as long each time, and never as long as others do.
 * @param {number} failures at least one
 * @param {number} most milliseconds
 */
export function backOff(failures, most) {
  return Math.min(1_000 * 2 ** (failures - 1), most) * (0.5 + Math.random() / 2);
}
