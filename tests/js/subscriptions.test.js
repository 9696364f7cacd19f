import assert from "node:assert/strict";
import { test } from "node:test";

import { Events } from "../../js/onebus/events.js";
import { Positions } from "../../js/onebus/positions.js";
import { Subscriptions } from "../../js/onebus/subscriptions.js";

function page() {
  const events = new Events();
  const gaps = [];
  const denied = [];
  events.on("gap", (gap) => gaps.push(gap));
  events.on("denied", ({ channel }) => denied.push(channel));
  const subscriptions = new Subscriptions((callback, { data }) => callback(data), events);
  const subscribe = (callback, lastId) => {
    subscriptions.add("/chat", callback, lastId);
    subscriptions.catchUp(subscriptions.behind, batch(lastId, lastId));
  };
  return { subscriptions, subscribe, gaps, denied };
}

function message(id, channel = "/chat") {
  return { global_id: id, message_id: id, channel, data: id };
}

function batch(from, to, { messages = [], epoch = "", gaps = {} } = {}) {
  return { epoch, covers: { "/chat": [from, to] }, messages, gaps, denied: [] };
}

function range(first, last) {
  return Array.from({ length: last - first + 1 }, (_, index) => message(first + index));
}

test("a message that was delivered is not delivered again", () => {
  const { subscriptions, subscribe } = page();
  const seen = [];
  subscribe((data) => seen.push(data), 0);

  subscriptions.hear(batch(0, 3, { messages: range(1, 3) }));
  subscriptions.hear(batch(1, 4, { messages: range(2, 4) }));

  assert.deepEqual(seen, [1, 2, 3, 4]);
});

test("a subscription that stands before a batch waits until it has caught up", () => {
  const { subscriptions, subscribe, gaps } = page();
  const seen = [];
  subscribe((data) => seen.push(data), 2);

  subscriptions.hear(batch(5, 6, { messages: [message(6)] }));
  assert.deepEqual(seen, []);
  const asked = subscriptions.behind;
  subscriptions.hear(batch(6, 7, { messages: [message(7)] }));
  subscriptions.catchUp(asked, batch(2, 6, { messages: range(3, 6) }));

  assert.deepEqual(seen, [3, 4, 5, 6, 7]);
  assert.deepEqual(gaps, []);
  assert.equal(subscriptions.behind.size, 0);
});

test("two subscriptions of one channel have positions of their own", () => {
  const { subscriptions, subscribe } = page();
  const [all, some] = [[], []];
  subscribe((data) => all.push(data), 0);
  subscribe((data) => some.push(data), 2);

  subscriptions.hear(batch(0, 3, { messages: range(1, 3) }));

  assert.deepEqual([all, some], [[1, 2, 3], [3]]);
});

test("a gap is told only as far as it is one", () => {
  const { subscriptions, subscribe, gaps } = page();
  subscribe(() => {}, 4);

  subscriptions.hear(batch(2, 9, { messages: [message(9)], gaps: { "/chat": [3, 8] } }));

  assert.deepEqual(gaps, [{ channel: "/chat", firstMissed: 5, lastMissed: 8, reset: false }]);
});

test("another epoch is told once, and everything is read from its beginning", () => {
  const { subscriptions, subscribe, gaps } = page();
  const seen = [];
  subscribe((data) => seen.push(data), 0);
  subscriptions.hear(batch(0, 9, { messages: range(1, 9), epoch: "old" }));

  const news = batch(0, 2, { messages: range(1, 2), epoch: "new" });
  subscriptions.hear(news);
  subscriptions.catchUp(subscriptions.behind, news);

  assert.deepEqual(seen, [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2]);
  assert.deepEqual(gaps, [{ channel: null, reset: true }]);
});

test("whoever wants whatever is there is not told of what was forgotten before", () => {
  const { subscriptions, gaps } = page();
  const seen = [];
  subscriptions.add("/chat", (data) => seen.push(data), 0);

  subscriptions.catchUp(subscriptions.behind, batch(0, 9, { messages: [message(9)], gaps: { "/chat": [1, 8] } }));

  assert.deepEqual([seen, gaps], [[9], []]);
});

test("a channel that went back is a reset of that channel", () => {
  const { subscriptions, subscribe, gaps } = page();
  const positions = new Positions([["/chat", 9]], "same");
  subscribe(() => {}, 9);

  subscriptions.hear(positions.advance([{ ...message(-1, "/__status"), data: { "/chat": 3 } }]));

  assert.deepEqual(gaps, [{ channel: "/chat", reset: true }]);
  assert.equal(subscriptions.wanted.get("/chat"), 3);
});

test("a denied channel is told, and not asked for again", () => {
  const { subscriptions, subscribe, denied } = page();
  subscribe(() => {}, 0);

  subscriptions.hear({ ...batch(0, 0), covers: {}, denied: ["/chat"] });

  assert.deepEqual(denied, ["/chat"]);
  assert.equal(subscriptions.wanted.size, 0);
});

test("a callback that unsubscribes is not called again", () => {
  const { subscriptions, subscribe } = page();
  const seen = [];
  const callback = (data) => {
    seen.push(data);
    subscriptions.remove("/chat", callback);
  };
  subscribe(callback, 0);

  subscriptions.hear(batch(0, 2, { messages: range(1, 2) }));

  assert.deepEqual(seen, [1]);
});

test("an asterisk stands for any text, and nothing else does", () => {
  const { subscriptions } = page();
  for (const channel of ["/a/1", "/a/2", "/b/1", "/a.1"]) subscriptions.add(channel, () => {}, 1);

  assert.equal(subscriptions.remove("/c*"), false);
  assert.equal(subscriptions.remove("/a.*"), true);
  assert.equal(subscriptions.remove("/*/1"), true);

  assert.deepEqual([...subscriptions.wanted.keys()], ["/a/2"]);
});
