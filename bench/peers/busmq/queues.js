// A bus that is online, and queues that are attached.

'use strict';

const Bus = require('busmq');

function fail(error) {
  console.error(error);
  process.exit(1);
}

function connect(url) {
  return new Promise((resolve) => {
    const bus = Bus.create({ redis: url, driver: 'node-redis', logLevel: 'error' });
    bus.on('error', fail);
    bus.once('online', () => resolve(bus));
    bus.connect();
  });
}

function attach(bus, name) {
  return new Promise((resolve) => {
    const queue = bus.queue(name);
    queue.on('error', fail);
    queue.once('attached', () => resolve(queue));
    queue.attach();
  });
}

/** Resolves when the queue has been subscribed to, so that setting up is not measured. */
function consume(queue, options, onMessage) {
  return new Promise((resolve) => {
    queue.on('message', onMessage);
    queue.once('consuming', resolve);
    queue.consume(options);
  });
}

module.exports = { attach, connect, consume, fail };
