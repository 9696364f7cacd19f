// One process and one queue: only pushing, or only consuming what was pushed before.

'use strict';

const { attach, consume: start, fail } = require('./queues');

async function push(bus, spec, gate) {
  const queue = await attach(bus, spec.queue);
  await gate();
  const started = process.hrtime.bigint();
  await new Promise((resolve) => {
    let sent = 0;
    let stored = 0;
    const next = () => {
      sent += 1;
      queue.push(spec.message, (error) => {
        if (error) {
          fail(error);
        }
        stored += 1;
        if (stored === spec.messages) {
          resolve();
        } else if (sent < spec.messages) {
          next();
        }
      });
    };
    for (let number = 0; number < Math.min(spec.window, spec.messages); number += 1) {
      next();
    }
  });
  return span(spec, started);
}

async function consume(bus, spec, gate) {
  const queue = await attach(bus, spec.queue);
  await gate();
  const started = process.hrtime.bigint();
  await new Promise((resolve) => {
    let consumed = 0;
    start(queue, {}, () => {
      consumed += 1;
      if (consumed === spec.messages) {
        resolve();
      }
    });
  });
  return span(spec, started);
}

function span(spec, started) {
  return { messages: spec.messages, seconds: Number(process.hrtime.bigint() - started) / 1e9 };
}

module.exports = { consume, push };
