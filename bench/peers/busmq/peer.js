// What the benchmark has node-busmq do: one task per process, in step with the other processes.
//
//   node --no-deprecation peer.js '{"task": "traffic", "url": "redis://127.0.0.1:6379", ...}'
//
// Prints {"ready": true} once everything is attached, begins when a line comes in, prints {"outcome": ...} and ends.
// It also ends when its standard input does, so that nothing is left when the benchmark is stopped.

'use strict';

const { createInterface } = require('node:readline');
const { connect } = require('./queues');

const TASKS = {
  traffic: require('./traffic').traffic,
  push: require('./single').push,
  consume: require('./single').consume,
  send: require('./stamps').send,
  receive: require('./stamps').receive,
};

function print(value) {
  process.stdout.write(`${JSON.stringify(value)}\n`);
}

/** Resolves with the next line of the standard input; the end of it ends the process. */
function begin() {
  const lines = createInterface({ input: process.stdin });
  lines.once('close', () => process.exit(1));
  return new Promise((resolve) => lines.once('line', resolve));
}

async function main() {
  const spec = JSON.parse(process.argv[2]);
  const begun = begin();
  const bus = await connect(spec.url);
  const gate = () => {
    print({ ready: true });
    return begun;
  };
  const outcome = await TASKS[spec.task](bus, spec, gate);
  process.stdout.write(`${JSON.stringify({ outcome })}\n`, () => process.exit(0));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
