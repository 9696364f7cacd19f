// A publisher or a consumer of raintank-queue, with the npm packages zeromq and socket.io-client.
//
//   node queue.js consume MANAGEMENT CONSUMERS TOPIC GROUP
//   node queue.js publish PUBLISHERS TOPIC PARTITIONS FROM TO
//
// A consumer prints "ready PARTITION..." for each rebalance that it has followed, and "got TOPIC PARTITION JSON" for
// each message. A publisher sends the numbers from FROM to before TO, each to the partition that is its remainder, half
// of them in arrays of arrays, and prints "sent".

"use strict";

const zmq = require("zeromq");
const { io } = require("socket.io-client");

const say = (...words) => process.stdout.write(`${words.join(" ")}\n`);

// For a subscription to reach the broker.
const SUBSCRIBING_MS = 500;

async function consume(management, consumers, topic, group) {
  const socket = new zmq.Subscriber();
  socket.connect(consumers);
  let rooms = [];
  const client = io(management, { transports: ["websocket"] });
  client.on("connect", () => client.emit("join", { topic, group }));
  client.on("rebalance", (told) => {
    if (rooms.length) socket.unsubscribe(...rooms);
    rooms = told.partitions.map((partition) => `${told.topic}:${partition}`);
    if (rooms.length) socket.subscribe(...rooms);
    setTimeout(() => {
      client.emit("ready", told);
      say("ready", ...told.partitions);
    }, SUBSCRIBING_MS);
  });
  for await (const [room, payload] of socket) {
    const [name, partition] = room.toString().split(":");
    for (const message of JSON.parse(payload.toString())) say("got", name, partition, JSON.stringify(message));
  }
}

async function publish(publishers, topic, partitions, from, to) {
  const socket = new zmq.Push();
  socket.connect(publishers);
  for (let number = Number(from); number < Number(to); number++) {
    const array = { topic, partition: number % Number(partitions), payload: [number] };
    await socket.send(JSON.stringify(number % 2 ? array : [array]));
  }
  say("sent");
}

const [task, ...options] = process.argv.slice(2);
({ consume, publish })[task](...options);
