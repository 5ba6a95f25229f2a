/** What had come and gone at each moment of an exchange: the positions of the scrubber. */

/** An event this soon after a piece belongs to the same moment. */
const TOGETHER = 0.005;

const ended = (round, view) => round.ended_at ?? round.answered_at ?? view.seconds ?? round.at;

/** Steps of a round; a server that did not stream sent one. */
function stepsOf(round, view) {
  if (round.raw.steps.length) return round.raw.steps;
  const { length } = round.raw.text;
  return length ? [{ at: ended(round, view), upto: length, released: length, state: "", held: 0 }] : [];
}

/** Moments {at, to, round, steps: [arrived per round], events} in order; the first is the client's request. */
export function moments(view) {
  const happenings = [];
  view.rounds.forEach((round, index) => {
    happenings.push({ at: round.at, round: index, kind: 0 });
    for (const step of stepsOf(round, view)) happenings.push({ at: step.at, round: index, kind: 1 });
  });
  view.client.events.forEach((event) => happenings.push({ at: event.at, kind: 2 }));
  happenings.sort((a, b) => a.at - b.at || a.kind - b.kind);
  const steps = view.rounds.map(() => 0);
  let now = { at: 0, to: 0, round: 0, steps: [...steps], events: 0 };
  const all = [now];
  for (const { at, round, kind } of happenings) {
    if (kind !== 2 || at - now.at > TOGETHER) all.push((now = { ...now, at, steps: [...now.steps] }));
    now.to = at;
    if (kind === 1) now.steps[round]++;
    if (kind === 2) now.events++;
    else now.round = round;
  }
  return all;
}

/** How much of a round's text is there at a moment: {upto, released, state, held}. */
export function arrived(view, moment, index) {
  const steps = stepsOf(view.rounds[index], view);
  const step = steps[moment.steps[index] - 1];
  if (!step) return { upto: 0, released: 0, state: "", held: 0 };
  const last = moment.steps[index] === steps.length && !view.running && view.rounds[index].ended_at !== null;
  return { ...step, upto: last ? view.rounds[index].raw.text.length : step.upto };
}

/** The moment nearest to a time on the axis. */
export function nearest(all, at) {
  let low = 0;
  let high = all.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (all[middle].at < at) low = middle + 1;
    else high = middle;
  }
  return low > 0 && at - all[low - 1].at < all[low].at - at ? low - 1 : low;
}

/** The last moment of a round. */
export function endOf(all, index) {
  for (let n = all.length - 1; n > 0; n--) if (all[n].round === index) return n;
  return all.length - 1;
}

/** Times during which text of a round was held back: [[from, to]..]. */
export function heldTimes(round) {
  const times = [];
  let since = null;
  for (const { at, upto, released } of round.raw.steps) {
    if (released < upto) since ??= at;
    else if (since !== null) (times.push([since, at]), (since = null));
  }
  if (since !== null) times.push([since, round.ended_at ?? round.raw.steps.at(-1).at]);
  return times;
}
