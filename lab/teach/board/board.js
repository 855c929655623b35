// The board: it shows what the server sends, and reconnects by itself.
"use strict";

const at = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const KINDS = {__proto__: null, succeeded: "good", failed: "bad", cancelled: "bad", aborted: "bad", lost: "bad", training: "busy"};
/** The colour of a state; `succeeded without worker-1` has that of a warning. */
const colour = (state) => KINDS[state] || (state.startsWith("succeeded") ? "late" : "");
const ended = (state) => ["good", "late", "bad"].includes(colour(state));
const LINES = 6;
const LAST_S = 300;
let shown = null, endsUnix = null, aheadS = 0;

/** A new element with a text and attributes. Text of a run is never read as HTML. */
function create(name, text = "", attributes = {}, space = null) {
  const element = space ? document.createElementNS(space, name) : document.createElement(name);
  element.textContent = text;
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

const precise = (value) => String(Number(value.toPrecision(3)));
const lasting = (seconds) => seconds < 90 ? `${Math.round(seconds)} s` :
  `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;

/** Change a text only if it is another one, so that a screen reader reads it once. */
function write(id, text) {
  if (at(id).textContent !== text) at(id).textContent = text;
}

function show(data) {
  const run = data.run || null, room = data.class || null;
  write("problem", data.problem);
  at("nothing").hidden = run || room || data.problem;
  at("run").hidden = !run;
  at("class").hidden = !room;
  document.title = run ? `${run.experiment}: ${run.state}` : room ? room.name : "lab";
  write("title", run ? run.run : room ? room.name : "lab");
  write("state", run ? run.state : "");
  endsUnix = room ? room.ends_unix : null;
  showClock();
  if (room) showClass(room);
  if (run) showRun(run);
}

/** Show the time left: `1:02:03`, or `4:59` in the colour of the last minutes. */
function showClock() {
  const leftS = Math.ceil(endsUnix - aheadS - Date.now() / 1000), two = (number) => String(number).padStart(2, "0");
  const hours = Math.floor(leftS / 3600), minutes = Math.floor(leftS / 60) % 60, rest = two(leftS % 60);
  const left = hours > 0 ? `${hours}:${two(minutes)}:${rest}` : `${minutes}:${rest}`;
  write("clock", endsUnix === null ? "" : leftS > 0 ? `${left} left` : "The class is over.");
  at("clock").className = endsUnix !== null && leftS <= LAST_S ? "bad" : "";
}

function showClass(room) {
  const stuck = room.seats.filter((seat) => seat.stuck);
  write("stuck", stuck.map((seat) => `${seat.seat}: ${seat.state}`).join(", "));
  // The fewer rows there are, the larger is their text.
  at("class").style.setProperty("--rows", Math.max(room.seats.length, room.queue.length, 1));
  at("seats").replaceChildren(...room.seats.map((seat) => {
    const line = create("tr", "", {class: seat.stuck ? "stuck" : ""});
    line.append(create("th", seat.seat, {scope: "row"}), create("td", seat.state, {class: seat.stuck ? "late" : colour(seat.state)}),
      create("td", seat.run), create("td", seat.step, {class: "number"}), create("td", seat.passed, {class: "note"}));
    return line;
  }));
  at("queue-part").hidden = !room.queue.length;
  at("queue").replaceChildren(...room.queue.map((line) => create("li", line)));
}

function showRun(run) {
  at("state").className = colour(run.state);
  write("reason", run.reason);
  const facts = [["experiment", run.experiment], [ended(run.state) ? "ended after" : "running for", lasting(run.elapsed_s)], ["global step", run.global_step]];
  at("facts").replaceChildren(...facts.map(([name, value]) => {
    const pair = create("div");
    pair.append(create("dt", name), create("dd", value || "–"));
    return pair;
  }));
  write("notes", run.notes);
  at("run").classList.toggle("cpus", !run.tasks.some((task) => task.gpu));
  at("tasks").replaceChildren(...run.tasks.map(row));
  shown = run;
  draw();
}

function row(task) {
  const line = create("tr");
  line.append(
    create("th", task.task, {scope: "row"}),
    create("td", task.stuck ? "stuck" : task.state, {class: task.stuck ? "late" : colour(task.state)}),
    ...[task.local_step, task.steps_per_s, task.loss].map((text) => create("td", text, {class: "number"})),
    create("td", task.gpu, {class: "number gpu"}), create("td", task.note, {class: "note"}));
  return line;
}

/** Round steps for an axis: at most `most` of 1, 2 or 5 times a power of ten. */
function ticks(low, high, most) {
  const rough = (high - low) / most, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
  const first = Math.ceil(low / step), count = Math.floor(high / step + 1e-6) - first + 1;
  return Array.from({length: count}, (_, index) => Number(((first + index) * step).toPrecision(12)));
}

const look = (index) => `line-${index % LINES} dash-${Math.floor(index / LINES) % 4}`;

function draw() {
  const svg = at("loss"), curves = Object.entries(shown.loss), all = curves.flatMap(([, points]) => points);
  at("legend").replaceChildren(...curves.map(([task], index) => {
    const item = create("li"), line = create("svg", "", {viewBox: "0 0 40 12", "aria-hidden": "true"}, SVG);
    line.append(create("path", "", {d: "M0 6H40", class: look(index)}, SVG));
    item.append(line, task);
    return item;
  }));
  const last = curves.map(([task, points]) => `${task} ${precise(points[points.length - 1][1])}`);
  write("loss-text", last.length ? `${ended(shown.state) ? "Last" : "Newest"}: ${last.join(", ")}.` : "No loss that can be drawn is recorded yet.");
  const size = parseFloat(getComputedStyle(svg).fontSize);
  const width = svg.clientWidth, height = svg.clientHeight, bottom = 2 * size, top = size, right = size;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.replaceChildren();
  if (!all.length || !width) return;
  const early = Math.max(0, Math.min(...all.map(([time]) => time)));
  const late = Math.max(early + 1, ...all.map(([time]) => time)), losses = all.map(([, loss]) => loss);
  const low = Math.min(0, ...losses) * 1.05, high = Math.max(0, ...losses) * 1.05 || Number(!low);
  const marks = ticks(low, high, height / (4 * size)), left = (1 + 0.6 * Math.max(4, ...marks.map((mark) => String(mark).length))) * size;
  const x = (time) => left + (width - left - right) * (time - early) / (late - early);
  const y = (loss) => height - bottom - (height - bottom - top) * (loss - low) / (high - low);
  for (const loss of marks) svg.append(
    create("line", "", {x1: left, x2: width - right, y1: y(loss), y2: y(loss), class: "axis"}, SVG),
    create("text", String(loss), {x: left - 8, y: y(loss) + size / 4, "text-anchor": "end"}, SVG));
  for (const time of ticks(early, late, width / (7 * size))) svg.append(
    create("text", `${time} s`, {x: x(time), y: height - size / 2, "text-anchor": "middle"}, SVG));
  curves.forEach(([, points], index) => {
    const path = points.map(([time, loss], first) => `${first ? "L" : "M"}${x(time).toFixed(1)} ${y(loss).toFixed(1)}`);
    svg.append(create("path", "", {d: path.join(""), class: look(index)}, SVG));
  });
}

const events = new EventSource("events");
events.onopen = () => write("connection", "Connected. Asking for the first data …");
events.onerror = () => {
  // A server that starts again is found after a second. Only a longer silence is shown.
  setTimeout(() => { if (events.readyState !== EventSource.OPEN) write("connection", "Connecting …"); }, 5000);
};
// The server's clock counts: the board may be shown on another computer.
events.addEventListener("clock", (message) => { aheadS = Number(message.data) - Date.now() / 1000; showClock(); });
setInterval(showClock, 1000);
events.onmessage = (message) => {
  const data = JSON.parse(message.data);
  show(data);
  write("connection", data.run && ended(data.run.state) ? "The run has ended." : "Live.");
};
addEventListener("error", (event) => write("connection", `This page failed: ${event.message}; reload it.`));
addEventListener("resize", () => { if (shown) draw(); });
