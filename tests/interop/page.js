// A page that follows a channel with the npm package message-bus-client, and tells what it gets.
//
//   node page.js ADDRESS {streaming|long-polling|polling} CHANNEL
//
// Prints "message ID DATA" for each message, and "answer STATUS DLP TYPE" for each answer of the server.

"use strict";

const fs = require("node:fs");
const http = require("node:http");
const { JSDOM } = require("jsdom");

const [address, transport, channel] = process.argv.slice(2);

// Browsers tell a page that the connection broke in the middle of an answer. This one has to be helped.
const { request } = http;
http.request = (...options) => {
  const sent = request(...options);
  const broke = () => sent.emit("error", new Error("the connection broke"));
  return sent.on("response", (response) => response.on("aborted", broke));
};

const { window } = new JSDOM("<!doctype html>", {
  url: `${address}/`,
  runScripts: "outside-only",
  pretendToBeVisual: true,
});
for (const script of ["jquery", "message-bus-client/assets/message-bus.js"]) {
  window.eval(fs.readFileSync(require.resolve(script), "utf8"));
}

const say = (...words) => process.stdout.write(`${words.join(" ")}\n`);

window.jQuery(window.document).on("ajaxComplete", (event, xhr, options) => {
  const type = (xhr.getResponseHeader("content-type") ?? "none").replaceAll(" ", "");
  say("answer", xhr.status, options.url.includes("dlp=t"), type);
});

const bus = window.MessageBus;
bus.enableLongPolling = transport !== "polling";
bus.enableChunkedEncoding = transport === "streaming";
bus.callbackInterval = 200;
bus.backgroundCallbackInterval = 200;
bus.subscribe(channel, (data, globalId, messageId) => say("message", messageId, JSON.stringify(data)), 0);
