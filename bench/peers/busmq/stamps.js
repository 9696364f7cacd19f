// Messages at a steady pace that say when they were pushed, by the clock that all processes of a machine share.

'use strict';

const { attach, consume, fail } = require('./queues');

async function send(bus, spec, gate) {
  const queue = await attach(bus, spec.queue);
  await gate();
  const started = process.hrtime.bigint();
  const pauseNs = BigInt(Math.round(spec.pause * 1e9));
  const stored = [];
  for (let number = 0; number < spec.messages; number += 1) {
    await until(started + BigInt(number) * pauseNs);
    stored.push(push(queue, stamp(spec.size)));
  }
  await Promise.all(stored);
  return null;
}

async function receive(bus, spec, gate) {
  const queue = await attach(bus, spec.queue);
  const ages = [];
  const all = new Promise((resolve) => {
    consume(queue, {}, (message) => {
      ages.push(Number(process.hrtime.bigint() - BigInt(message)) / 1e6);
      if (ages.length === spec.messages) {
        resolve(ages);
      }
    });
  });
  await gate();
  return all;
}

function push(queue, message) {
  return new Promise((resolve) => queue.push(message, (error) => (error ? fail(error) : resolve())));
}

function stamp(size) {
  return process.hrtime.bigint().toString().padStart(size, '0');
}

function until(ns) {
  const waitMs = Number(ns - process.hrtime.bigint()) / 1e6;
  return new Promise((resolve) => (waitMs > 0 ? setTimeout(resolve, waitMs) : setImmediate(resolve)));
}

module.exports = { receive, send };
