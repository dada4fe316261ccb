// Polls the API and draws what it says. Every text goes in as text, never as markup.
"use strict";

const POLL_MS = 1000;
const EVENTS = 15;
const SVG = "http://www.w3.org/2000/svg";
// An answer that takes longer than this counts as no answer.
const PATIENCE_MS = 5000;

const html = (tag, attributes, ...children) => build(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => build(document.createElementNS(SVG, tag), attributes, children);

function build(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) element.setAttribute(name, value);
  element.append(...children.filter((child) => child !== null));
  return element;
}

const fixed = (value, digits = 1) => (value === null || value === undefined ? "–" : value.toFixed(digits));
const percent = (value) => `${(100 * value).toFixed(1)} %`;
const words = (name) => name.replaceAll("_", " ");

async function get(path) {
  const answer = await fetch(path, { signal: AbortSignal.timeout(PATIENCE_MS) });
  if (!answer.ok) throw new Error(`${path}: HTTP ${answer.status}`);
  return answer.json();
}

const fact = (name, value, kind = "") => html("span", {}, `${name} `, html("b", { class: kind }, value));

function facts(view) {
  const method = view.method_name === "" ? words(view.method) : `${view.method_name} (${words(view.method)})`;
  return html("div", { class: "facts" },
    fact("phase", words(view.phase), view.phase),
    fact("method", method),
    fact("epoch", String(view.epoch)),
    fact("traffic", `${fixed(view.rate_rps)} req/s`),
    fact("response time", `${fixed(view.latency_ms)} ms`),
    fact("plan expects", `${fixed(view.plan.expected_ms)} ms`),
    fact("capacity in use", view.plan.capacity_rps > 0 ? `${fixed(view.plan.capacity_rps)} req/s` : "not known yet"));
}

function notices(view) {
  const notices = [];
  if (view.trouble !== null) notices.push(html("p", { class: "trouble" }, view.trouble));
  const advice = view.plan.advice;
  if (advice !== null) {
    notices.push(html("p", { class: "advice" },
      `${advice.method} would serve better: ${fixed(advice.expected_ms)} ms instead of ` +
      `${fixed(advice.present_ms)} ms (−${Math.round(100 * advice.gain)} %)`));
  }
  return notices;
}

function bar(share, greatest) {
  const width = greatest > 0 ? 100 * Math.min(1, share / greatest) : 0;
  return svg("svg", { viewBox: "0 0 100 8", preserveAspectRatio: "none", role: "img", "aria-label": percent(share) },
    svg("rect", { class: "track", width: 100, height: 8 }),
    svg("rect", { class: "fill", width, height: 8 }));
}

function table(heads, rows) {
  const head = html("tr", {}, ...heads.map(([name, kind]) => html("th", { class: kind, scope: "col" }, name)));
  return html("div", { class: "scroll" }, html("table", {}, html("thead", {}, head), html("tbody", {}, ...rows)));
}

function weights(view) {
  const greatest = Math.max(...view.backends.map((backend) => backend.share));
  const rows = view.backends.map((b) => html("tr", {},
    html("td", {}, b.backend),
    html("td", { class: b.state }, words(b.state)),
    html("td", { class: "n" }, String(b.weight)),
    html("td", { class: b.programmed === b.weight ? "n" : "n bad" }, b.programmed === null ? "–" : String(b.programmed)),
    html("td", { class: "n" }, percent(b.share)),
    html("td", { class: "bar" }, bar(b.share, greatest)),
    html("td", { class: "n" }, fixed(b.latency_ms)),
    html("td", { class: "n" }, fixed(b.expected_ms)),
    html("td", { class: "why" }, b.reason)));
  return table([["backend", ""], ["state", ""], ["weight", "n"], ["programmed", "n"], ["share", "n"], ["", ""],
    ["latency (ms)", "n"], ["expected (ms)", "n"], ["why", ""]], rows);
}

// The part of a curve worth seeing: near capacity it rises without bound.
function ceiling(curve, now) {
  const seen = curve.points.map(([, ms]) => ms).concat(now === null ? [] : [now.ms]);
  const top = 1.25 * Math.max(5 * curve.l0_ms, ...seen);
  const highest = Math.max(...curve.line.map(([, ms]) => ms), ...seen, curve.l0_ms);
  return Math.max(Math.min(top, 1.05 * highest), 1e-6);
}

