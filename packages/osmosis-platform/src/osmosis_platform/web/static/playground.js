// A conversation with a model. It lives in this page only; what the model says is text, never markup.
(() => {
  "use strict";
  const chat = document.querySelector("[data-chat]");
  if (!chat) return;
  const turns = chat.querySelector("[data-turns]");
  const form = chat.querySelector("[data-say]");
  const say = document.getElementById("say");
  const status = chat.querySelector("[data-status]");
  const button = (name) => chat.querySelector(`[data-${name}]`);
  const messages = []; // {role, content}
  let control = null;

  // Terminal codes, control characters and text that turns a line around have no place in an answer.
  const plain = (text) => text
    .replace(/\x1b\[[0-?]*[ -/]*[@-~]/g, "")
    .replace(/[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]/g, "")
    .replace(/[\u202a-\u202e\u2066-\u2069]/g, (found) => `\\u${found.charCodeAt(0).toString(16)}`);

  const turn = (source, who) => {
    const article = document.createElement("article");
    const head = document.createElement("h3");
    const body = document.createElement("div");
    article.className = `turn ${source}`;
    head.className = "who";
    head.textContent = who;
    body.className = "said";
    article.append(head, body);
    turns.querySelector("[data-placeholder]")?.remove();
    turns.append(article);
    turns.scrollTop = turns.scrollHeight;
    return body;
  };

  const numbers = () => {
    const found = {};
    for (const name of ["temperature", "top_p", "max_tokens", "seed"]) {
      const value = document.getElementById(name).value;
      if (value !== "") found[name] = Number(value);
    }
    return found;
  };

  const request = () => {
    const system = document.getElementById("system").value;
    const before = system.trim() ? [{ role: "system", content: system }] : [];
    return { model: document.getElementById("model").value, messages: [...before, ...messages], ...numbers() };
  };

  const events = async function* (answer) {
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        if (line.startsWith("data: ") && line !== "data: [DONE]") yield JSON.parse(line.slice(6));
      }
    }
  };

  const busy = (on) => {
    button("send").disabled = on;
    button("stop").hidden = !on;
    button("again").hidden = on || messages.at(-1)?.role !== "assistant";
    turns.setAttribute("aria-busy", on);
  };

  const answer = async () => {
    const asked = request();
    const body = turn("agent", plain(asked.model));
    let text = "";
    let tokens = null;
    const started = performance.now();
    const keep = () => {
      messages.push({ role: "assistant", content: text });
      if (!text) body.textContent = "(empty)";
    };
    control = new AbortController();
    status.textContent = "Waiting for the model…";
    busy(true);
    try {
      const reply = await fetch(chat.dataset.chat, {
        method: "POST",
        signal: control.signal,
        headers: { "Content-Type": "application/json", "X-CSRF-Token": chat.dataset.csrf },
        body: JSON.stringify(asked),
      });
      if (!reply.ok) {
        const told = await reply.json();
        throw new Error(told.error?.message ?? told.error ?? `The platform answered ${reply.status}.`);
      }
      for await (const event of events(reply)) {
        if (event.error) throw new Error(event.error.message);
        tokens = event.usage?.completion_tokens ?? tokens;
        const delta = event.choices?.[0]?.delta ?? {};
        const calls = (delta.tool_calls ?? []).map((call) => `${call.function?.name ?? ""}${call.function?.arguments ?? ""}`).join("");
        const more = (delta.content ?? "") + calls;
        if (more) {
          text += more;
          const atEnd = turns.scrollHeight - turns.scrollTop - turns.clientHeight < 60;
          body.textContent = plain(text);
          if (atEnd) turns.scrollTop = turns.scrollHeight;
        }
      }
      keep();
      const seconds = ((performance.now() - started) / 1000).toFixed(1);
      status.textContent = tokens === null ? `${seconds} s` : `${tokens} tokens in ${seconds} s`;
    } catch (error) {
      if (control.signal.aborted) {
        keep();
        status.textContent = "Stopped.";
      } else {
        const problem = document.createElement("div");
        problem.className = "fail";
        problem.setAttribute("role", "alert");
        problem.textContent = plain(error.message);
        body.append(problem);
        status.textContent = "";
        messages.pop(); // the question can be sent again
        say.value ||= asked.messages.at(-1).content;
      }
    } finally {
      control = null;
      busy(false);
      say.focus();
    }
  };

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const content = say.value.trim();
    if (!content || control) return;
    messages.push({ role: "user", content });
    turn("user", "You").textContent = plain(content);
    say.value = "";
    answer();
  });
  say.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  button("stop").addEventListener("click", () => control?.abort());
  button("again").addEventListener("click", () => {
    messages.pop();
    turns.lastElementChild.remove();
    answer();
  });
  button("clear").addEventListener("click", () => {
    control?.abort();
    messages.length = 0;
    turns.textContent = "";
    status.textContent = "";
    busy(false);
    say.focus();
  });
})();
