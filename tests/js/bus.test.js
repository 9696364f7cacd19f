import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";

import standard, { MessageBus } from "../../js/onebus.js";
import { eventually } from "./eventually.js";
import { FakeServer, json } from "./server.js";

/** @type {FakeServer} */
let server;
/** @type {MessageBus[]} */
let buses;
let seen;

beforeEach(() => {
  server = new FakeServer();
  buses = [];
  seen = [];
});

afterEach(() => {
  for (const bus of buses) bus.stop();
});

function start(settings = {}) {
  const bus = new MessageBus({
    baseUrl: "http://example.org/",
    fetch: server.fetch,
    transports: ["streaming", "long-polling", "polling"],
    minPollInterval: 5,
    callbackInterval: 30,
    ...settings,
  });
  buses.push(bus);
  bus.start();
  return bus;
}

const see = (data, globalId, messageId) => seen.push([data, messageId]);

function transportOf(bus) {
  return bus.diagnostics().transport;
}

for (const transport of ["streaming", "long-polling", "polling"]) {
  test(`${transport} delivers the backlog and what comes, once and in order`, async () => {
    for (let id = 1; id <= 3; id += 1) server.publish("/chat", `message ${id}`);
    const bus = start({ transports: [transport] });

    bus.subscribe("/chat", see, 1);
    await eventually(() => seen.length === 2);
    server.publish("/chat", "message 4");
    await eventually(() => seen.length === 3);
    for (let id = 5; id <= 50; id += 1) server.publish("/chat", `message ${id}`);
    await eventually(() => seen.length === 49);

    assert.deepEqual(seen.map(([, id]) => id), Array.from({ length: 49 }, (_, index) => index + 2));
    assert.equal(transportOf(bus), transport);
  });
}

test("-1 delivers what comes from now on, -3 the two newest as well", async () => {
  for (let id = 1; id <= 4; id += 1) server.publish("/chat", id);
  const bus = start();
  const newest = [];
  bus.subscribe("/chat", see);
  bus.subscribe("/chat", (data) => newest.push(data), -3);
  await eventually(() => newest.length === 2);
  await eventually(() => Object.keys(bus.diagnostics().behind).length === 0);

  server.publish("/chat", 5);
  await eventually(() => seen.length === 1 && newest.length === 3);

  assert.deepEqual(seen, [[5, 5]]);
  assert.deepEqual(newest, [3, 4, 5]);
});

test("a stream without a first word is given up for long polls", async () => {
  server.isSilent = true;
  const bus = start({ firstChunkTimeout: 20, retryChunkedAfterRequests: 3 });
  bus.subscribe("/chat", see, 0);
  server.publish("/chat", 1);

  await eventually(() => seen.length === 1);
  await eventually(() => transportOf(bus) === "long-polling");
  server.isSilent = false;
  for (let id = 2; id <= 5; id += 1) {
    server.publish("/chat", id);
    await eventually(() => seen.length === id);
  }

  await eventually(() => transportOf(bus) === "streaming");
});

test("after failures the client goes on from where it was", async () => {
  const bus = start();
  const errors = [];
  bus.on("error", ({ error }) => errors.push(error.message));
  bus.subscribe("/chat", see, 0);
  server.publish("/chat", 1);
  await eventually(() => seen.length === 1);

  server.faults = [new TypeError("network down"), json({ error: { code: "store_unavailable", text: "later" } }, { status: 503 })];
  bus.stop();
  server.publish("/chat", 2);
  bus.start();
  await eventually(() => seen.length === 2);

  assert.deepEqual(errors, ["network down", "later"]);
  assert.deepEqual(seen, [[1, 1], [2, 2]]);
});

test("a server that has too many clients is left alone for as long as it says", async () => {
  server.faults = [json({}, { status: 429, headers: { "Retry-After": "0.3" } })];
  const bus = start();
  const begin = Date.now();
  bus.subscribe("/chat", see, 1);
  await eventually(() => server.requests.length === 1);
  bus.subscribe("/other", see, 1);

  await eventually(() => server.requests.length === 2);

  assert.ok(Date.now() - begin >= 290);
});

test("messages that were forgotten meanwhile are told as a gap", async () => {
  const bus = start();
  const gaps = [];
  bus.on("gap", (gap) => gaps.push(gap));
  server.publish("/chat", 1);
  bus.subscribe("/chat", see, 0);
  await eventually(() => seen.length === 1);

  bus.stop();
  server.publish("/chat", 2);
  server.publish("/chat", 3);
  server.forget("/chat");
  server.publish("/chat", 4);
  bus.start();
  await eventually(() => seen.length === 2);

  assert.deepEqual(gaps, [{ channel: "/chat", firstMissed: 2, lastMissed: 3, reset: false }]);
  assert.deepEqual(seen.at(-1), [4, 4]);
});

