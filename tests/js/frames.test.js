import assert from "node:assert/strict";
import { test } from "node:test";

import { frames } from "../../js/onebus/frames.js";

/** @param {Uint8Array[]} chunks */
async function framesOf(chunks) {
  const stream = new ReadableStream({
    start(controller) {
      for (const chunk of chunks) controller.enqueue(chunk);
      controller.close();
    },
  });
  const all = [];
  for await (const frame of frames(stream)) all.push(frame);
  return all;
}

test("frames are the same however their bytes are cut", async () => {
  const bytes = new TextEncoder().encode('["ä"]\r\n|\r\n[]\r\n|\r\n');
  for (let cut = 0; cut <= bytes.length; cut += 1) {
    assert.deepEqual(await framesOf([bytes.slice(0, cut), bytes.slice(cut)]), ['["ä"]', "[]"]);
  }
});

test("an escaped separator does not end a frame", async () => {
  const bytes = new TextEncoder().encode("a\r\n||\r\nb\r\n|\r\n");

  assert.deepEqual(await framesOf([bytes]), ["a\r\n|\r\nb"]);
});
