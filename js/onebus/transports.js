import { frames } from "./frames.js";

/** @typedef {import("./positions.js").Message} Message */

/**
 * What a transport is given. It takes answers until its connection ends, which may be after the first one.
 *
 * @typedef {object} Line
 * @property {import("./server.js").Server} server
 * @property {import("./positions.js").Positions} positions
 * @property {import("./settings.js").Settings} settings
 * @property {(answer: Message[]) => void} take
 * @property {AbortController} attempt
 */

/** A transport does not get through here, although others may. */
export class Blocked extends Error {}

/**
 * The server answers at once.
 * @param {Line} line
 * @param {boolean} isHeld
 */
export async function poll(line, isHeld = false) {
  return withDeadline(line, line.settings.silenceTimeout, async (signal) => {
    const response = await line.server.poll(line.positions, { isHeld, signal });
    line.take(await response.json());
    return false;
  });
}

/**
 * The server answers when it has something to say.
 * @param {Line} line
 */
export function longPoll(line) {
  return poll(line, true);
}

/**
 * The server answers at once, and then goes on whenever it has something to say.
 * @param {Line} line
 * @returns {Promise<boolean>} whether it did go on
 */
export async function stream(line) {
  const { silenceTimeout, firstChunkTimeout } = line.settings;
  return withDeadline(line, firstChunkTimeout, async (signal, extend) => {
    const response = await line.server.poll(line.positions, { isHeld: true, isStreamed: true, signal });
    if (!response.body || response.headers.get("Content-Type")?.startsWith("application/json")) {
      line.take(await response.json());
      return false;
    }
    for await (const frame of frames(response.body)) {
      extend(silenceTimeout);
      line.take(JSON.parse(frame));
    }
    return true;
  });
}

/**
 * Give up what stays silent for too long.
 * @param {Line} line
 * @param {number} patience
 * @param {(signal: AbortSignal, extend: (patience: number) => void) => Promise<boolean>} work
 */
async function withDeadline(line, patience, work) {
  const { signal } = line.attempt;
  const deadline = new AbortController();
  const abort = () => deadline.abort();
  signal.addEventListener("abort", abort);
  let hasStarted = false;
  let isLate = false;
  const giveUp = () => {
    isLate = true;
    abort();
  };
  let timer = setTimeout(giveUp, patience);
  try {
    return await work(deadline.signal, (more) => {
      hasStarted = true;
      clearTimeout(timer);
      timer = setTimeout(giveUp, more);
    });
  } catch (problem) {
    if (!isLate) throw problem;
    throw hasStarted ? new Error("The server fell silent.") : new Blocked("The server did not say anything in time.");
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", abort);
    abort();
  }
}
