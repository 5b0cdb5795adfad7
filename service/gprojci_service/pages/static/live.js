// Small conveniences, all of them optional: every page works without this file.
"use strict";
(() => {
  // Filters apply as soon as a choice changes; without scripts the form's own button does it.
  document.addEventListener("change", (event) => {
    const form = event.target.closest("form[data-autosubmit]");
    if (form) form.requestSubmit();
  });

  // Copy buttons name the element whose text they copy.
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button[data-copy]");
    if (!button) return;
    const label = button.querySelector("[data-label]") ?? button;
    const before = label.textContent;
    try {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
      label.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(document.getElementById(button.dataset.copy));
      label.textContent = "Selected: press Ctrl+C";
    }
    setTimeout(() => (label.textContent = before), 2000);
  });

  // A search field narrows the rows of the table or list it names.
  document.addEventListener("input", (event) => {
    const field = event.target.closest("input[data-narrows]");
    if (!field) return;
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of document.querySelectorAll(`#${field.dataset.narrows} [data-row]`)) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      shown += row.hidden ? 0 : 1;
    }
    const count = document.getElementById(`${field.dataset.narrows}-count`);
    if (count) count.textContent = `${shown} shown`;
  });

  // Times in the reader's own zone, with UTC on hover; what is more than a day past reads as a date.
  const DAY = 86_400_000;
  const brief = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
  const whole = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
  function localTimes(root) {
    for (const time of root.querySelectorAll("time[datetime]:not([data-local])")) {
      time.dataset.local = "true";
      const moment = new Date(time.dateTime);
      time.title = `${whole.format(moment)}\n${time.title}`;
      if (Date.now() - moment > DAY) time.textContent = brief.format(moment);
    }
  }

  // Where the header's links are wider than the window, the one of this page is in sight.
  const here = document.querySelector(".top nav a[aria-current]");
  if (here) {
    const links = here.closest("nav");
    links.scrollLeft += here.getBoundingClientRect().right - links.getBoundingClientRect().right + 8;
  }

  // A log that was read at its end stays at its end while it grows.
  let atEnd = true;
  const log = () => document.querySelector(".log[data-follow]");
  document.addEventListener("scroll", (event) => {
    if (event.target === log()) atEnd = event.target.scrollHeight - event.target.scrollTop - event.target.clientHeight < 40;
  }, true);
  function follow() {
    const box = log();
    if (box && atEnd && !location.hash) box.scrollTop = box.scrollHeight;
  }

  // A link to a log line opens the log it is in.
  function openTarget() {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    target.closest("details:not([open])")?.setAttribute("open", "");
    target.scrollIntoView({ block: "center" });
  }

  new MutationObserver(() => { localTimes(document); follow(); }).observe(document.body, { childList: true, subtree: true });
  addEventListener("hashchange", openTarget);
  localTimes(document);
  follow();
  openTarget();
})();
