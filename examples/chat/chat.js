import bus from "/onebus.js";

const HISTORY = 50;
const PRESENCE_MILLISECONDS = 10_000;

const find = (id) => document.getElementById(id);
const known = new Set();
const unread = new Map();
let user = sessionStorage.getItem("user");
let room = null;

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

async function post(path, content) {
  const response = await fetch(path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(content),
    keepalive: true,
  });
  if (!response.ok) throw new Error((await response.json()).error.text);
}

// Rooms

function addRoom(name) {
  if (known.has(name)) return;
  known.add(name);
  bus.subscribe(`/rooms/${name}`, () => {
    if (name === room) return;
    unread.set(name, (unread.get(name) ?? 0) + 1);
    showRooms();
  });
  showRooms();
}

function showRooms() {
  const links = [...known].map((name) => {
    const link = element("a", { href: `#${encodeURIComponent(name)}` }, name);
    if (name === room) link.setAttribute("aria-current", "page");
    if (unread.get(name)) link.append(element("span", { className: "unread" }, String(unread.get(name))));
    return element("li", {}, link);
  });
  find("rooms").replaceChildren(...links);
}

function enter(name) {
  if (name === room) return;
  leave();
  room = name;
  unread.delete(name);
  document.title = find("room").textContent = name;
  find("remarks").replaceChildren();
  find("people").replaceChildren();
  bus.subscribe(`/rooms/${name}`, showRemark, -HISTORY - 1);
  bus.subscribe(`/rooms/${name}/people`, showPeople, -2);
  showRooms();
  tellPresence();
  find("say").elements.text.focus();
}

function leave() {
  if (room === null) return;
  bus.unsubscribe(`/rooms/${room}`, showRemark);
  bus.unsubscribe(`/rooms/${room}/people`, showPeople);
  tellAbsence();
}

function tellPresence() {
  post("/enter", { room, user }).catch((problem) => showNotice(problem.message));
}

function tellAbsence() {
  post("/leave", { room, user }).catch(() => {}); // The server will notice by itself.
}

// What is said, and who is there

function showRemark(remark) {
  const date = new Date(remark.time * 1000);
  const time = element("time", { dateTime: date.toISOString() }, date.toLocaleTimeString([], { timeStyle: "short" }));
  const head = element("p", { className: "head" }, element("b", {}, remark.user), time);
  const body = element("div", { className: "body" }, head, element("p", {}, remark.text));
  const item = element("li", { className: remark.user === user ? "mine" : "" }, avatar(remark.user), body);
  append(item);
}

function showNotice(text) {
  append(element("li", { className: "notice" }, text));
}

function append(item) {
  const list = find("remarks");
  list.append(item);
  list.scrollTop = list.scrollHeight;
}

function showPeople(people) {
  find("people").replaceChildren(
    ...people.map((name) => element("li", { title: name }, avatar(name), element("span", {}, name))),
  );
}

function avatar(name) {
  const hue = [...name].reduce((sum, letter) => (sum * 31 + letter.codePointAt(0)) % 360, 7);
  const made = element("span", { className: "avatar", ariaHidden: "true" }, [...name][0].toUpperCase());
  made.style.setProperty("--hue", hue);
  return made;
}

// From here on

async function askWho() {
  const dialog = find("who");
  dialog.addEventListener("cancel", (event) => event.preventDefault());
  dialog.showModal();
  await new Promise((resolve) => dialog.addEventListener("close", resolve));
  user = dialog.querySelector("input").value.trim();
  sessionStorage.setItem("user", user);
}

function enterChosenRoom() {
  const name = decodeURIComponent(location.hash.slice(1)) || "Lobby";
  addRoom(name);
  enter(name);
}

function showConnection(transport) {
  find("connection").textContent = transport ?? "connecting…";
  find("connection").className = transport ? "good" : "";
}

bus.on("transport", ({ transport }) => showConnection(transport));
bus.on("gap", () => showNotice("Something was said while you were away, and is forgotten."));

find("say").addEventListener("submit", async (event) => {
  event.preventDefault();
  const input = event.target.elements.text;
  const text = input.value.trim();
  if (!text) return;
  input.value = "";
  try {
    await post("/say", { room, user, text });
  } catch (problem) {
    input.value = text;
    showNotice(`That was not sent: ${problem.message}`);
  }
});

find("new-room").addEventListener("submit", (event) => {
  event.preventDefault();
  location.hash = encodeURIComponent(event.target.elements.room.value.trim());
  event.target.reset();
});

showConnection(null);
while (!user) await askWho();
bus.start();
bus.subscribe("/rooms", addRoom, 0);
addEventListener("hashchange", enterChosenRoom);
addEventListener("pagehide", tellAbsence);
setInterval(tellPresence, PRESENCE_MILLISECONDS);
enterChosenRoom();
