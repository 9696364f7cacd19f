/**
 * Waits until a condition holds, and returns its value; fails if it never does.
 * @template Value
 * @param {() => Value} condition
 * @returns {Promise<Value>}
 */
export async function eventually(condition, seconds = 10) {
  const end = Date.now() + seconds * 1000;
  for (let value = condition(); ; value = condition()) {
    if (value) return value;
    if (Date.now() > end) throw new Error(`This never came true: ${condition}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
