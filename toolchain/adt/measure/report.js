"use strict";
// Draws the page of benchmarks over time, with what web_page.js has.
(() => {
  const ms = (value) => (value >= 10000 ? `${(value / 1000).toPrecision(4)} s` : `${value.toPrecision(4)} ms`);
  const percent = (value) => `${value > 0 ? "+" : ""}${value.toFixed(1)} %`;
  const day = (when) => when.slice(0, 16).replace("T", " ");

  const earlier = data.against === "best" ? "the fastest earlier one" : "the one before";
  document.body.append(
    make("header", {},
      make("h1", {}, "Benchmarks"),
      make("p", {}, `${data.series.length} series; each result is compared with ${earlier} of its series. ` +
        `Worse by ${data.threshold} % or more, and by more than its runs differ: ` +
        `${data.regressed} of the newest results.`)),
  );
  const main = make("main");
  document.body.append(main);
  if (!data.series.length) main.append(make("p", { class: "empty" }, "Nothing was measured, or nothing that fits."));
  for (const series of data.series) main.append(article(series));
  document.querySelectorAll("svg").forEach(fit);

  function article(series) {
    const last = series.points[series.points.length - 1];
    const rows = series.points.map((point) => row(point));
    const timed = series.points.filter((point) => point.ms !== null);
    const title = make("h2", {}, `${series.package} `);
    if (series.regressed) title.append(make("span", { class: "mark regression" }, last.verdict));
    return make("article", { "data-package": series.package },
      title,
      make("p", {}, `${series.target} on ${series.platform} · ${series.machine || last.device} · ${series.method}`),
      series.note ? make("p", { class: "note" }, series.note) : null,
      timed.length ? timeLine(series, timed, rows) : null,
      make("div", { class: "table" }, make("table", {},
        make("thead", {}, make("tr", {}, ...["when", "p50", "p90", "p99", "change", "", "label"].map((name) =>
          make("th", { class: /^p\d|change/.test(name) ? "number" : false }, name)))),
        make("tbody", {}, ...rows.slice().reverse()))));
  }

  function row(point) {
    const number = (value) => make("td", { class: "number" }, value === null || value === undefined ? "" : ms(value));
    const words = [point.verdict === "no-speed" ? (point.correct === false ? "wrong" : "right") : point.verdict];
    if (point.changed.length) words.push(`changed: ${point.changed.join(", ")}`);
    words.push(...point.flags.map((flag) => flag.text));
    if (point.no_speed) words.push(point.no_speed);
    return make("tr", { id: `record-${point.id}` },
      make("td", { class: "when", title: point.device }, day(point.when)),
      number(point.p50), number(point.p90), number(point.p99),
      make("td", { class: `number ${point.verdict}` }, point.change === null ? "" : percent(point.change)),
      make("td", {}, make("span", { class: `mark ${point.verdict}` }, words[0]), words.length > 1 ? ` ${words.slice(1).join("; ")}` : ""),
      make("td", {}, point.label));
  }

  function timeLine(series, points, rows) {
    const [width, height, left, right, top, bottom] = [1120, 220, 74, 16, 12, 26];
    const at = points.map((point) => Date.parse(point.when));
    const [first, last] = [Math.min(...at), Math.max(...at)];
    const highest = Math.max(...points.flatMap((point) => [point.high, point.ms]));
    const ten = 10 ** Math.floor(Math.log10(highest / 4));
    const step = ten * [1, 2, 2.5, 5, 10].find((times) => times * ten * 4 >= highest);
    const most = step * 4;
    const x = (time) => (last === first ? (left + width - right) / 2
      : left + ((time - first) / (last - first)) * (width - left - right));
    const y = (value) => height - bottom - (value / most) * (height - top - bottom);
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img",
      "aria-label": `${series.headline} over time, in milliseconds, from zero` });
    for (let value = 0; value <= most * 1.001; value += step) {
      svg.append(draw("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }),
        draw("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" },
          `${Number(value.toPrecision(3))} ms`));
    }
    for (const [time, anchor] of last === first ? [[first, "middle"]] : [[first, "start"], [last, "end"]]) {
      svg.append(draw("text", { x: x(time), y: height - 6, "text-anchor": anchor }, day(new Date(time).toISOString())));
    }
    svg.append(draw("path", { class: "way", d: points.map((p, i) => `${i ? "L" : "M"}${x(at[i])},${y(p.ms)}`).join("") }));
    points.forEach((point, index) => {
      const pick = () => {
        for (const other of rows) other.classList.toggle("picked", other.id === `record-${point.id}`);
      };
      svg.append(
        draw("line", { class: "range", x1: x(at[index]), x2: x(at[index]), y1: y(point.low), y2: y(point.high) }),
        draw("circle", { class: `dot ${point.verdict}`, cx: x(at[index]), cy: y(point.ms), r: 5, tabindex: 0,
          "data-record": point.id, on: { click: pick, focus: pick } },
        draw("title", {}, `${day(point.when)}: ${series.headline} ${ms(point.ms)}, 5 to 95 %: ${ms(point.low)} to ${ms(point.high)}`)));
    });
    return svg;
  }
})();
