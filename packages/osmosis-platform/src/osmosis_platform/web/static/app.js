// Theme toggle, questions before something is stopped, copying. Everything here is an improvement: pages work without.
(() => {
  "use strict";
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const announce = () => {
    document.querySelectorAll("[data-toggle-theme]").forEach((button) => {
      button.textContent = dark() ? "Light theme" : "Dark theme";
    });
    document.dispatchEvent(new Event("theme"));
  };

  document.addEventListener("click", (event) => {
    if (!event.target.closest("[data-toggle-theme]")) return;
    root.dataset.theme = dark() ? "light" : "dark";
    try {
      localStorage.setItem("theme", root.dataset.theme);
    } catch {
      // Storage is off: the choice lasts until the next page.
    }
    announce();
  });
  system.addEventListener("change", announce);
  announce();

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const source = document.querySelector(button.dataset.copy);
    try {
      await navigator.clipboard.writeText(source.textContent);
      button.textContent = "Copied";
    } catch {
      // No clipboard without HTTPS: the text is marked, ready for the keyboard.
      getSelection().selectAllChildren(source);
    }
  });

  // On narrow screens menu and tabs are one line each that scrolls: the page's own entry is in sight.
  document.querySelectorAll(".side nav [aria-current], .tabs [aria-current]").forEach((here) => {
    const line = here.parentElement;
    line.scrollLeft = here.offsetLeft - (line.clientWidth - here.offsetWidth) / 2;
  });

  document.querySelector("[data-go-on]")?.requestSubmit();

  document.addEventListener("submit", (event) => {
    const question = event.target.dataset.confirm;
    if (question && !confirm(question)) event.preventDefault();
  });
})();
