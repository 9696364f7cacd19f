/** @typedef {"websocket" | "streaming" | "long-polling" | "polling"} TransportName */

/** What a client can be told to do otherwise. All times are in milliseconds. */
export class Settings {
  /** Where the server is: an address or a path, which ends with a slash. */
  baseUrl = "/";

  /**
   * The transports to use, the best one first. Polling is the last resort even if it is not named.
   * @type {TransportName[]}
   */
  transports = ["websocket", "streaming", "long-polling", "polling"];

  /** The secret of the server, if it has one. @type {string} */
  secret = "";

  /**
   * Further headers of each request. Browsers cannot add headers to websockets, so these are not used then.
   * @type {Record<string, string>}
   */
  headers = {};

  /** Makes the requests. @type {typeof fetch} */
  fetch = (input, init) => globalThis.fetch(input, init);

  /**
   * Tabs share a connection if they have the same base URL, secret, headers and this text: the user's name for
   * example. `false` gives this client a connection of its own.
   * @type {string | false}
   */
  sharing = "";

  /** Whether the server may hold anything open. Otherwise the client only polls. */
  enableLongPolling = true;

  /** Whether a held request may be streamed. */
  enableChunkedEncoding = true;

  /** Hold requests in hidden pages, too. */
  alwaysLongPoll = false;

  /**
   * Decides whether requests are held, instead of whether a page is visible.
   * @type {(() => boolean) | null}
   */
  shouldLongPollCallback = null;

  /** The time from one poll to the next. */
  callbackInterval = 15_000;

  /** The same while all pages are hidden. */
  backgroundCallbackInterval = 60_000;

  /** The least time between two requests. */
  minPollInterval = 100;

  /** The same while all pages are hidden. */
  minHiddenPollInterval = 1_500;

  /** The longest time to wait after failures. */
  maxPollInterval = 180_000;

  /** How long a stream may take to say its first word. */
  firstChunkTimeout = 3_000;

  /** How many requests to make without streaming after one that stayed silent. */
  retryChunkedAfterRequests = 30;

  /** How long to do without a websocket that was refused; it doubles each time, up to ten times as long. */
  retryWebsocketAfter = 60_000;

  /** After how much silence a held request is taken for dead. */
  silenceTimeout = 90_000;

  /** How often a websocket is asked whether it is alive, and other tabs whether somebody leads them. */
  heartbeatInterval = 20_000;
}
