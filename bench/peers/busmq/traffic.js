// busmq's own benchmark: push to and consume from many queues at once, as fast as possible, in cycles.

'use strict';

const { attach, consume, fail } = require('./queues');

async function traffic(bus, spec, gate) {
  const counts = { pushed: 0, consumed: 0 };
  const queues = await Promise.all(spec.queues.map((name) => attach(bus, name)));
  await gate();
  for (const queue of queues) {
    consume(queue, { reliable: spec.reliable }, (message, id) => {
      counts.consumed += 1;
      if (spec.reliable) {
        queue.ack(id);
      }
    });
    pump(queue, spec, counts);
  }
  return measure(spec, counts);
}

/** Keeps a number of pushes in flight: whenever one is stored, the next one is pushed. */
function pump(queue, spec, counts) {
  const push = () => queue.push(spec.message, stored);
  const stored = (error) => {
    if (error) {
      fail(error);
    }
    counts.pushed += 1;
    push();
  };
  for (let number = 0; number < spec.window; number += 1) {
    push();
  }
}

/** Resolves with what happened in each cycle. A cycle has its own length: a busy process does not wake up in time. */
function measure(spec, counts) {
  return new Promise((resolve) => {
    const cycles = [];
    let started = process.hrtime.bigint();
    let before = { ...counts };
    const timer = setInterval(() => {
      const now = process.hrtime.bigint();
      cycles.push({
        pushed: counts.pushed - before.pushed,
        consumed: counts.consumed - before.consumed,
        seconds: Number(now - started) / 1e9,
      });
      started = now;
      before = { ...counts };
      if (cycles.length === spec.cycles) {
        clearInterval(timer);
        resolve(cycles);
      }
    }, spec.seconds * 1000);
  });
}

module.exports = { traffic };
