"use strict";
// Draws the page of a profile, with what web_page.js has.
(() => {
  const MOST_BARS = 24;
  const DEVICES = { opencl: "OpenCL", cuda: "CUDA", library: "library", cpu: "CPU", vm: "TVM's virtual machine" };

  const flops = (value) => (known(value) ? scaled(value, ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"], 1000) : "?");
  const percent = (share) => (known(share) ? `${(100 * share).toFixed(1)} %` : "-");
  const speed = (value, unit) => (known(value) ? `${digits(value)} ${unit}` : "?");
  const kind = (kernel) => (kernel.device in DEVICES ? kernel.device : "other");

  // What the plots are of: time where it is a device's (by its own clock where it has one), else arithmetic.
  const weight = data.timed ? (kernel) => (known(kernel.share) ? kernel.us : 0) : (kernel) => kernel.flops || 0;
  const shown = data.timed ? time : flops;
  const what = data.timed ? "time" : "arithmetic";
  const total = data.kernels.reduce((sum, kernel) => sum + weight(kernel), 0);
  const ranked = data.kernels.map((kernel, index) => ({ kernel, index }))
    .filter(({ kernel }) => weight(kernel) > 0)
    .sort((a, b) => weight(b.kernel) - weight(a.kernel));
  const arithmetic = data.kernels.reduce((sum, kernel) => sum + (kernel.flops || 0), 0);

  function told(kernel) {
    const parts = [kernel.name, `${kernel.calls.length} ${kernel.calls.length === 1 ? "call" : "calls"}`];
    if (data.timed) parts.push(time(kernel.us), ...(known(kernel.share) ? [percent(kernel.share)] : []));
    parts.push(flops(kernel.flops), size(kernel.bytes));
    if (data.timed && known(kernel.gflops)) parts.push(speed(kernel.gflops, "GFLOP/s"), speed(kernel.gbps, "GB/s"));
    return parts.join(", ");
  }
  const marks = data.kernels.map(() => []);
  function mark(index, said, ...children) {
    const group = draw("g", { class: `mark ${kind(data.kernels[index])}`, tabindex: 0, role: "button", "aria-label": said,
      "data-kernel": index, on: { click: () => pick(index), keydown: (event) => keys(event, index) } },
    draw("title", {}, said), ...children);
    marks[index].push(group);
    return group;
  }
  function keys(event, index) {
    const group = event.currentTarget;
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (event.key === "Enter" || event.key === " ") pick(index);
    else if (step) {
      const all = [...group.parentNode.querySelectorAll(":scope > g.mark")];
      const next = all[all.indexOf(group) + step];
      if (next) next.focus();
    } else return;
    event.preventDefault();
  }

  // ---- head
  const figures = [
    data.timed ? [time(data.counted_us),
      `${data.on_device ? "on the device" : "all calls"}, mean of ${data.runs} ${data.runs === 1 ? "run" : "runs"}`]
      : [data.calls, "calls"],
    [data.kernels.filter((kernel) => kernel.device !== "vm").length, "kernels"],
    [flops(arithmetic), data.kernels.some((k) => !known(k.flops) && k.device !== "vm") ? "known arithmetic" : "arithmetic"],
    data.timed && arithmetic && data.counted_us
      ? [speed(arithmetic / data.counted_us / 1e3, "GFLOP/s"), data.on_device ? "while the device works" : "over all calls"] : null,
  ];
  document.body.append(make("header", {},
    make("h1", {}, data.package),
    make("p", {}, `${data.target}, entry ${data.entry}; on ${data.device}${data.via === "rpc" ? " over RPC" : ""}`),
    data.timed ? make("p", {}, `Times by ${data.clock}.`) : null,
    ...data.sums.map((said) => make("p", {}, `${said[0].toUpperCase()}${said.slice(1)}.`)),
    tiles(figures)));
  if (!data.timed) {
    document.body.append(make("div", { class: "banner", role: "note" },
      "Its processor is emulated: this page has no times. Counts, shapes, arithmetic and bytes are the model's own."));
  }
  for (const note of data.notes) {
    if (data.timed || !note.startsWith("emulated")) document.body.append(make("div", { class: "banner", role: "note" }, note));
  }
  const main = make("main");
  document.body.append(main);

  // ---- plots
  function section(id, title, said, ...children) {
    main.append(make("section", { id, "aria-label": title }, make("h2", {}, title), make("p", {}, said), ...children));
    children.filter((child) => child.viewBox).forEach(fit);
  }
  function bars() {
    const rows = ranked.slice(0, MOST_BARS);
    const left = 250; const width = 720; const row = 22; const most = weight(rows[0] ? rows[0].kernel : {}) || 1;
    const svg = draw("svg", { viewBox: `0 0 ${width} ${Math.max(1, rows.length) * row + 4}`, role: "group",
      "aria-label": `${what} of each kernel` });
    rows.forEach(({ kernel, index }, line) => {
      const long = ((width - left - 130) * weight(kernel)) / most;
      svg.append(mark(index, told(kernel),
        draw("text", { x: left - 8, y: line * row + 16, class: "mono", "text-anchor": "end" }, short(kernel.name, 32)),
        draw("rect", { class: "shape", x: left, y: line * row + 4, width: Math.max(1, long), height: row - 7, rx: 3 }),
        draw("text", { x: left + long + 8, y: line * row + 16, class: "note" },
          `${shown(weight(kernel))} · ${percent(total ? weight(kernel) / total : 0)}`)));
    });
    const rest = ranked.slice(MOST_BARS);
    const more = rest.length ? ` The other ${rest.length} together: ` +
      `${shown(rest.reduce((sum, { kernel }) => sum + weight(kernel), 0))}.` : "";
    const present = [...new Set(ranked.map(({ kernel }) => kind(kernel)))];
    section("bars", data.timed ? "Time per kernel" : "Arithmetic per kernel",
      `All calls of a kernel together${data.timed && data.on_device ? ", by the device's clock" : ""}; the largest first.${more}`, svg,
      make("div", { class: "legend" }, ...present.map((name) =>
        make("span", { class: name }, make("i"), DEVICES[name] || "unknown"))));
  }
  function curve() {
    const width = 640; const height = 330; const left = 46; const bottom = 40; const top = 12; const right = 16;
    const x = (count) => left + ((width - left - right) * count) / Math.max(1, ranked.length);
    const y = (share) => top + (height - top - bottom) * (1 - share);
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "group",
      "aria-label": `cumulative share of the ${what}` });
    for (const share of [0, 0.25, 0.5, 0.75, 1]) {
      svg.append(draw("line", { class: "grid", x1: left, x2: width - right, y1: y(share), y2: y(share) }),
        draw("text", { class: "note", x: left - 6, y: y(share) + 4, "text-anchor": "end" }, `${100 * share} %`));
    }
    const step = Math.max(1, Math.ceil(ranked.length / 8));
    for (let count = 0; count <= ranked.length; count += step) {
      svg.append(draw("text", { class: "note", x: x(count), y: height - bottom + 18, "text-anchor": "middle" }, count));
    }
    svg.append(draw("text", { class: "note", x: (left + width) / 2, y: height - 6, "text-anchor": "middle" },
      `kernels, by ${what}`));
    let sum = 0; let most = 0; const path = [`M${x(0)},${y(0)}`]; const dots = [];
    ranked.forEach(({ kernel, index }, at) => {
      sum += weight(kernel);
      const share = total ? sum / total : 0;
      if (share < 0.9) most = at + 1;
      path.push(`L${x(at + 1)},${y(share)}`);
      dots.push(mark(index, told(kernel), draw("circle", { class: "shape", cx: x(at + 1), cy: y(share), r: 4 })));
    });
    svg.append(draw("path", { class: "curve", d: path.join("") }), ...dots);
    const many = Math.min(ranked.length, most + 1);
    section("cumulative", `Cumulative ${what}`,
      total ? `${many} of ${ranked.length} kernels make at least 90 % of the ${what}.` : `No ${what} is known.`, svg);
  }
  function order() {
    const width = 640; const height = 360; const left = 58; const bottom = 42; const top = 12; const right = 16;
    const all = data.kernels.flatMap((kernel, index) => (kernel.device === "vm" ? [] : kernel.calls.map((call) =>
      ({ index, call, value: data.timed ? call.us[0] : call.flops || 0 })))).sort((a, b) => a.call.order - b.call.order);
    const most = Math.max(...all.map(({ value }) => value), 0) || 1;
    const wide = (width - left - right) / Math.max(1, all.length);
    const y = (value) => top + (height - top - bottom) * (1 - value / most);
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `${what} of each call` });
    for (const part of [0, 0.25, 0.5, 0.75, 1]) {
      svg.append(draw("line", { class: "grid", x1: left, x2: width - right, y1: y(part * most), y2: y(part * most) }),
        draw("text", { class: "note", x: left - 6, y: y(part * most) + 4, "text-anchor": "end" },
          part ? shown(part * most) : "0"));
    }
    svg.append(draw("text", { class: "note", x: (left + width) / 2, y: height - 12, "text-anchor": "middle" },
      "calls, the first on the left"));
    all.forEach(({ index, call, value }, at) => {
      const said = `call ${call.order + 1}, ${data.kernels[index].name}: ${data.timed ? time(value) : flops(call.flops)}`;
      svg.append(mark(index, said, draw("rect", { class: "shape", x: left + at * wide, y: y(value), rx: 1,
        width: Math.max(0.5, wide * 0.86), height: Math.max(1, height - bottom - y(value)) })));
    });
    section("order", "In the order of execution", "Each call by itself; those of the virtual machine are left out.", svg);
  }
  function roofline() {
    const points = data.kernels.map((kernel, index) => ({ kernel, index }))
      .filter(({ kernel }) => kernel.intensity > 0 && kernel.gflops > 0 && known(kernel.share));
    const roofed = known(data.peak_gflops) && known(data.peak_gbps);
    const title = "Roofline";
    if (!data.timed || !points.length) {
      section("roofline", title, data.timed ? "No kernel has known arithmetic." :
        "Left out: achieved speeds are times, and its processor is emulated.");
      return;
    }
    const width = 640; const height = 360; const left = 58; const bottom = 42; const top = 12; const right = 16;
    const xs = points.map(({ kernel }) => kernel.intensity);
    const ys = points.map(({ kernel }) => kernel.gflops);
    if (roofed) { xs.push(data.peak_gflops / data.peak_gbps); ys.push(data.peak_gflops); }
    const low = (values) => Math.floor(Math.log10(Math.min(...values)) - 0.05);
    const high = (values) => Math.ceil(Math.log10(Math.max(...values)) + 0.05);
    const [x0, x1, y0, y1] = [low(xs), high(xs), low(ys), high(ys)];
    const x = (value) => left + ((width - left - right) * (Math.log10(value) - x0)) / (x1 - x0);
    const y = (value) => top + (height - top - bottom) * (1 - (Math.log10(value) - y0) / (y1 - y0));
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "group",
      "aria-label": "achieved speed of each kernel against its arithmetic intensity" });
    const tick = (power) => String(Number((10 ** power).toPrecision(1)));
    for (let power = x0; power <= x1; power += 1) {
      svg.append(draw("line", { class: "grid", x1: x(10 ** power), x2: x(10 ** power), y1: top, y2: height - bottom }),
        draw("text", { class: "note", x: x(10 ** power), y: height - bottom + 16, "text-anchor": "middle" }, tick(power)));
    }
    for (let power = y0; power <= y1; power += 1) {
      svg.append(draw("line", { class: "grid", x1: left, x2: width - right, y1: y(10 ** power), y2: y(10 ** power) }),
        draw("text", { class: "note", x: left - 6, y: y(10 ** power) + 4, "text-anchor": "end" }, tick(power)));
    }
    svg.append(draw("text", { class: "note", x: (left + width) / 2, y: height - 6, "text-anchor": "middle" },
      "FLOP for each byte"),
    draw("text", { class: "note", x: 12, y: (top + height - bottom) / 2, "text-anchor": "middle",
      transform: `rotate(-90 12 ${(top + height - bottom) / 2})` }, "GFLOP/s"));
    if (roofed) {
      const ridge = data.peak_gflops / data.peak_gbps;
      const begin = Math.max(10 ** x0, 10 ** y0 / data.peak_gbps);
      const roof = [];
      if (begin < ridge) roof.push([begin, begin * data.peak_gbps]);
      roof.push([ridge, data.peak_gflops], [10 ** x1, data.peak_gflops]);
      svg.append(draw("path", { class: "roof", d: `M${roof.map(([a, b]) => `${x(a)},${y(b)}`).join("L")}` }));
    }
    const largest = Math.max(...points.map(({ kernel }) => kernel.share));
    points.sort((a, b) => b.kernel.share - a.kernel.share).forEach(({ kernel, index }) => {
      svg.append(mark(index, told(kernel), draw("circle", { class: "shape", cx: x(kernel.intensity), cy: y(kernel.gflops),
        r: 4 + 8 * Math.sqrt(kernel.share / largest) })));
    });
    section("roofline", title, roofed
      ? `The line is what was given as the device's best: ${digits(data.peak_gflops)} GFLOP/s and ` +
        `${digits(data.peak_gbps)} GB/s. Area: share of the time.`
      : "No line: the device's limits are not known; --peak-gflops and --peak-gbps give them. Area: share of the time.",
    svg);
  }

  // ---- table
  const columns = [
    { title: "kernel", of: (k) => k.name, text: (k) => k.name, class: "mono" },
    { title: "on", of: (k) => k.device, text: (k) => DEVICES[k.device] || "?" },
    { title: "order", of: (k) => k.first, text: (k) => k.first + 1, class: "number", up: true },
    { title: "calls", of: (k) => k.calls.length, text: (k) => k.calls.length, class: "number" },
    data.timed && { title: "time", of: (k) => (known(k.share) ? k.us : null), text: (k) => time(k.us), class: "number" },
    data.timed && { title: "share", of: (k) => k.share, text: (k) => percent(k.share), class: "number" },
    data.timed && { title: "clock", of: (k) => k.clock, text: (k) => (k.clock === "event" ? "device" : k.clock) },
    { title: "FLOPs", of: (k) => k.flops, text: (k) => flops(k.flops), class: "number" },
    { title: "bytes", of: (k) => k.bytes, text: (k) => size(k.bytes), class: "number" },
    { title: "FLOP/byte", of: (k) => k.intensity, text: (k) => (known(k.intensity) ? digits(k.intensity) : "?"), class: "number" },
    data.timed && { title: "GFLOP/s", of: (k) => k.gflops, text: (k) => (known(k.gflops) ? digits(k.gflops) : "?"), class: "number" },
    data.timed && { title: "GB/s", of: (k) => k.gbps, text: (k) => (known(k.gbps) ? digits(k.gbps) : "?"), class: "number" },
    data.timed && data.kernels.some((k) => known(k.roof)) && { title: "of roof", class: "number",
      of: (k) => (known(k.roof) && known(k.gflops) ? k.gflops / k.roof : null),
      text: (k) => (known(k.roof) && known(k.gflops) ? percent(k.gflops / k.roof) : "?") },
    { title: "shapes", of: (k) => k.shapes.join(), class: "mono", text: (k) =>
      (k.shapes.length ? short(k.shapes[0], 110) + (k.shapes.length > 1 ? ` and ${k.shapes.length - 1} more` : "") : "") },
  ].filter(Boolean);
  let picked = -1;
  let sorted = columns.findIndex((column) => column.title === (data.timed ? "time" : "FLOPs"));
  let down = true;
  const body = make("tbody");
  const heads = columns.map((column, at) => make("th", { class: column.class === "number" ? "number" : null, scope: "col" },
    make("button", { type: "button", on: { click: () => sort(at) } }, column.title)));
  function sort(at) {
    down = at === sorted ? !down : columns[at].class === "number" && !columns[at].up;
    sorted = at;
    rows();
  }
  function rows() {
    heads.forEach((head, at) => (at === sorted ? head.setAttribute("aria-sort", down ? "descending" : "ascending")
      : head.removeAttribute("aria-sort")));
    const value = columns[sorted].of;
    const order = data.kernels.map((kernel, index) => ({ kernel, index })).sort((a, b) => {
      const [u, v] = [value(a.kernel), value(b.kernel)];
      if (!known(u) || !known(v)) return Number(known(v)) - Number(known(u));
      const less = typeof u === "number" ? u - v : u.localeCompare(v);
      return down ? -less : less;
    });
    body.replaceChildren(...order.flatMap(({ kernel, index }) => {
      const row = make("tr", { class: `row${index === picked ? " picked" : ""}`, tabindex: 0, "data-row": index,
        "aria-expanded": String(index === picked),
        on: { click: () => pick(index), keydown: (event) => {
          if (event.key !== "Enter" && event.key !== " ") return;
          event.preventDefault();
          pick(index);
          body.querySelector(`tr[data-row="${index}"]`).focus();
        } } },
      ...columns.map((column) => make("td", { class: column.class }, column.text(kernel))));
      return index === picked ? [row, make("tr", { class: "more" }, make("td", { colspan: columns.length }, details(kernel)))] : [row];
    }));
  }
  function details(kernel) {
    const titles = ["call", "in the graph", ...(data.timed ? ["mean", "min", "max"] : []), "shapes"];
    return make("table", {}, make("tr", {}, ...titles.map((title) => make("th", { scope: "col" }, title))),
      ...kernel.calls.map((call) => make("tr", {}, make("td", {}, call.order + 1),
        make("td", {}, call.graph >= 0 ? call.graph + 1 : "not there"),
        ...(data.timed ? call.us.map((us) => make("td", {}, time(us))) : []),
        make("td", { class: "mono" }, call.shapes))));
  }
  function pick(index) {
    picked = picked === index ? -1 : index;
    marks.forEach((groups, at) => groups.forEach((group) => group.classList.toggle("picked", at === picked)));
    rows();
    const row = body.querySelector("tr.picked");
    if (row) row.scrollIntoView({ block: "nearest" });
  }

  bars();
  curve();
  order();
  roofline();
  rows();
  main.append(make("section", { id: "table", class: "wide", "aria-label": "All kernels" }, make("h2", {}, "All kernels"),
    make("p", {}, "A click, or Enter, on a kernel shows its calls. FLOPs are counted before scheduling, a multiply-add being " +
      "two; bytes are those of what a call reads and writes, each tensor once."),
    make("div", { class: "scroll" }, make("table", {}, make("thead", {}, make("tr", {}, ...heads)), body))));
})();
