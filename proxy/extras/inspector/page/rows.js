/** The exchanges that the feed told of, newest first; changes are handed on once a frame. */

export class Rows {
  #rows = new Map();
  #listeners = new Set();
  #scheduled = false;
  skipped = 0;
  arrived = 0;

  /** One `rows` event; the first after a connection is all that the gateway keeps. */
  take({ rows = [], gone = [], skipped = 0 }, first) {
    if (first) {
      const known = this.#rows;
      this.#rows = new Map(rows.map((row) => [row.exchange_id, known.get(row.exchange_id)]));
    }
    for (const row of rows) {
      if (!this.#rows.get(row.exchange_id) && !first) this.arrived++;
      this.#rows.set(row.exchange_id, row);
    }
    for (const id of gone) this.#rows.delete(id);
    this.skipped += skipped;
    this.#tell();
  }

  get size() {
    return this.#rows.size;
  }

  get(id) {
    return this.#rows.get(id);
  }

  /** All of them, newest first. */
  newest() {
    return [...this.#rows.values()].sort((a, b) => b.at - a.at || (a.exchange_id < b.exchange_id ? 1 : -1));
  }

  /** Calls the listener in the next frame after a change, until the given function is called. */
  watch(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #tell() {
    if (this.#scheduled) return;
    this.#scheduled = true;
    requestAnimationFrame(() => {
      this.#scheduled = false;
      for (const listener of this.#listeners) listener();
    });
  }
}
