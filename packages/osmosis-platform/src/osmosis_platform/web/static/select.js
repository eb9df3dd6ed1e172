// Choosing several things of a list: all at once, and how many are chosen. Without script the boxes and buttons work as they are.
(() => {
  "use strict";
  const form = document.getElementById("bulk");
  if (!form) return;
  const chosen = new Set();
  const boxes = () => [...document.querySelectorAll('input[type="checkbox"][form="bulk"]')];
  const count = form.querySelector("[data-count]");

  const tell = () => {
    const all = document.querySelector("[data-select-all]");
    const there = boxes();
    const marked = there.filter((box) => box.checked);
    chosen.clear();
    marked.forEach((box) => chosen.add(box.value));
    form.querySelectorAll("button").forEach((button) => { button.disabled = marked.length === 0; });
    count.textContent = marked.length === 0 ? "None chosen" : `${marked.length} chosen`;
    if (all) {
      all.checked = marked.length > 0 && marked.length === there.length;
      all.indeterminate = marked.length > 0 && marked.length < there.length;
    }
  };

  document.addEventListener("change", (event) => {
    const all = event.target.matches("[data-select-all]");
    if (all) boxes().forEach((box) => { box.checked = event.target.checked; });
    if (all || event.target.matches('[form="bulk"]')) tell();
  });
  // A list that follows what happens replaces its rows: what was chosen stays chosen.
  const list = document.getElementById("list");
  if (list) {
    new MutationObserver(() => {
      boxes().forEach((box) => { box.checked = chosen.has(box.value); });
      tell();
    }).observe(list, { childList: true });
  }
  addEventListener("pageshow", tell); // browsers fill boxes in again on the way back
  tell();
})();
