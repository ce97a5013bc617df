// The page of a server: each event of `events` has all that is shown.
//
// Names come from volumes, users and clients, and may be anything: they go into the page by textContent only.
"use strict";

/** Points of the small charts, at most; with fewer of them they fill a part of the width. */
const POINTS = 120;
const POINTS_WIDE = 20;
/** How long to wait for the next event before what is shown counts as old, in milliseconds. */
const STALE = 8000;
/** How long to wait before connecting again, in milliseconds. */
const AGAIN = 4000;

const at = (id) => document.getElementById(id);

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

function draw(tag, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

function show(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Numbers, each as a number and its unit.

function scaled(value, base, units) {
  let unit = 0;
  while (value >= base * 0.9995 && unit + 1 < units.length) {
    value /= base;
    unit += 1;
  }
  const digits = value === 0 || value >= 100 ? 0 : value >= 10 ? 1 : value >= 0.1 || unit > 0 ? 2 : 3;
  return [String(Number(value.toFixed(digits))), units[unit]];
}

const count = (value) => scaled(value, 1000, ["", "k", "M", "G", "T"]);
const bytes = (value) => scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]);
const rate = (value) => scaled(value, 1000, ["/s", "k/s", "M/s"]);
const throughput = (value) => scaled(value, 1024, ["B/s", "KiB/s", "MiB/s", "GiB/s"]);
const percent = (value) => [value === 0 ? "0" : (value * 100).toFixed(value < 0.1 ? 2 : 1), "%"];

/** A time in seconds. */
function time(value) {
  if (value <= 0) return ["–", ""];
  if (value >= 1) return value < 100 ? [String(Number(value.toPrecision(3))), "s"] : [since(value), ""];
  return scaled(value * 1e6, 1000, ["µs", "ms"]);
}

/** How long something has gone on, in words. */
function since(seconds) {
  const whole = Math.floor(seconds);
  const [days, hours, minutes] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60];
  if (days > 0) return `${days} d ${hours} h`;
  if (hours > 0) return `${hours} h ${minutes} min`;
  if (minutes > 0) return `${minutes} min ${whole % 60} s`;
  return `${whole} s`;
}

const said = ([value, unit]) => (unit ? `${value} ${unit}` : value);

// Tiles with a small chart.

const TILES = [
  { name: "Calls", of: (g) => g.totals.calls, as: rate },
  { name: "Errors", of: (g) => g.totals.errors, as: rate },
  { name: "Latency, median", of: (g) => g.totals.p50, as: time },
  { name: "Latency, 99 %", of: (g) => g.totals.p99, as: time },
  { name: "To clients", of: (g) => g.totals.read_bytes, as: throughput },
  { name: "From clients", of: (g) => g.totals.written_bytes, as: throughput },
  { name: "Being served", of: (g) => g.active.length + g.active_beyond, as: count },
  { name: "Clients", of: (g) => g.hosts.known, as: count },
];

function tiles(place) {
  return TILES.map((tile) => {
    const box = make("div", "tile");
    const value = make("div", "value");
    const number = make("span");
    const unit = make("span", "unit");
    value.append(number, unit);
    const chart = draw("svg", { preserveAspectRatio: "none", "aria-hidden": "true" });
    const area = draw("path", { class: "spark-area" });
    const line = draw("path", { class: "spark-line" });
    chart.append(area, line);
    box.append(make("h3", "", tile.name), value, chart);
    place.append(box);
    const history = [];
    return (glance) => {
      const now = tile.of(glance);
      const [text, of] = tile.as(now);
      show(number, text);
      show(unit, of);
      history.push(now);
      if (history.length > POINTS) history.shift();
      const top = Math.max(...history) || 1;
      const end = Math.max(history.length, POINTS_WIDE) - 1;
      const first = end + 1 - history.length;
      chart.setAttribute("viewBox", `0 0 ${end} 30`);
      const points = history.map((value, n) => `${first + n} ${(28 - (value / top) * 24).toFixed(2)}`);
      line.setAttribute("d", `M${points.join(" L")}`);
      area.setAttribute("d", `M${first} 30 L${points.join(" L")} L${end} 30 Z`);
    };
  });
}

// Tables. A column has a title, what it shows of a row, and how it looks.

const text = (title, of, look = "") => ({ title, of: (row) => [of(row), look], look });
const number = (title, of, as, look = "", isAlarm = () => false) => ({
  title,
  look: `number ${look}`,
  of: (row) => {
    const value = of(row);
    const state = isAlarm(value) ? "alarm" : value > 0 ? "" : "zero";
    return [value > 0 ? said(as(value)) : "–", `number ${look} ${state}`];
  },
});
/** A number with a bar behind it: its part of the greatest of the column. */
const load = (title, of, as) => ({ ...number(title, of, as, "load"), part: of });

