// Follows a run: asks what changed, replaces only the parts that did, appends log lines, and stops when the run has ended.
(() => {
  "use strict";
  const log = document.querySelector(".log[data-follow]");
  const atEnd = () => log.scrollHeight - log.scrollTop - log.clientHeight < 40;
  const toEnd = () => { log.scrollTop = log.scrollHeight; };
  if (log) toEnd();

  const live = document.querySelector("[data-live]");
  if (!live) return;
  const SECONDS = 2;
  const trouble = document.getElementById("trouble");
  const announcement = document.getElementById("announcement");
  const shown = new Map(); // element id -> the HTML it was given last
  let sequence = Number(live.dataset.sequence);
  let points = Number(live.dataset.points);

  const address = () => {
    const url = new URL(location.href);
    url.searchParams.set("part", "live");
    url.searchParams.set("after", sequence);
    url.hash = "";
    return url;
  };

  // The same link, button or field of the new HTML, so that whoever is at the keyboard stays where they are.
  const place = (part) => {
    const here = document.activeElement;
    if (!part.contains(here)) return null;
    return [...part.querySelectorAll("a, button, input, select, summary")].indexOf(here);
  };

  const replace = (id, html) => {
    const part = document.getElementById(id);
    if (!part || shown.get(id) === html) return;
    const busy = part.contains(document.activeElement) && document.activeElement.matches("select, input");
    if (busy) return;
    shown.set(id, html);
    const index = place(part);
    const open = [...part.querySelectorAll("details")].map((details) => details.open);
    part.innerHTML = html;
    part.querySelectorAll("details").forEach((details, at) => { if (open[at]) details.open = true; });
    if (index !== null) part.querySelectorAll("a, button, input, select, summary")[index]?.focus();
  };

  const append = (html) => {
    if (!html.trim() || !log) return;
    const pinned = atEnd();
    log.querySelector("[data-placeholder]")?.remove();
    log.querySelector("ol").insertAdjacentHTML("beforeend", html);
    if (pinned) toEnd();
  };

  const look = async () => {
    try {
      const answer = await fetch(address(), { headers: { Accept: "application/json" } });
      if (answer.status === 401) return location.reload();
      if (!answer.ok) throw new Error(answer.status);
      const body = await answer.json();
      trouble.hidden = true;
      for (const [id, html] of Object.entries(body.parts)) replace(id, html);
      append(body.lines);
      sequence = body.sequence;
      if (body.points !== points) {
        points = body.points;
        document.dispatchEvent(new Event("metrics"));
      }
      if (body.status !== live.dataset.status) announcement.textContent = `Status: ${body.status}`;
      live.dataset.status = body.status;
      live.dataset.state = body.final ? "ended" : "following";
      if (body.final) return;
    } catch {
      trouble.hidden = false;
    }
    setTimeout(look, SECONDS * 1000);
  };
  setTimeout(look, SECONDS * 1000);
})();
