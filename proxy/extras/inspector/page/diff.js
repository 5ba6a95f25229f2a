/** The difference of two texts, by lines. */

/** Beyond so many comparisons, what lies between the equal begin and the equal end counts as different. */
const MOST_STEPS = 4_000_000;

/** [{left, right}] in order: equal lines on both sides, others on one; null where a side has no line. */
export function lineDiff(a, b) {
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a.at(-1 - end) === b.at(-1 - end)) end++;
  const same = (line) => ({ left: line, right: line });
  const middle = between(a.slice(start, a.length - end), b.slice(start, b.length - end));
  return [...a.slice(0, start).map(same), ...middle, ...a.slice(a.length - end).map(same)];
}

function between(a, b) {
  if (!a.length || !b.length || a.length * b.length > MOST_STEPS) return paired(a, b);
  const width = b.length + 1;
  const longest = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      const at = i * width + j;
      longest[at] = a[i] === b[j] ? longest[at + width + 1] + 1 : Math.max(longest[at + width], longest[at + 1]);
    }
  }
  const rows = [];
  let [i, j] = [0, 0];
  let [left, right] = [[], []];
  const flush = () => (rows.push(...paired(left, right)), ([left, right] = [[], []]));
  while (i < a.length && j < b.length) {
    const at = i * width + j;
    if (a[i] === b[j]) (flush(), rows.push({ left: a[i++], right: b[j++] }));
    else if (longest[at + width] >= longest[at + 1]) left.push(a[i++]);
    else right.push(b[j++]);
  }
  left.push(...a.slice(i));
  right.push(...b.slice(j));
  flush();
  return rows;
}

/** Different lines beside each other. */
function paired(left, right) {
  const rows = [];
  for (let n = 0; n < Math.max(left.length, right.length); n++)
    rows.push({ left: left[n] ?? null, right: right[n] ?? null });
  return rows;
}
