// Before the first paint, so that nobody sees the other theme flash by.
(() => {
  "use strict";
  const root = document.documentElement;
  root.classList.add("js");
  try {
    const saved = localStorage.getItem("theme");
    if (saved === "light" || saved === "dark") root.dataset.theme = saved;
  } catch {
    // Storage is off: the theme is the system's.
  }
})();