const TABLES = {
  active: [
    text("Operation", (r) => r.operation, "strong"),
    text("Interface", (r) => r.interface, "dim phone-off"),
    text("Client", (r) => r.peer.replace(/:\d+$/, "")),
    text("User", (r) => r.user, "phone-off"),
    text("Object", (r) => r.subject, "minor"),
    text("Waits for", (r) => r.waits || "–"),
    number("For", (r) => r.seconds, time, "", (seconds) => seconds > 5),
  ],
  volumes: [
    text("Volume", (r) => r.name || r.volume, "strong"),
    text("Number", (r) => (r.name ? r.volume : ""), "dim minor"),
    text("Partition", (r) => r.partition, "dim minor"),
    load("Reads", (r) => r.reads, rate),
    load("Writes", (r) => r.writes, rate),
    number("To clients", (r) => r.read_bytes, throughput, "phone-off"),
    number("From clients", (r) => r.written_bytes, throughput, "phone-off"),
    number("Median", (r) => r.p50, time, "minor"),
    number("99 %", (r) => r.p99, time, "phone-off"),
    number("Errors", (r) => r.errors, rate, "minor"),
    number("Promises", (r) => r.callbacks, rate, "minor"),
    number("Breaks", (r) => r.breaks, rate, "minor"),
  ],
  clients: [
    text("Client", (r) => r.address, "strong"),
    text("User", (r) => r.user),
    load("Calls", (r) => r.calls, rate),
    text("Mostly", (r) => r.mostly, "dim phone-off"),
    number("Served at a time", (r) => r.load, count, "minor"),
    number("To it", (r) => r.sent_bytes, throughput, "phone-off"),
    number("From it", (r) => r.received_bytes, throughput, "phone-off"),
    number("Errors", (r) => r.errors, rate, "minor"),
    number("Total", (r) => r.total, count, "dim minor"),
  ],
  operations: [
    text("Operation", (r) => r.operation, "strong"),
    text("Interface", (r) => r.interface, "dim"),
    load("Calls", (r) => r.calls, rate),
    number("Median", (r) => r.p50, time, "phone-off"),
    number("99 %", (r) => r.p99, time),
    number("Errors", (r) => r.errors, rate, "phone-off"),
    number("Requests", (r) => r.received_bytes, throughput, "minor"),
    number("Replies", (r) => r.sent_bytes, throughput, "minor"),
    number("Total", (r) => r.total, count, "dim minor"),
  ],
};

function table(place, columns) {
  const head = place.createTHead().insertRow();
  for (const column of columns) {
    const cell = make("th", column.look.replace("load", "").replace("strong", ""), column.title);
    cell.scope = "col";
    head.append(cell);
  }
  const body = place.createTBody();
  return (rows) => {
    place.closest(".card").classList.toggle("none", rows.length === 0);
    while (body.rows.length > rows.length) body.deleteRow(-1);
    while (body.rows.length < rows.length) {
      const line = body.insertRow();
      for (const _ of columns) line.insertCell();
    }
    columns.forEach((column, n) => {
      const top = column.part ? Math.max(...rows.map(column.part)) || 1 : 1;
      rows.forEach((row, m) => {
        const cell = body.rows[m].cells[n];
        const [value, look] = column.of(row);
        show(cell, value);
        if (cell.className !== look) cell.className = look;
        cell.title = value.length > 24 ? value : "";
        if (column.part) cell.style.setProperty("--part", (column.part(row) / top).toFixed(3));
      });
    });
  };
}

/** As many elements as there are rows, each made once. */
function fit(place, rows, fresh) {
  while (place.children.length > rows.length) place.lastChild.remove();
  while (place.children.length < rows.length) place.append(fresh());
  return [...place.children];
}

function freshServer() {
  const item = make("li");
  const line = make("div", "line");
  line.append(make("span", "dot"), make("strong"), make("span", "more"));
  item.append(line, make("ul", "partitions"));
  return item;
}

function freshPartition() {
  const item = make("li");
  const line = make("div", "line");
  line.append(make("span"), make("span", "more"));
  const bar = make("div", "bar");
  bar.append(make("i"));
  item.append(line, bar);
  return item;
}

function showPartition(item, { partition, size, free }) {
  const [line, bar] = item.children;
  const used = size > 0 ? 1 - free / size : 0;
  show(line.children[0], partition);
  show(line.children[1], `${said(bytes(free))} of ${said(bytes(size))} free`);
  bar.className = used > 0.97 ? "bar bad" : used > 0.9 ? "bar warn" : "bar";
  bar.title = `${(used * 100).toFixed(1)} % used`;
  bar.firstChild.style.width = `${(used * 100).toFixed(1)}%`;
}

