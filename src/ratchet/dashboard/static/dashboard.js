// Times in the viewer's zone, live parts of a page, copying, selecting. Without it every page still works.
"use strict";
(() => {
  const body = document.body;
  const POLL = 5000, TICK = 10000, SOON = 250;
  // after so long a submitted form has led nowhere: somebody has stopped it
  const STAYED = 30000;
  // the server ends each stream after ten minutes: one that is older was cut somewhere, and the browser has not noticed
  const OLD = 660000;

  // --- times ---
  const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
  const day = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
  const near = new Intl.RelativeTimeFormat(undefined, { numeric: "auto", style: "short" });
  const units = [["second", 1], ["minute", 60], ["hour", 3600], ["day", 86400]];
  function relative(then) {
    const seconds = (then - Date.now()) / 1000, length = Math.abs(seconds);
    if (length >= 172800) return day.format(then);
    let chosen = units[0];
    for (const unit of units) if (length >= unit[1]) chosen = unit;
    return near.format(Math.trunc(seconds / chosen[1]), chosen[0]);
  }
  function localize(root) {
    for (const time of root.querySelectorAll("time[datetime]")) {
      const then = new Date(time.dateTime);
      if (isNaN(then)) continue;
      const text = "exact" in time.dataset ? day.format(then) : relative(then);
      if (time.textContent !== text) time.textContent = text;
      time.title = `${exact.format(then)} (${time.dateTime})`;
    }
    localizeTicks(root);
  }
  const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
  function localizeTicks(root) {
    for (const tick of root.querySelectorAll("text[data-time]")) {
      const then = new Date(tick.dataset.time);
      if (!isNaN(then)) tick.textContent = clock.format(then);
    }
  }
  const zone = document.getElementById("zone");
  if (zone) zone.textContent = `Times in ${Intl.DateTimeFormat().resolvedOptions().timeZone}`;

  // --- copying and selecting ---
  function prepare(root) {
    if (navigator.clipboard) for (const button of root.querySelectorAll("[data-copy]")) button.hidden = false;
    for (const log of root.querySelectorAll("[data-follow]")) log.scrollTop = log.scrollHeight;
    localize(root);
    count();
  }
  function count() {
    const told = document.querySelector("[data-selected]");
    if (!told) return;
    if (!told.dataset.none) told.dataset.none = told.textContent;
    const chosen = document.querySelectorAll('input[name="id"]:checked').length;
    told.textContent = chosen ? `${chosen} selected:` : told.dataset.none;
  }
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const label = button.firstChild, text = label.textContent;
    try { await navigator.clipboard.writeText(button.dataset.copy); label.textContent = "Copied"; }
    catch { label.textContent = "Not allowed"; }
    setTimeout(() => { label.textContent = text; }, 1500);
  });
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-all]"))
      for (const box of document.querySelectorAll('input[name="id"]')) box.checked = event.target.checked;
    count();
  });
  document.addEventListener("keydown", (event) => {
    const field = event.target.closest("input, select, textarea");
    if (event.key === "/" && !field && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      document.getElementById("q").focus();
    }
    if (event.key === "Escape") {
      const open = event.target.closest("details.sure[open]");
      if (open) { open.open = false; open.querySelector("summary").focus(); }
    }
  });
  let leaving = false, stay = null, look = () => {};
  document.addEventListener("submit", (event) => {
    // what is under way leads to another page: a look that comes meanwhile must not lead back to this one
    if (event.target.method !== "get") {
      leaving = true;
      clearTimeout(stay);
      // what was told of meanwhile is not told again
      stay = setTimeout(() => { leaving = false; look(); }, STAYED);
      return;
    }
    // an empty field says nothing: addresses stay short
    for (const field of event.target.elements)
      if (field.name && !field.value) { field.disabled = true; setTimeout(() => { field.disabled = false; }); }
  });

  // --- suggestions: the names that there are, asked for when somebody begins to search ---
  const search = document.getElementById("q"), suggestions = document.getElementById("suggestions");
  search?.addEventListener("focus", async () => {
    try {
      const answer = await fetch(`${search.form.action}?limit=1`, { headers: { Accept: "application/json" } });
      if (!answer.ok) return;
      for (const [kind, names] of Object.entries((await answer.json()).known))
        for (const name of names) {
          const option = document.createElement("option");
          option.value = /[\s"']/.test(name) ? `${kind}:"${name.replaceAll('"', "")}"` : `${kind}:${name}`;
          suggestions.append(option);
        }
    } catch { /* the search works without */ }
  }, { once: true });

  // --- live ---
  if (!body.dataset.live || !document.querySelector("[data-live][id]")) { prepare(document); return; }
  const offline = document.getElementById("offline");
  let source = null, opened = 0, timer = null, retry = null, asking = false, again = false, failures = 0;
  const tags = new Map();

  function keep(old, fresh) {
    // what a person has opened, ticked or is reading stays as it is
    for (const one of old.querySelectorAll("details[id]")) {
      const other = fresh.querySelector(`details[id="${CSS.escape(one.id)}"]`);
      if (other) other.open = one.open;
    }
    for (const one of old.querySelectorAll('input[name="id"]:checked')) {
      const other = fresh.querySelector(`input[name="id"][value="${CSS.escape(one.value)}"]`);
      if (other) other.checked = true;
    }
    for (const one of old.querySelectorAll("select[id]")) {
      const other = fresh.querySelector(`select[id="${CSS.escape(one.id)}"]`);
      if (other && one.value !== one.querySelector("option[selected], option")?.value) other.value = one.value;
    }
  }
  function scrolled(old) {
    return [...old.querySelectorAll(".scroll, pre, .log")].map((one) =>
      [one.scrollLeft, one.scrollTop, one.scrollTop + one.clientHeight >= one.scrollHeight - 4]);
  }
  function address(element) {
    if (!element || element === body) return null;
    if (element.id) return `#${CSS.escape(element.id)}`;
    if (element.name && element.value) return `[name="${CSS.escape(element.name)}"][value="${CSS.escape(element.value)}"]`;
    const href = element.getAttribute("href");
    if (href) return `a[href="${CSS.escape(href)}"]`;
    const action = element.form && element.form.getAttribute("action");
    return action ? `form[action="${CSS.escape(action)}"] ${element.localName}` : null;
  }
  function replace(fresh) {
    for (const part of fresh.querySelectorAll("[data-live][id]")) {
      const old = document.getElementById(part.id);
      localize(part);
      if (!old || !old.matches("[data-live]")) { if (!old) location.reload(); return; }
      keep(old, part);
      if (old.isEqualNode(part)) continue;
      const places = scrolled(old), focus = old.contains(document.activeElement) ? address(document.activeElement) : null;
      const made = document.adoptNode(part);
      old.replaceWith(made);
      for (const button of made.querySelectorAll("[data-copy]")) button.hidden = !navigator.clipboard;
      [...made.querySelectorAll(".scroll, pre, .log")].forEach((one, index) => {
        const place = places[index];
        if (!place) return;
        one.scrollLeft = place[0];
        one.scrollTop = one.matches("[data-follow]") && place[2] ? one.scrollHeight : place[1];
      });
      if (focus) made.querySelector(focus)?.focus({ preventScroll: true });
    }
    for (const old of document.querySelectorAll("[data-live][id]"))
      if (!fresh.gone && !known.has(old.id)) old.remove();
    count();
  }
  let known = new Set();
  async function refresh() {
    if (document.hidden || leaving) return;
    if (asking) { again = true; return; }
    asking = true;
    try {
      const headers = { "Ratchet-Fragment": "1", Accept: "text/html" };
      if (tags.has("page")) headers["If-None-Match"] = tags.get("page");
      const answer = await fetch(location.href, { headers, cache: "no-store", redirect: "error" });
      const text = answer.status === 200 ? await answer.text() : "";
      if (leaving) return;
      if (answer.status === 200) {
        const fresh = new DOMParser().parseFromString(text, "text/html");
        known = new Set([...fresh.querySelectorAll("[data-live][id]")].map((one) => one.id));
        replace(fresh);
        tags.set("page", answer.headers.get("ETag"));
      } else if (answer.status === 404 && !document.getElementById("problem")) {
        location.reload();
        return;
      }
      failures = answer.status >= 500 ? failures + 1 : 0;
    } catch { failures += 1; }
    finally { asking = false; }
    offline.hidden = failures === 0;
    // nobody tells of the end: what was told of while this page could not be read is not told again
    if (failures && !retry) retry = setTimeout(() => { retry = null; refresh(); }, POLL);
    if (again) { again = false; setTimeout(refresh, SOON); }
  }
  function poll() {
    stop();
    timer = setInterval(refresh, POLL);
  }
  function start() {
    stop();
    if (document.hidden) return;
    if (body.dataset.streams !== "yes" || !window.EventSource) { poll(); return; }
    source = new EventSource(`${body.dataset.live}?page=${encodeURIComponent(body.dataset.page)}`);
    opened = Date.now();
    source.onopen = () => { opened = Date.now(); };
    source.addEventListener("changed", () => setTimeout(refresh, SOON));
    source.onerror = () => {
      // refused for good: poll; a connection that was lost comes back by itself, and is looked at meanwhile
      if (source && source.readyState === EventSource.CLOSED) poll();
      refresh();
    };
  }
  function stop() {
    if (source) { source.close(); source = null; }
    if (timer) { clearInterval(timer); timer = null; }
  }
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) stop();
    else { refresh(); start(); }
  });
  addEventListener("pagehide", stop);
  addEventListener("pageshow", (event) => { if (event.persisted) { leaving = false; refresh(); start(); } });
  setInterval(() => {
    if (document.hidden) return;
    localize(document);
    if (source && Date.now() - opened > OLD) { refresh(); start(); }
  }, TICK);
  look = refresh;
  prepare(document);
  start();
})();