function plot(curve, backend, rate) {
  const now = backend && backend.latency_ms !== null ? { rps: backend.share * rate, ms: backend.latency_ms } : null;
  const right = 1.05 * Math.max(curve.capacity_rps, now?.rps ?? 0, ...curve.points.map(([rps]) => rps), 1e-6);
  const top = ceiling(curve, now);
  const [w, h, left, foot] = [260, 150, 40, 20];
  const x = (rps) => left + (w - left - 6) * rps / right;
  const y = (ms) => 8 + (h - foot - 8) * (1 - Math.min(ms, top) / top);
  const shown = curve.line.filter(([, ms]) => ms <= top);
  const path = shown.map(([rps, ms], i) => `${i ? "L" : "M"}${x(rps).toFixed(1)} ${y(ms).toFixed(1)}`).join("");
  const label = (px, py, anchor, text) => svg("text", { x: px, y: py, "text-anchor": anchor }, text);
  return svg("svg", { class: "plot", viewBox: `0 0 ${w} ${h}`, role: "img", "aria-label": `latency of ${curve.backend} over load` },
    svg("path", { class: "axis", d: `M${left} 8V${h - foot}H${w - 6}` }),
    svg("line", { class: "limit", x1: x(curve.capacity_rps), x2: x(curve.capacity_rps), y1: 8, y2: h - foot }),
    ...curve.points.map(([rps, ms]) => svg("circle", { class: "point", cx: x(rps), cy: y(ms), r: 2 })),
    svg("path", { class: "curve", d: path }),
    now === null ? null : svg("circle", { class: "now", cx: x(now.rps), cy: y(now.ms), r: 5 }),
    label(left - 4, 14, "end", fixed(top, 0)),
    label(left - 4, h - foot, "end", "0 ms"),
    label(left, h - 6, "start", "0"),
    label(w - 6, h - 6, "end", `${fixed(right, 0)} req/s`));
}

function curves(view) {
  const figures = view.curves.map((curve) => {
    const backend = view.backends.find((b) => b.backend === curve.backend);
    const least = curve.capacity_is_lower_bound ? "≥ " : "";
    return html("figure", {}, plot(curve, backend, view.rate_rps),
      html("figcaption", {}, html("b", {}, curve.backend),
        ` ${fixed(curve.l0_ms)} ms unloaded, ${least}${fixed(curve.capacity_rps)} req/s, ${curve.family}`));
  });
  return html("div", { class: "curves" }, ...figures);
}

function decisions(events) {
  const rows = events.toReversed().map((e) => html("tr", {},
    html("td", {}, new Date(e.time).toLocaleTimeString()),
    html("td", { class: e.kind === "failed" || e.kind === "rollback" ? "bad" : "" }, words(e.kind)),
    html("td", {}, e.backend ?? ""),
    html("td", { class: "why" }, e.reason)));
  return table([["time", ""], ["what", ""], ["backend", ""], ["why", ""]], rows);
}

function card(view, events) {
  const parts = [html("h2", {}, view.service), facts(view), ...notices(view), html("h3", {}, "Weights"), weights(view)];
  if (view.curves.length > 0) parts.push(html("h3", {}, "Latency over load"), curves(view));
  if (events.length > 0) parts.push(html("h3", {}, "Last decisions"), decisions(events));
  return html("section", {}, ...parts);
}

async function refresh() {
  const link = document.getElementById("link");
  try {
    const { services } = await get("/v1/services");
    const cards = await Promise.all(services.map(async ({ service }) => {
      const path = `/v1/services/${encodeURIComponent(service)}`;
      const [view, { events }] = await Promise.all([get(path), get(`${path}/events?limit=${EVENTS}`)]);
      return card(view, events);
    }));
    document.getElementById("services").replaceChildren(...cards);
    const ready = services.filter((service) => service.ready).length;
    link.textContent = `${ready} of ${services.length} services ready · ${new Date().toLocaleTimeString()}`;
    link.className = ready === services.length ? "" : "bad";
  } catch (error) {
    link.textContent = `no answer (${error.message}); what is shown may be old`;
    link.className = "bad";
  }
  setTimeout(refresh, POLL_MS);
}

refresh();
