/** A server in memory, behind a `fetch` of its own: short and long polls, streams, epochs, and faults on demand. */
export class FakeServer {
  epoch = "first";
  /** @type {{url: string, form: Record<string, string>, headers: Record<string, string>}[]} */
  requests = [];
  /** Answers to give instead, one per request; undefined stands for the ordinary one. */
  faults = [];
  isSilent = false;
  #channels = new Map();
  #forgotten = new Map();
  #held = new Set();

  publish(channel, data) {
    const messages = this.#channels.get(channel) ?? [];
    this.#channels.set(channel, messages);
    const id = this.last(channel) + 1;
    messages.push({ global_id: id, message_id: id, channel, data });
    for (const answer of [...this.#held]) answer();
    return id;
  }

  last(channel) {
    return this.#channels.get(channel)?.at(-1)?.message_id ?? this.#forgotten.get(channel) ?? 0;
  }

  forget(channel) {
    this.#forgotten.set(channel, this.last(channel));
    this.#channels.set(channel, []);
  }

  wipe(epoch) {
    this.epoch = epoch;
    this.#channels.clear();
  }

  fetch = async (url, { body, headers, signal }) => {
    const form = Object.fromEntries(body);
    this.requests.push({ url, form, headers });
    const fault = this.faults.shift();
    if (fault instanceof Error) throw fault;
    if (fault) return fault;
    if (url.endsWith("?dlp=t")) return json(this.#read(form));
    return headers["Dont-Chunk"] ? this.#holdPoll(form, signal) : this.#stream(form, signal);
  };

  #read(form) {
    const isWiped = form.__epoch && form.__epoch !== this.epoch;
    const channels = Object.entries(form).filter(([channel]) => !channel.startsWith("__"));
    const answer = form.__epoch === this.epoch ? [] : [special("/__epoch", this.epoch)];
    const status = {};
    for (const [channel, text] of channels) {
      let id = isWiped ? Math.min(Number(text), 0) : Number(text);
      const last = this.last(channel);
      if (id < -1) id = Math.max(last + id + 1, 0);
      if (id === -1 || id > last) status[channel] = last;
      if (id === -1) continue;
      const forgotten = this.#forgotten.get(channel) ?? 0;
      if (forgotten > id && id > 0) answer.unshift(special("/__gap", { [channel]: [id + 1, forgotten] }));
      answer.push(...(this.#channels.get(channel) ?? []).filter((message) => message.message_id > id));
    }
    if (Object.keys(status).length > 0) answer.push(special("/__status", status));
    return answer;
  }

  async #holdPoll(form, signal) {
    const answer = this.#read(form);
    if (answer.length > 0) return json(answer);
    return new Promise((resolve, reject) => {
      const give = () => {
        const news = this.#read(form);
        if (news.length === 0) return;
        this.#held.delete(give);
        resolve(json(news));
      };
      this.#held.add(give);
      signal.addEventListener("abort", () => {
        this.#held.delete(give);
        reject(signal.reason);
      });
    });
  }

  async #stream(form, signal) {
    const stream = new ReadableStream({
      start: (controller) => {
        const positions = { ...form };
        const write = (messages) => {
          for (const message of messages) positions[message.channel] = String(message.message_id);
          positions.__epoch = this.epoch;
          controller.enqueue(new TextEncoder().encode(`${JSON.stringify(messages)}\r\n|\r\n`));
        };
        if (this.isSilent) return;
        write(this.#read(positions));
        const give = () => write(this.#read(positions));
        this.#held.add(give);
        signal.addEventListener("abort", () => {
          this.#held.delete(give);
          controller.error(signal.reason);
        });
      },
    });
    if (this.isSilent) return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    return new Response(stream, { headers: { "Content-Type": "text/plain; charset=utf-8" } });
  }
}

export function json(content, init = {}) {
  const headers = { "Content-Type": "application/json; charset=utf-8", ...init.headers };
  return new Response(JSON.stringify(content), { ...init, headers });
}

function special(channel, data) {
  return { global_id: -1, message_id: -1, channel, data };
}