function servers(place) {
  return (list) => {
    place.closest(".card").classList.toggle("none", list.length === 0);
    fit(place, list, freshServer).forEach((item, n) => {
      const { address, own, answer } = list[n];
      const [line, disks] = item.children;
      item.className = answer ? "up" : "down";
      show(line.children[1], address);
      const words = answer
        ? [own ? "this server" : `answers in ${said(time(answer.took))}`, `up for ${since(answer.uptime)}`, `${said(count(answer.clients))} ${answer.clients === 1 ? "client" : "clients"}`]
        : ["does not answer"];
      show(line.children[2], words.join(" · "));
      const known = answer ? answer.partitions : [];
      fit(disks, known, freshPartition).forEach((disk, m) => showPartition(disk, known[m]));
    });
    const silent = list.filter((server) => !server.answer).length;
    show(at("servers-note"), silent > 0 ? `${silent} of ${list.length} do not answer` : list.length > 1 ? `all ${list.length} answer` : "");
  };
}

const FACTS = [
  ["Clients", (g) => said(count(g.hosts.known))],
  ["Down", (g) => said(count(g.hosts.down)), (g) => g.hosts.down > 5],
  ["Without identity", (g) => said(count(g.hosts.unknown))],
  ["Promises", (g) => said(count(g.promises.standing))],
  ["Files with any", (g) => said(count(g.promises.files))],
  ["Made", (g) => said(rate(g.promises.made))],
  ["Broken", (g) => said(rate(g.promises.broken))],
  ["Given up", (g) => said(rate(g.promises.given_up))],
  ["Expired", (g) => said(rate(g.promises.expired))],
  ["Evicted", (g) => said(rate(g.promises.evicted)), (g) => g.promises.evicted > 0],
  ["Late breaks", (g) => said(rate(g.promises.late))],
  ["Failed breaks", (g) => said(rate(g.promises.failed)), (g) => g.promises.failed > 0],
];

function facts(place) {
  const shown = FACTS.map(([name, of, isAlarm]) => {
    const box = make("div");
    const value = make("dd");
    box.append(make("dt", "", name), value);
    place.append(box);
    return (glance) => {
      show(value, of(glance));
      box.classList.toggle("alarm", Boolean(isAlarm && isAlarm(glance)));
    };
  });
  return (glance) => shown.forEach((each) => each(glance));
}

// The page.

const showTiles = tiles(at("tiles"));
const showServers = servers(at("servers"));
const showFacts = facts(at("promises"));
const showTables = Object.entries(TABLES).map(([name, columns]) => {
  const showRows = table(at(name), columns);
  return (glance) => showRows(glance[name]);
});

function glanceAt(glance) {
  document.title = `${glance.cell} – afar`;
  show(at("cell"), glance.cell);
  show(at("server"), `${glance.server} · up for ${since(glance.uptime)} · afar ${glance.version} · ${glance.roles.join(", ")}`);
  showServers(glance.servers);
  showFacts(glance);
  showTables.forEach((each) => each(glance));
  show(at("active-note"), glance.active_beyond > 0 ? `the oldest ${glance.active.length} of ${glance.active.length + glance.active_beyond}` : "");
  // Rates take two samples.
  if (glance.span > 0) showTiles.forEach((each) => each(glance));
  show(at("foot"), `Rates and latencies are those of the last ${Math.max(1, Math.round(glance.span))} s; totals are those since the server started.`);
}

function link(state, words) {
  at("link").className = `link ${state}`;
  show(at("link-text"), words);
  document.body.classList.toggle("stale", state === "lost");
}

let lastEvent = 0;

function connect() {
  const source = new EventSource("events");
  source.onmessage = (event) => {
    lastEvent = Date.now();
    link("live", "live");
    glanceAt(JSON.parse(event.data));
  };
  source.onerror = () => {
    link("lost", "no answer");
    // After a refusal the browser does not try again by itself.
    if (source.readyState !== EventSource.CLOSED) return;
    fetch("events", { method: "HEAD" }).then(
      (answer) => link("lost", answer.status === 503 ? "too many viewers" : "no answer"),
      () => {},
    );
    setTimeout(connect, AGAIN);
  };
}

setInterval(() => {
  if (lastEvent > 0 && Date.now() - lastEvent > STALE) link("lost", `silent for ${since((Date.now() - lastEvent) / 1000)}`);
}, 1000);
connect();
