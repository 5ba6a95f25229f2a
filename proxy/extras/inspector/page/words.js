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

const NO_CALL = {
  none: ["text", "no call attempted"],
  unwanted: ["text", "calls were forbidden"],
  demanded: ["near", "demanded call missing"],
  attempted: ["near", "failed call"],
  denied: ["near", "denied call"],
  in_reasoning: ["near", "call in reasoning"],
  cut: ["near", "cut"],
};

/** How an exchange ended: {kind, words}; the kinds are what the list filters by. */
export function outcome(row) {
  const names = Array.isArray(row.called) && row.called.length ? `: ${row.called.join(", ")}` : "";
  if (row.running) return { kind: "running", words: row.calls ? `running, ${plural(row.calls, "call")}` : "running" };
  if (row.status === 499) return { kind: "left", words: "499 client left" };
  if (row.code || row.status >= 400) {
    const kind = row.verdict === "refused" ? "refused" : "failed";
    return { kind, words: [row.status >= 400 ? row.status : "", row.code ?? "failed"].join(" ").trim() };
  }
  if (row.calls && row.verdict !== "denied")
    return { kind: misfits(row) ? "misfit" : "calls", words: `${plural(row.calls, "call")}${names}` };
  if (row.near_misses) return { kind: "near", words: `text, ${plural(row.near_misses, "near miss", "near misses")}` };
  const [kind, words] = NO_CALL[row.verdict] ?? ["text", "text"];
  return { kind, words };
}

export const OUTCOMES = [
  ["", "any outcome"],
  ["running", "running"],
  ["calls", "calls"],
  ["misfit", "calls that do not fit"],
  ["text", "text, no call attempted"],
  ["near", "failed attempts"],
  ["repairs", "repaired or recognised"],
  ["left", "client left"],
  ["refused", "refused by the gateway"],
  ["failed", "failed"],
];

/** The verdicts in words, for counts. */
export const VERDICTS = {
  called: "called",
  repaired: "called, after a repair",
  recovered: "called, in an untaught form",
  misfit: "called, but does not fit",
  none: "never tried to call",
  unwanted: "calls were forbidden",
  demanded: "demanded call missing",
  attempted: "attempt that is no call",
  denied: "denied by the gateway",
  in_reasoning: "call in reasoning",
  cut: "cut",
  lost: "no answer, or connection lost",
  upstream: "refused by the server",
  refused: "refused by the gateway",
  failed: "failed",
  left: "client left",
};

/** Calls whose arguments do not fit their tool's schema. */
export const misfits = (row) => Math.max(row.schema_warnings ?? 0, row.verdict === "misfit" ? 1 : 0);

/** The end of a session's id: ids that begin with the time differ there. */
export const tail = (session) => (session ? `…${session.slice(-6)}` : "");

/** All that the gateway did to make calls of it. */
export const repairs = (row) => (row.repaired ?? 0) + (row.coerced ?? 0) + (row.recognised ?? 0);

/** The class that gives call number n its hue. */
export const hue = (n) => `c${((n - 1) % 6) + 1}`;

/** The beginning of a long text: for chips and table cells. */
export const short = (text, most = 80) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
