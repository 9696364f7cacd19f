const END = "\r\n|\r\n";
const ESCAPED_END = "\r\n||\r\n";

/**
 * The frames of a streamed answer, each of them as soon as it is complete.
 * @param {ReadableStream<Uint8Array>} stream
 * @returns {AsyncGenerator<string>}
 */
export async function* frames(stream) {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (let chunk = await reader.read(); !chunk.done; chunk = await reader.read()) {
    const parts = (rest + decoder.decode(chunk.value, { stream: true })).split(END);
    rest = /** @type {string} */ (parts.pop());
    for (const part of parts) yield part.replaceAll(ESCAPED_END, END);
  }
}