test("a wiped server is told as a reset, and everything on it is delivered", async () => {
  const bus = start();
  const gaps = [];
  bus.on("gap", (gap) => gaps.push(gap));
  for (let id = 1; id <= 3; id += 1) server.publish("/chat", "old");
  bus.subscribe("/chat", see, 0);
  await eventually(() => seen.length === 3);

  bus.stop();
  server.wipe("second");
  server.publish("/chat", "new");
  bus.start();
  await eventually(() => seen.length === 4);

  assert.deepEqual(gaps, [{ channel: null, reset: true }]);
  assert.deepEqual(seen.at(-1), ["new", 1]);
});

test("a refused client is told which channels are denied, and stays quiet", async () => {
  server.faults = [json({ error: { code: "channel_denied", text: "no" } }, { status: 403 })];
  const bus = start();
  const denied = [];
  bus.on("denied", ({ channel }) => denied.push(channel));

  bus.subscribe("/secret", see);
  await eventually(() => denied.length === 1);

  assert.deepEqual(denied, ["/secret"]);
  assert.deepEqual(bus.diagnostics().positions, {});
  assert.equal(server.requests.length, 1);
});

test("pause keeps messages back, and resume delivers them", async () => {
  const bus = start();
  bus.subscribe("/chat", see, 0);
  bus.pause();
  server.publish("/chat", 1);
  await eventually(() => bus.diagnostics().heldBack === 1);
  assert.deepEqual([bus.status(), seen], ["paused", []]);

  bus.resume();

  assert.deepEqual([bus.status(), seen], ["started", [[1, 1]]]);
});

test("a callback that fails does not keep others from their messages", async (context) => {
  const log = context.mock.method(console, "error", () => {});
  const bus = start();
  bus.subscribe("/chat", () => assert.fail("on purpose"), 0);
  bus.subscribe("/chat", see, 0);

  server.publish("/chat", 1);
  await eventually(() => seen.length === 1);

  assert.equal(log.mock.callCount(), 1);
});

test("what is not wanted any more is not asked for", async () => {
  const bus = start();
  bus.subscribe("/chat/1", see, 0);
  bus.subscribe("/chat/2", see, 0);
  bus.subscribe("/news", see, 0);
  await eventually(() => server.requests.at(-1)?.form["/news"]);

  assert.equal(bus.unsubscribe("/chat/*"), true);
  assert.equal(bus.unsubscribe("/chat/*"), false);

  await eventually(() => !("/chat/1" in server.requests.at(-1).form));
  assert.deepEqual(Object.keys(bus.diagnostics().positions), ["/news"]);
});

test("requests carry the secret, further headers, and numbers that grow", async () => {
  const bus = start({ secret: "open sesame", headers: { "X-Extra": "yes" }, transports: ["long-polling"] });
  server.publish("/chat", 1);
  server.publish("/chat", 2);
  bus.subscribe("/chat", see, 1);
  await eventually(() => server.requests.length >= 2);

  const [first, second] = server.requests;
  assert.equal(first.headers.Authorization, "Bearer open sesame");
  assert.equal(first.headers["X-Extra"], "yes");
  assert.match(first.url, /^http:\/\/example\.org\/message-bus\/[0-9a-f]{32}\/poll$/);
  assert.ok(Number(second.form.__seq) > Number(first.form.__seq));
});

test("without leave to hold requests, the client only polls", async () => {
  const bus = start({ enableLongPolling: false });
  bus.subscribe("/chat", see, 0);
  server.publish("/chat", 1);

  await eventually(() => seen.length === 1);

  assert.ok(server.requests.every(({ url }) => url.endsWith("?dlp=t")));
  assert.equal(transportOf(bus), "polling");
});

test("shouldLongPollCallback decides whether requests are held", async () => {
  const bus = start({ shouldLongPollCallback: () => false, backgroundCallbackInterval: 20, minHiddenPollInterval: 5 });
  bus.subscribe("/chat", see, 0);
  server.publish("/chat", 1);

  await eventually(() => seen.length === 1);

  assert.equal(transportOf(bus), "polling");
});

test("nonsense is refused", () => {
  const bus = new MessageBus();

  assert.throws(() => bus.subscribe(7, see), TypeError);
  assert.throws(() => bus.subscribe("chat", see), TypeError);
  assert.throws(() => bus.subscribe("/chat", "see"), TypeError);
  assert.throws(() => bus.subscribe("/chat", see, "7"), TypeError);
});

test("there is a client for the whole page, which is not started yet", () => {
  assert.ok(standard instanceof MessageBus);
  assert.equal(standard.status(), "stopped");
});
