/** Figures and outcomes in words. */

const count = new Intl.NumberFormat("en");

export const number = (value) => (value === null || value === undefined ? "" : count.format(value));

export const plural = (n, one, many = `${one}s`) => `${number(n)} ${n === 1 ? one : many}`;

export function milliseconds(value) {
  if (value === null || value === undefined) return "";
  if (value >= 10_000) return `${(value / 1000).toFixed(1)} s`;
  if (value >= 1000) return `${(value / 1000).toFixed(2)} s`;
  return value < 10 ? `${value.toFixed(2)} ms` : `${Math.round(value)} ms`;
}

export function seconds(value) {
  if (value === null || value === undefined) return "";
  return value < 0.1 ? `${(value * 1000).toFixed(1)} ms` : `${value.toFixed(3)} s`;
}

export function bytes(value) {
  if (value < 1000) return `${value} B`;
  return value < 1e6 ? `${(value / 1000).toFixed(1)} kB` : `${(value / 1e6).toFixed(1)} MB`;
}

export function clock(unix, withMillis = false) {
  const date = new Date(unix * 1000);
  const two = (n) => String(n).padStart(2, "0");
  const time = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  return withMillis ? `${time}.${String(date.getMilliseconds()).padStart(3, "0")}` : time;
}

/** How an exchange ended: {kind, words}; the kinds are what the list filters by. */
export function outcome(row) {
  if (row.running) return { kind: "running", words: row.calls ? `running, ${plural(row.calls, "call")}` : "running" };
  if (row.status === 499) return { kind: "left", words: "499 client left" };
  if (row.code || row.status >= 400)
    return { kind: "failed", words: [row.status >= 400 ? row.status : "", row.code ?? "failed"].join(" ").trim() };
  if (row.calls) return { kind: "calls", words: plural(row.calls, "call") };
  if (row.near_misses) return { kind: "near", words: `text, ${plural(row.near_misses, "near miss", "near misses")}` };
  return { kind: "text", words: "text" };
}

export const OUTCOMES = [
  ["", "any outcome"],
  ["running", "running"],
  ["calls", "calls"],
  ["text", "text"],
  ["near", "near misses"],
  ["repairs", "repaired or recognised"],
  ["left", "client left"],
  ["failed", "failed"],
];

/** All that the gateway did to make calls of it. */
export const repairs = (row) => (row.repaired ?? 0) + (row.coerced ?? 0) + (row.recognised ?? 0);

/** The class that gives call number n its hue. */
export const hue = (n) => `c${((n - 1) % 6) + 1}`;

/** A text cut in its middle of nowhere: for chips and table cells. */
export const short = (text, most = 80) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
