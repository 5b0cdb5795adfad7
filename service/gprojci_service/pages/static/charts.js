// Draws every chart of the page: reads the figure from its JSON block, restyles it for dark and for paper, keeps it so.
"use strict";
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const PAPER = 680; // pixels between the margins of A4 and Letter
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const DOUBLE = 500; // milliseconds in which two clicks are a double click

  function recoloured(value, colours) {
    if (typeof value === "string") return colours[value] ?? value;
    if (Array.isArray(value)) return value.map((item) => recoloured(item, colours));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, recoloured(item, colours)]));
    }
    return value;
  }

  function merge(target, patch) {
    for (const [key, value] of Object.entries(patch)) {
      if (value && typeof value === "object" && !Array.isArray(value)) merge((target[key] ??= {}), value);
      else target[key] = value;
    }
  }

  // Moments in what a mark says: in the reader's own zone, then as they came.
  const zoned = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
  const UTC = /\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC/g;
  const local = (text) =>
    text?.replace?.(UTC, (found) => `${zoned.format(new Date(found.replace(" UTC", "Z").replace(" ", "T")))} (${found})`) ?? text;

  // The part of a history that is looked at stands in the address: `SHA..SHA`, and the vertical ends where they differ.
  const ZOOM = /^([0-9a-f]{4,40})\.\.([0-9a-f]{4,40})(?:,(-?[\d.e-]+)\.\.(-?[\d.e-]+))?$/;

  function zoomed(places) {
    const found = ZOOM.exec(new URLSearchParams(location.search).get("zoom") ?? "");
    if (!found) return null;
    const [first, last] = [found[1], found[2]].map((sha) =>
      places.findIndex((place) => sha.startsWith(place.slice(3, 11)) || place.slice(3, 11).startsWith(sha)));
    if (first < 0 || last < first || (first === 0 && last === places.length - 1 && !found[3])) return null;
    const wanted = { "xaxis.range": [first - 0.4, last + 0.4] };
    if (found[3]) wanted["yaxis.range"] = [Number(found[3]), Number(found[4])];
    return wanted;
  }

  function remember(box, { places, resampled }, whole) {
    const [left, right] = box.layout.xaxis.range;
    const first = Math.max(0, Math.ceil(left)), last = Math.min(places.length - 1, Math.floor(right));
    const ends = box.layout.yaxis.range.map((end) => Number(end.toPrecision(4)));
    const tall = !box.layout.yaxis.autorange && ends.some((end, place) => end !== whole[place]);
    let zoom = "";
    if (last >= first && (first > 0 || last < places.length - 1 || tall)) {
      zoom = `${places[first].slice(3, 11)}..${places[last].slice(3, 11)}${tall ? `,${ends.join("..")}` : ""}`;
    }
    const address = new URL(location.href);
    const before = address.searchParams.get("zoom") ?? "";
    if (zoom) address.searchParams.set("zoom", zoom);
    else address.searchParams.delete("zoom");
    history.replaceState(null, "", address);
    for (const field of document.querySelectorAll('input[name="zoom"]')) {
      field.value = zoom;
      if (resampled && zoom !== before) field.form.requestSubmit(); // for the values between those that are here
    }
  }

  // A click on a mark leads to its job. Where a part is looked at, it may be the first of two that bring back the whole;
  // the second is a click as well, on what then lies under it.
  function lead(box) {
    const axes = () => Object.keys(box.layout).filter((key) => /^[xy]axis/.test(key));
    const ranges = () => JSON.stringify(axes().map((key) => box.layout[key].range));
    const whole = ranges();
    let leaving, restored = false;
    box.on("plotly_doubleclick", () => {
      clearTimeout(leaving);
      restored = true;
      setTimeout(() => { restored = false; });
    });
    box.on("plotly_click", (event) => {
      const address = event.points[0]?.customdata;
      if (restored || typeof address !== "string" || !address.startsWith("/") || address.startsWith("//")) return;
      clearTimeout(leaving);
      leaving = setTimeout(() => {
        if (window === top) location.assign(address);
        else open(address, "_blank", "noopener"); // in a frame on another site, which no page but this may stand in
      }, ranges() === whole ? 0 : DOUBLE);
    });
  }

  function draw(figure, paper = false) {
    const box = figure.querySelector(".plot");
    const source = JSON.parse(figure.querySelector('script[type="application/json"]').textContent);
    const { meta, ...layout } = source.layout;
    const colours = dark.matches && !paper ? meta?.dark ?? {} : {};
    const drawn = { data: recoloured(source.data, colours), layout: recoloured(layout, colours) };
    for (const trace of drawn.data) {
      if (Array.isArray(trace.text)) trace.text = trace.text.map(local);
    }
    if (paper) Object.assign(drawn.layout, { width: PAPER, autosize: false });
    if (box.clientWidth < 520) {
      merge(drawn.layout, meta?.narrow ?? {});
      for (const trace of drawn.data) {
        if (trace.mode === "markers+text") trace.mode = "markers";
      }
    }
    // A text for each place on the axis comes once, not with every value that stands there.
    for (const trace of drawn.data) {
      if (meta?.places && !trace.hovertext && trace.hovertemplate?.includes("%{hovertext}")) {
        trace.hovertext = trace.x.map((place) => local(meta.places[place]));
      }
    }
    box.style.height = `${drawn.layout.height}px`; // which plotly takes instead of the figure's when the window changes
    drawn.layout.transition = calm.matches ? { duration: 0 } : undefined;
    return Plotly.react(box, drawn.data, drawn.layout, {
      responsive: true,
      displaylogo: false,
      displayModeBar: false,
      doubleClick: "reset",
      doubleClickDelay: DOUBLE,
    }).then(() => {
      box.setAttribute("data-drawn", "true");
      const heard = box.dataset.listening;
      box.dataset.listening = "true";
      if (!heard) lead(box);
      if (meta?.places) {
        const whole = box.layout.yaxis.range.map((end) => Number(end.toPrecision(4)));
        const wanted = paper ? null : zoomed(meta.places);
        if (wanted) Plotly.relayout(box, wanted);
        if (!heard) box.on("plotly_relayout", (event) => {
          if (Object.keys(event).some((key) => /^[xy]axis/.test(key))) remember(box, meta, whole);
        });
      }
    });
  }

  function drawAll(paper = false) {
    for (const figure of document.querySelectorAll("figure.chart")) draw(figure, paper);
  }

  dark.addEventListener("change", () => drawAll());
  addEventListener("beforeprint", () => drawAll(true));
  addEventListener("afterprint", () => drawAll());
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", () => drawAll());
  else drawAll();
})();
