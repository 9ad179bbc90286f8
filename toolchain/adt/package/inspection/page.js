"use strict";
// Draws the page of a package, with what web_page.js has.
(() => {
  const shape = (tensor) => `${tensor.dtype}[${tensor.shape.join(", ")}]`;
  const style = (node) => {
    if (node.kind === "inputs" || node.kind === "outputs") return "io";
    return node.texture ? "texture" : node.device;
  };
  const WHERE = {
    texture: "OpenCL, textures", opencl: "OpenCL, buffers", cuda: "CUDA", cpu: "CPU", vm: "TVM's virtual machine",
    library: data.offload || "library", io: "the caller",
  };
  const calls = data.nodes.filter((node) => node.call >= 0);
  const slowest = Math.max(0, ...calls.map((node) => (node.us ? node.us[0] : 0)));

  // ---- head
  const figures = [
    [calls.filter((n) => n.kind === "kernel").length, "kernel calls"],
    data.kernels.length ? [`${calls.filter((n) => n.texture).length} of ${calls.length}`, "calls with textures"] : null,
    [size(data.tensors.filter((t) => t.kind === "param").reduce((sum, t) => sum + (t.bytes || 0), 0)), "parameters"],
    [size(data.memory.total), `planned memory (${size(data.memory.unplanned)} without sharing)`],
    data.profile ? [time(data.profile.total_us), `on ${data.profile.device}, mean of ${data.profile.runs}`] : null,
  ];
  const views = { Graph: graphView, Memory: memoryView, Kernels: kernelView,
    ...(data.textures ? { Textures: textureView } : {}), Tensors: tensorView, About: aboutView };
  const buttons = {};
  const main = make("main");
  const nav = make("nav", { role: "tablist" });
  for (const name of Object.keys(views)) {
    buttons[name] = make("button", { role: "tab", "aria-selected": "false", on: { click: () => show(name) } }, name);
    nav.append(buttons[name]);
  }
  document.body.append(
    make("header", {},
      make("div", { class: "title" }, make("h1", {}, data.name),
        make("span", {}, `${data.target} on ${data.platform}`)),
      tiles(figures),
      nav),
  );
  if (data.profile && data.profile.emulated) {
    document.body.append(make("div", { class: "banner" },
      "These times are an emulator's: they say nothing about a phone's speed."));
  }
  document.body.append(main);
  const made = {};
  function show(name) {
    if (!made[name]) main.append(made[name] = make("section", { "data-view": name }, views[name]()));
    for (const [other, section] of Object.entries(made)) section.hidden = other !== name;
    for (const [other, button] of Object.entries(buttons)) button.setAttribute("aria-selected", String(other === name));
  }

  // ---- graph
  let picked = -1;
  const boxes = [];
  const lines = [];
  const aside = make("aside");
  function graphView() {
    const [width, height] = data.box;
    const margin = 40;
    const wide = data.size[0] + 2 * margin;
    const high = data.size[1] + 2 * margin + 40;
    const svg = draw("svg", { width: wide, height: high, viewBox: `${-margin} ${-margin - 20} ${wide} ${high}`,
      role: "img", "aria-label": "the graph of calls" });
    for (const [from, to, tensor, points] of data.edges) {
      let path = `M${points[0]}`;
      for (let i = 1; i < points.length; i += 1) {
        const [x0, y0] = points[i - 1];
        const [x1, y1] = points[i];
        const bend = (y1 - y0) / 2;
        path += `C${x0},${y0 + bend} ${x1},${y1 - bend} ${x1},${y1}`;
      }
      const line = draw("path", { d: path, class: `edge${data.tensors[tensor].texture ? " texture" : ""}` });
      line.append(draw("title", {}, `${data.tensors[tensor].name}: ${shape(data.tensors[tensor])}`));
      lines.push([from, to, line]);
      svg.append(line);
    }
    data.nodes.forEach((node, index) => {
      const result = node.out.length ? data.tensors[node.out[0]] : data.tensors[node.in[node.in.length - 1]];
      const box = draw("g", { class: `node ${style(node)}`, tabindex: 0, "data-node": index,
        transform: `translate(${node.x},${node.y})`,
        on: { click: () => pick(index), keydown: (event) => keys(event, index) } },
      draw("rect", { class: "box", width, height, rx: 8 }),
      node.us ? draw("rect", { class: "heat", x: 5, width: (width - 5) * (node.us[0] / slowest || 0), height, rx: 6 }) : null,
      draw("rect", { class: "own-fill", width: 5, height, rx: 2.5 }),
      draw("text", { x: 14, y: 19, class: "name" }, short(node.name.replace(/^vm\.builtin\./, ""), 28)),
      draw("text", { x: 14, y: 36, class: "note" }, result ? short(shape(result), 34) : ""),
      node.us ? draw("text", { x: width - 8, y: 36, class: "time", "text-anchor": "end" }, time(node.us[0])) : null,
      draw("title", {}, node.name));
      boxes.push(box);
      svg.append(box);
    });
    let zoom = 1;
    const scale = (factor) => {
      zoom = Math.min(3, Math.max(0.08, factor));
      svg.setAttribute("width", wide * zoom);
      svg.setAttribute("height", high * zoom);
    };
    const scroll = make("div", { class: "scroll" }, svg);
    const find = make("input", { type: "search", placeholder: "find a call or tensor", "aria-label": "find",
      on: { input: () => search(find.value) } });
    const whole = () => scale(Math.min(scroll.clientWidth / wide, scroll.clientHeight / high, 1));
    const kinds = [...new Set(data.nodes.map(style))].filter((kind) => kind !== "io");
    scroll.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      scale(zoom * (event.deltaY < 0 ? 1.15 : 1 / 1.15));
    }, { passive: false });
    requestAnimationFrame(() => { scroll.scrollLeft = data.nodes[0].x + margin + width / 2 - scroll.clientWidth / 2; });
    const hottest = calls.filter((n) => n.us).sort((a, b) => b.us[0] - a.us[0])[0];
    pick(data.nodes.indexOf(hottest || calls.find((n) => data.sources[n.name]) || data.nodes[0]), false);
    return make("div", { class: "split" },
      make("div", { class: "stage" },
        make("div", { class: "tools" }, find,
          make("button", { "aria-label": "smaller", on: { click: () => scale(zoom / 1.25) } }, "−"),
          make("button", { "aria-label": "larger", on: { click: () => scale(zoom * 1.25) } }, "+"),
          make("button", { on: { click: whole } }, "fit"),
          make("button", { on: { click: () => scale(1) } }, "1:1")),
        scroll,
        make("div", { class: "legend" }, ...kinds.map((kind) =>
          make("span", { class: kind }, make("i", { class: "own-back" }), WHERE[kind])),
        slowest ? make("span", {}, "orange: its share of the slowest call") : null)),
      aside);
  }
  function keys(event, index) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Enter" || event.key === " ") pick(index);
    else if (step && boxes[index + step]) { pick(index + step); boxes[index + step].focus(); } else return;
    event.preventDefault();
  }
  function search(text) {
    const wanted = text.toLowerCase();
    data.nodes.forEach((node, index) => {
      const names = [node.name, ...[...node.in, ...node.out].map((t) => data.tensors[t].name)];
      const hit = !wanted || names.some((name) => name.toLowerCase().includes(wanted));
      boxes[index].classList.toggle("dim", !hit);
    });
    if (!wanted) return;
    const first = boxes.find((box) => !box.classList.contains("dim"));
    if (first) first.scrollIntoView({ block: "center", inline: "center" });
  }
  function pick(index, focus = true) {
    picked = index;
    const node = data.nodes[index];
    boxes.forEach((box, at) => box.classList.toggle("picked", at === index));
    lines.forEach(([from, to, line]) => line.classList.toggle("near", from === index || to === index));
    if (focus && boxes[index]) boxes[index].scrollIntoView({ block: "nearest", inline: "nearest" });
    const parts = [make("h2", {}, node.name)];
    const kind = style(node);
    parts.push(make("div", { class: `chips ${kind}` },
      make("span", { class: "chip lit own-back" }, WHERE[kind]),
      node.call >= 0 ? make("span", { class: "chip" }, `call ${node.call + 1} of ${calls.length}`) : null,
      node.us ? make("span", { class: "chip" },
        `${time(node.us[0])} (${time(node.us[1])} – ${time(node.us[2])})`) : null));
    for (const [label, list] of [["reads", node.in], ["writes", node.out]]) {
      if (!list.length) continue;
      parts.push(make("h3", {}, label), make("table", {}, ...list.map((at) => tensorRow(data.tensors[at]))));
    }
    const own = data.kernels.filter((kernel) => kernel.function === node.name);
    if (own.length) {
      parts.push(make("h3", {}, "device kernels"), make("table", {},
        make("tr", {}, ...["kernel", "work-groups", "items of a group", "textures"].map((t) => make("th", {}, t))),
        ...own.map((kernel) => make("tr", {}, make("td", { class: "mono" }, kernel.name),
          make("td", {}, kernel.grid.join(" × ") || "?"), make("td", {}, kernel.block.join(" × ") || "?"),
          make("td", { class: "mono" }, kernel.textures.join(", ") || "none")))));
    }
    const texts = Object.entries(data.sources[node.name] || {});
    if (texts.length) parts.push(make("h3", {}, "source"), ...sourceTabs(texts));
    aside.replaceChildren(...parts);
    aside.scrollTop = 0;
  }
  function sourceTabs(texts) {
    const code = make("pre", { tabindex: 0 });
    const tabs = texts.map(([name, text]) => make("button", { "aria-selected": "false", on: { click: () => {
      tabs.forEach((tab, at) => tab.setAttribute("aria-selected", String(texts[at][0] === name)));
      code.replaceChildren(...coloured(text));
    } } }, name));
    tabs[0].click();
    return [make("div", { class: "tabs" }, ...tabs), code];
  }
  const WORDS = new RegExp([
    "(?<c>\\/\\/[^\\n]*|# [^\\n]*)",
    "(?<i>\\b(?:image[123]d(?:_array)?_t|read_image\\w*|write_image\\w*|__read_only|__write_only)\\b)",
    "(?<k>\\b(?:__kernel|__global|__local|restrict|void|float\\d*|half\\d*|int|if|else|for|in|with|def|return)\\b)",
    "(?<n>\\b\\d[\\w.+]*\\b)"].join("|"), "g");
  function coloured(text) {
    const parts = [];
    let at = 0;
    for (const found of text.matchAll(WORDS)) {
      const [kind] = Object.entries(found.groups).find(([, value]) => value !== undefined);
      parts.push(text.slice(at, found.index), make("span", { class: kind }, found[0]));
      at = found.index + found[0].length;
    }
    parts.push(text.slice(at));
    return parts;
  }
  function tensorRow(tensor) {
    return make("tr", {}, make("td", { class: "mono" }, tensor.name), make("td", { class: "mono" }, shape(tensor)),
      make("td", {}, `${tensor.kind}${tensor.texture ? `, ${tensor.scope.replace("global.", "")}` : ""}`),
      make("td", { class: "number" }, size(tensor.bytes)));
  }

  // ---- memory
  function memoryView() {
    const count = Math.max(1, calls.length);
    const life = data.tensors.map(() => [Infinity, -1]);
    calls.forEach((node) => [...node.in, ...node.out].forEach((t) => {
      life[t] = [Math.min(life[t][0], node.call), Math.max(life[t][1], node.call)];
    }));
    const rows = data.storages.map((storage, index) => ({ storage, index })).sort((a, b) => b.storage.bytes - a.storage.bytes);
    const left = 150; const row = 22; const width = 1120; const top = 26;
    const at = (call) => left + ((width - left - 10) * call) / count;
    const svg = draw("svg", { viewBox: `0 0 ${width} ${top + rows.length * row + 10}`, width: "100%",
      role: "img", "aria-label": "which tensor lies where, from the first call to the last" });
    const step = Math.max(1, Math.ceil(count / 12));
    for (let call = 0; call <= count; call += step) {
      svg.append(draw("line", { class: "grid", x1: at(call), x2: at(call), y1: top, y2: top + rows.length * row }),
        draw("text", { class: "note", x: at(call) + 3, y: 16 }, `call ${call + 1}`));
    }
    rows.forEach(({ storage, index }, line) => {
      const y = top + line * row;
      const kind = storage.scope.includes("texture") ? "texture" : data.kernels.length ? data.kernels[0].file.split("/")[0] : "cpu";
      svg.append(draw("text", { class: "note", x: 0, y: y + 15 }, `${size(storage.bytes)} ${storage.scope}`),
        draw("rect", { class: "frame", x: at(storage.first), y: y + 2, height: row - 4, rx: 4,
          width: Math.max(2, at(storage.last + 1) - at(storage.first)) }));
      data.tensors.forEach((tensor, t) => {
        if (tensor.storage !== index || tensor.kind === "view" || life[t][1] < 0) return;
        const bar = draw("rect", { class: `bar ${kind} own-fill`, x: at(life[t][0]) + 1, y: y + 5, height: row - 10, rx: 3,
          width: Math.max(2, at(life[t][1] + 1) - at(life[t][0]) - 2) });
        bar.append(draw("title", {}, `${tensor.name}: ${shape(tensor)}, ${size(tensor.bytes)}, calls ${life[t][0] + 1}–${life[t][1] + 1}`));
        svg.append(bar);
      });
    });
    return make("div", { class: "page" }, make("div", {},
      make("h3", {}, "memory plan"),
      make("p", {}, `${rows.length} storages, ${size(data.memory.total)} in all, at most ${size(data.memory.peak)} at the same time; ` +
        `the values would take ${size(data.memory.unplanned)} if none shared memory. Each row is a storage, each bar a tensor's life.`),
      rows.length ? svg : make("p", {}, "Nothing is allocated.")));
  }

  // ---- tables
  function kernelView() {
    const rows = [...new Set(calls.filter((n) => n.kind !== "builtin").map((n) => n.name))].map((name) => {
      const own = calls.filter((node) => node.name === name);
      const us = own.reduce((sum, node) => sum + (node.us ? node.us[0] : 0), 0);
      return { name, own, us, kernels: data.kernels.filter((kernel) => kernel.function === name) };
    }).sort((a, b) => b.us - a.us);
    const timed = Boolean(data.profile);
    return make("div", { class: "page" }, make("div", {}, make("h3", {}, "kernels"), make("table", {},
      make("tr", {}, ...["kernel", "runs on", "calls", "work-groups × items"].map((t) => make("th", {}, t)),
        timed ? make("th", { class: "number" }, "time") : null, timed ? make("th", { class: "number" }, "share") : null),
      ...rows.map(({ name, own, us, kernels }) => make("tr", { class: "link", on: { click: () => {
        show("Graph");
        pick(data.nodes.indexOf(own[0]));
      } } },
      make("td", { class: "mono" }, name), make("td", { class: "short" }, WHERE[style(own[0])]), make("td", {}, own.length),
      make("td", {}, kernels.map((k) => `${k.grid.join("·") || "?"} × ${k.block.join("·") || "?"}`).join("; ")),
      timed ? make("td", { class: "number" }, time(us)) : null,
      timed ? make("td", { class: "number" }, `${((100 * us) / (data.profile.total_us || 1)).toFixed(1)} %`) : null)))));
  }
  function textureView() {
    const { convolutions, kernels, weights, share } = data.textures;
    const table = (heads, rows) => make("table", {}, make("tr", {}, ...heads.map((text) => make("th", {}, text))),
      ...rows.map((cells) => make("tr", {}, ...cells.map((cell, at) => make("td", at ? {} : { class: "mono" }, cell)))));
    const where = (reason) => (reason ? "buffers" : "textures");
    return make("div", { class: "page" }, make("div", {},
      make("h3", {}, "operators: texture or buffers"),
      make("p", {}, `${(100 * share).toFixed(0)} % of the arithmetic is done by kernels with textures.`),
      table(["operator", "kind, weight", "multiplications", "where", "why"], convolutions.map((one) => [one.name,
        `${one.kind}, ${one.weight.join(" × ")}${one.groups > 1 ? `, ${one.groups} groups` : ""}`,
        one.macs.toLocaleString("en"), where(one.reason), one.reason || one.grounds])),
      make("h3", {}, "kernels"),
      table(["kernel", "images read", "written", "why the output is no image"],
        kernels.map((one) => [one.kernel, one.reads, one.writes, one.reason])),
      make("h3", {}, `weights (${weights.filter((one) => !one.reason).length} of ${weights.length} in images)`),
      table(["parameter", "layers, height, width, lanes", "where", "why"],
        weights.map((one) => [one.name, one.shape.join(" × "), where(one.reason), one.reason]))));
  }
  function tensorView() {
    return make("div", { class: "page" }, make("div", {}, ...["input", "param", "constant", "value"].flatMap((kind) => {
      const own = data.tensors.filter((tensor) => tensor.kind === kind);
      const label = { input: "inputs", param: "parameters", constant: "constants", value: "values" }[kind];
      return own.length ? [make("h3", {}, `${label} (${own.length}, ${size(own.reduce((s, t) => s + (t.bytes || 0), 0))})`),
        make("table", {}, ...own.map(tensorRow))] : [];
    })));
  }
  function aboutView() {
    return make("div", { class: "page" }, make("div", {}, make("h3", {}, "package"),
      make("table", {}, ...data.facts.map(([name, value]) =>
        make("tr", {}, make("th", {}, name), make("td", { class: "mono" }, value)))),
      ...["inputs", "outputs"].flatMap((side) => [make("h3", {}, side), make("table", {},
        ...data.entry[side].map((spec) => make("tr", {}, make("td", { class: "mono" }, spec.name),
          make("td", { class: "mono" }, shape(spec)))))])));
  }

  show("Graph");
})();
