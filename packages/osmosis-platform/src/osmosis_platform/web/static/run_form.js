// The form of a new run: settings write the config as they change, until it is edited by hand; problems lead to their lines.
(() => {
  "use strict";
  const settings = document.querySelector("[data-settings]");
  const config = document.getElementById("config");
  const gutter = document.querySelector("[data-gutter]");
  const edited = document.querySelector("[data-edited]");
  let byHand = "byHand" in config.dataset;
  let asked = 0;

  const number = () => {
    const lines = config.value.split("\n").length;
    gutter.textContent = Array.from({ length: lines }, (_, at) => at + 1).join("\n");
    gutter.scrollTop = config.scrollTop;
  };

  const write = async () => {
    const mine = (asked += 1);
    const query = new URLSearchParams(new FormData(settings));
    query.set("part", "config");
    const answer = await fetch(`${settings.action}?${query}`, { headers: { Accept: "application/json" } });
    if (!answer.ok || mine !== asked) return;
    const written = await answer.json();
    config.value = written.config;
    for (const [name, value] of Object.entries(written.defaults)) {
      const field = settings.elements[name];
      if (field) field.placeholder = value;
    }
    byHand = false;
    edited.hidden = true;
    number();
  };

  settings.addEventListener("input", () => {
    if (byHand) edited.hidden = false;
    else write();
  });
  settings.addEventListener("submit", (event) => {
    event.preventDefault();
    write();
  });
  config.form.addEventListener("submit", () => {
    config.form.elements.settings.value = new URLSearchParams(new FormData(settings));
  });
  document.querySelector("[data-rewrite]").addEventListener("click", () => {
    write();
    config.focus();
  });
  config.addEventListener("input", () => {
    byHand = true;
    number();
  });
  config.addEventListener("scroll", () => { gutter.scrollTop = config.scrollTop; });

  document.addEventListener("click", (event) => {
    const line = Number(event.target.closest("[data-line]")?.dataset.line);
    if (!line) return;
    const lines = config.value.split("\n");
    const start = lines.slice(0, line - 1).reduce((sum, text) => sum + text.length + 1, 0);
    config.focus();
    config.setSelectionRange(start, start + (lines[line - 1] ?? "").length);
    config.scrollTop = (line - 4) * parseFloat(getComputedStyle(config).lineHeight);
  });
  number();
})();
