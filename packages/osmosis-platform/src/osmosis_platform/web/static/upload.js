// Sends dataset files in parts, several at once, and goes on where an earlier try was interrupted. Without script the form sends small files.
(() => {
  "use strict";
  const form = document.querySelector("[data-upload]");
  const list = document.querySelector("[data-uploads]");
  const input = document.getElementById("file");
  const send = form.querySelector("[data-send]");
  const base = form.dataset.upload;
  const csrf = form.elements.csrf.value;
  const AT_ONCE = 3;
  const TRIES = 4;

  const element = (tag, text = "", name = "") => {
    const made = document.createElement(tag);
    made.textContent = text;
    made.className = name;
    return made;
  };

  const post = async (path, values, signal) => {
    const body = new URLSearchParams([["csrf", csrf], ...values]);
    const answer = await fetch(base + path, { method: "POST", body, signal, headers: { Accept: "application/json" } });
    const told = await answer.json();
    if (!answer.ok) throw Object.assign(new Error(told.error ?? `The platform answered ${answer.status}.`), { told });
    return told;
  };

  // Bytes that are there already need not travel again; where the browser cannot hash, all are sent.
  const isThere = async (blob, hash) => {
    if (!hash || !crypto.subtle) return false;
    const digest = await crypto.subtle.digest("SHA-256", await blob.arrayBuffer());
    return [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, "0")).join("") === hash;
  };

  const put = (url, blob, progress, signal) => new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    const stop = () => request.abort();
    request.open("PUT", url);
    request.upload.addEventListener("progress", (event) => progress(event.loaded));
    request.addEventListener("load", () => {
      if (request.status === 200) resolve(request.getResponseHeader("ETag"));
      else reject(Object.assign(new Error(`A part was refused with status ${request.status}.`), { final: request.status < 500 && request.status !== 429 }));
    });
    request.addEventListener("error", () => reject(new Error("The connection was interrupted. Choose the same file again to go on.")));
    request.addEventListener("abort", () => reject(new DOMException("stopped", "AbortError")));
    request.addEventListener("loadend", () => signal.removeEventListener("abort", stop));
    signal.addEventListener("abort", stop);
    request.send(blob);
  });

  const patiently = async (action, signal) => {
    for (let tried = 1; ; tried += 1) {
      try {
        return await action();
      } catch (error) {
        if (signal.aborted || error.final || tried === TRIES) throw error;
        await new Promise((resolve) => { setTimeout(resolve, 500 * 2 ** tried); });
      }
    }
  };

  const sendParts = async (plan, file, show, signal) => {
    const etags = [];
    const sent = new Map();
    const starts = plan.parts.map((_, at) => plan.parts.slice(0, at).reduce((sum, part) => sum + part.size, 0));
    const tell = () => show([...sent.values()].reduce((sum, bytes) => sum + bytes, 0));
    const waiting = plan.parts.map((part, at) => ({ ...part, at }));
    const work = async () => {
      for (let part = waiting.shift(); part; part = waiting.shift()) {
        const blob = file.slice(starts[part.at], starts[part.at] + part.size);
        const hash = plan.there[part.number];
        if (await isThere(blob, hash)) {
          etags[part.at] = hash;
        } else {
          etags[part.at] = await patiently(() => put(part.url, blob, (bytes) => { sent.set(part.number, bytes); tell(); }, signal), signal);
        }
        sent.set(part.number, part.size);
        tell();
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    return etags;
  };

  const LONGEST_WAIT_MS = 10_000;
  // Tells how the check of the rows ended, as the page of the dataset does; falls silent where that page is gone.
  const followCheck = async (address, tell) => {
    for (let wait = 500; ; wait = Math.min(LONGEST_WAIT_MS, 1.5 * wait)) {
      await new Promise((resolve) => { setTimeout(resolve, wait); });
      const answer = await fetch(address, { headers: { Accept: "text/html" } }).catch(() => null);
      if (!answer || answer.status >= 500) continue;
      if (!answer.ok || answer.redirected) return tell("", true);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const status = page.getElementById("status")?.textContent.trim();
      if (status === "uploaded") return tell("Uploaded and checked.", true);
      if (status === "error") return tell(page.querySelector("#facts .alert")?.textContent ?? "The check failed.", false);
      if (status === "cancelled") return tell("", true);
    }
  };

  const upload = async (file, overwrite = "") => {
    const item = element("li");
    const name = element("bdi", file.name, "upload-name");
    const status = element("span", "Starting…", "soft");
    const progress = element("progress");
    const cancel = element("button", "Cancel");
    const control = new AbortController();
    let begun = null;
    progress.max = file.size;
    progress.setAttribute("aria-label", `Upload of ${file.name}`);
    cancel.type = "button";
    cancel.addEventListener("click", () => control.abort());
    item.append(name, status, cancel, progress);
    list.prepend(item);
    const end = (text, good) => {
      status.textContent = text;
      status.className = good ? "good-text" : "fail";
      progress.remove();
      cancel.remove();
    };
    try {
      if (file.size > Number(form.dataset.limit)) throw new Error("The file is too large.");
      begun = await post("/uploads", [["name", file.name], ["size", file.size], ["overwrite", overwrite]], control.signal);
      const etags = await sendParts(begun, file, (bytes) => {
        progress.value = bytes;
        status.textContent = `${Math.floor((100 * bytes) / file.size)} %`;
      }, control.signal);
      await patiently(() => post(`/${begun.id}/complete`, etags.map((etag) => ["etag", etag]), control.signal), control.signal);
      end("Uploaded. Every row is checked now.", true);
      const link = element("a", "Open the dataset");
      link.href = `${base}/${begun.id}`;
      item.append(link);
      followCheck(link.href, end);
    } catch (error) {
      if (control.signal.aborted) {
        if (begun) await post(`/${begun.id}/abort`, []).catch(() => null);
        end("Cancelled.", false);
      } else if (error.told?.code === "DATASET_EXISTS") {
        end("There is a dataset of this name already.", false);
        const replace = element("button", "Replace it");
        replace.type = "button";
        replace.addEventListener("click", () => { item.remove(); upload(file, error.told.existing_dataset_id); });
        item.append(replace);
        replace.focus();
      } else {
        end(error.message, false);
      }
    }
  };

  const start = async (files) => {
    for (const file of files) await upload(file);
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const files = [...input.files];
    form.reset();
    start(files);
  });
  input.multiple = true;
  input.addEventListener("change", () => { send.textContent = input.files.length > 1 ? `Upload ${input.files.length} files` : "Upload"; });

  const mark = (on) => form.classList.toggle("over", on);
  form.addEventListener("dragover", (event) => { event.preventDefault(); mark(true); });
  form.addEventListener("dragleave", (event) => { if (!form.contains(event.relatedTarget)) mark(false); });
  form.addEventListener("drop", (event) => {
    event.preventDefault();
    mark(false);
    start([...event.dataTransfer.files]);
  });
  document.documentElement.dataset.upload = "ready";
})();
