// Keeps a page up to date. The platform says which runs and datasets changed (only their ids); the parts that show them are
// fetched again and replaced. After sleep, a lost connection or time in the background everything is fetched anew.
(() => {
  "use strict";
  const log = document.querySelector(".log[data-follow]");
  const atEnd = () => log.scrollHeight - log.scrollTop - log.clientHeight < 40;
  const toEnd = () => { log.scrollTop = log.scrollHeight; };
  if (log) toEnd();

  const live = document.querySelector("[data-live]");
  if (!live) return;
  const LEAST_MS = 1000; // between two looks; a slow answer makes it longer
  const SILENCE_MS = 40_000; // the platform says something every 15 seconds
  const RETRY_MS = [1000, 2000, 5000, 10_000];
  const LINES = 1000; // more lines of a log are taken out at its beginning
  const follows = new Set(live.dataset.follows.split(" "));
  const trouble = document.getElementById("trouble");
  const announcement = document.getElementById("announcement");
  const shown = new Map(); // element id -> the HTML it was given last
  const FIELDS = "a, button, input, select, summary";
  let sequence = Number(live.dataset.sequence);
  let points = live.dataset.points;
  let stream = null;
  let heard = 0; // when the stream said something last
  let failures = 0;
  let retry = null;
  let looking = false;
  let again = false;

  // The same link, button or field of the new HTML, so that whoever is at the keyboard stays where they are.
  const place = (part) => (part.contains(document.activeElement) ? [...part.querySelectorAll(FIELDS)].indexOf(document.activeElement) : -1);

  // As the browser writes it, so that what has not changed is left alone.
  const written = (html) => {
    const box = document.createElement("template");
    box.innerHTML = html;
    return box.innerHTML;
  };

  const replace = (id, fresh) => {
    const part = document.getElementById(id);
    const html = written(fresh);
    if (!part || (shown.get(id) ?? part.innerHTML) === html) return;
    if (part.contains(document.activeElement) && document.activeElement.matches("select, input:not([type=checkbox]), textarea")) return;
    shown.set(id, html);
    const index = place(part);
    const open = [...part.querySelectorAll("details")].map((details) => details.open);
    part.innerHTML = html;
    part.querySelectorAll("details").forEach((details, at) => { if (at in open) details.open = open[at]; });
    if (index >= 0) part.querySelectorAll(FIELDS)[index]?.focus({ preventScroll: true });
  };

  const append = (html) => {
    if (!html.trim() || !log) return;
    const pinned = atEnd();
    const list = log.querySelector("ol");
    log.querySelector("[data-placeholder]")?.remove();
    list.insertAdjacentHTML("beforeend", html);
    while (list.childElementCount > LINES) list.firstElementChild.remove();
    if (pinned) toEnd();
  };

  const address = () => {
    const url = new URL(location.href);
    url.hash = "";
    if (live.dataset.part) {
      url.searchParams.set("part", live.dataset.part);
      url.searchParams.set("after", sequence);
    }
    return url;
  };

  // The page of a run answers with what changed; of other pages the marked parts of the whole are taken.
  const showRun = (body) => {
    for (const [id, html] of Object.entries(body.parts)) replace(id, html);
    append(body.lines);
    sequence = body.sequence;
    if (String(body.points) !== points) {
      points = String(body.points);
      document.dispatchEvent(new Event("metrics"));
    }
    if (body.status !== live.dataset.status) announcement.textContent = `Status: ${body.status}`;
    live.dataset.status = body.status;
    again ||= body.more;
  };
  const showPage = (html) => {
    const page = new DOMParser().parseFromString(html, "text/html");
    document.querySelectorAll("[data-part][id]").forEach((part) => {
      const fresh = page.getElementById(part.id);
      if (fresh) replace(part.id, fresh.innerHTML);
    });
  };

  const look = async () => {
    if (looking) {
      again = true;
      return;
    }
    looking = true;
    again = false;
    const began = performance.now();
    try {
      const asJson = Boolean(live.dataset.part);
      const answer = await fetch(address(), { headers: { Accept: asJson ? "application/json" : "text/html" } });
      // Signed out, or no longer a member: the page itself says what to do.
      if (answer.redirected || [401, 403, 404].includes(answer.status)) return location.reload();
      if (!answer.ok) throw new Error(answer.status);
      if (asJson) showRun(await answer.json());
      else showPage(await answer.text());
      trouble.hidden = true;
    } catch {
      trouble.hidden = false;
      connectLater();
    }
    setTimeout(() => {
      looking = false;
      if (again) look();
    }, Math.max(LEAST_MS, 4 * (performance.now() - began)));
  };

  const disconnect = () => {
    stream?.close();
    stream = null;
    live.dataset.state = "waiting";
  };
  const connectLater = () => {
    disconnect();
    clearTimeout(retry);
    retry = setTimeout(connect, RETRY_MS[Math.min(failures++, RETRY_MS.length - 1)]);
  };
  const connect = () => {
    disconnect();
    clearTimeout(retry);
    if (document.hidden) return; // a browser has few connections to one server: only what is looked at holds one
    heard = Date.now();
    const mine = (stream = new EventSource(live.dataset.events));
    mine.addEventListener("ready", () => {
      heard = Date.now();
      failures = 0;
      live.dataset.state = "following";
      look();
    });
    mine.addEventListener("beat", () => { heard = Date.now(); });
    mine.addEventListener("changes", (event) => {
      heard = Date.now();
      const changes = JSON.parse(event.data);
      if (changes.length === 0 || changes.some((change) => follows.has(change.kind) || follows.has(change.id))) look();
    });
    mine.addEventListener("error", () => {
      if (mine !== stream) return;
      if (failures > 0) look(); // without a stream the page is still looked at now and then
      connectLater();
    });
  };

  // A computer that slept does not notice that its connection is gone.
  const wake = () => { if (!document.hidden && (!stream || Date.now() - heard > SILENCE_MS)) connect(); };
  document.addEventListener("visibilitychange", () => (document.hidden ? disconnect() : connect()));
  addEventListener("pageshow", (event) => event.persisted && connect());
  addEventListener("pagehide", disconnect);
  addEventListener("online", connect);
  setInterval(wake, 5000);
  connect();

  const clock = (seconds) => {
    if (seconds < 59.5) return seconds < 10 ? `${seconds.toFixed(1)}s` : `${Math.round(seconds)}s`;
    const minutes = Math.floor(Math.round(seconds) / 60);
    return minutes < 60 ? `${minutes}m ${Math.round(seconds) % 60}s` : `${Math.floor(minutes / 60)}h ${minutes % 60}m`;
  };
  setInterval(() => document.querySelectorAll("[data-since]").forEach((element) => {
    const seconds = (Date.now() - Date.parse(element.dataset.since)) / 1000;
    if (seconds >= 0) element.textContent = clock(seconds);
  }), 1000);
})();
