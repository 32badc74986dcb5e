// What the server's HTML cannot do: charts, live records, and questions before a change.
"use strict";

const CHART_EVERY_MS = 2000;
const CHART_POINTS = 150;
const ROWS_MOST = 500;

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// A chart asks for {"value": number}. With data-rate it shows the growth of the value per second.
function draw(box) {
  const times = [], values = [];
  let before = null;
  const axis = { stroke: colour("--dim"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
  const plot = new uPlot({
    width: box.clientWidth - 16, height: 150, legend: { show: false }, cursor: { drag: { x: false, y: false } },
    // The last minute at least: the axis of a single point would show years.
    scales: { x: { range: (_, low, high) => [Math.min(low, high - 60), high] }, y: { range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(1, high ?? 1)] } },
    series: [{}, { stroke: colour("--accent"), width: 2, fill: colour("--good-ground"), points: { show: true } }],
    axes: [axis, { ...axis, size: 70 }],
  }, [times, values], box);
  async function measure() {
    try {
      const answer = await fetch(box.dataset.chart);
      if (!answer.ok) return;
      const now = Date.now() / 1000, value = (await answer.json()).value;
      const shown = !box.dataset.rate ? value : before && Math.max(0, (value - before.value) / (now - before.now));
      before = { now, value };
      if (shown === null) return;
      times.push(now);
      values.push(shown);
      if (times.length > CHART_POINTS) { times.shift(); values.shift(); }
      plot.setData([times, values]);
    } catch { /* the next measurement may have an answer */ } finally {
      setTimeout(measure, CHART_EVERY_MS);
    }
  }
  measure();
  addEventListener("resize", () => plot.setSize({ width: box.clientWidth - 16, height: 150 }));
}

// The server has escaped the rows.
function follow(button) {
  const body = document.getElementById("records"), state = document.getElementById("tail-state");
  let source = null, count = 0;
  function stop(why) {
    source?.close();
    source = null;
    button.setAttribute("aria-pressed", "false");
    button.textContent = "Follow new records";
    state.textContent = why;
  }
  button.addEventListener("click", () => {
    if (source) { stop(`stopped after ${count} new records`); return; }
    source = new EventSource(button.dataset.tail);
    count = 0;
    button.setAttribute("aria-pressed", "true");
    button.textContent = "Stop";
    source.addEventListener("open", () => { state.textContent = "waiting for new records"; });
    source.addEventListener("records", (event) => {
      const told = JSON.parse(event.data);
      count += told.count;
      document.getElementById("no-records")?.remove();
      body.insertAdjacentHTML("afterbegin", told.html);
      for (let n = 0; n < told.count; n++) body.rows[n]?.classList.add("new");
      while (body.rows.length > ROWS_MOST) body.deleteRow(-1);
      state.textContent = `${count} new records`;
    });
    source.addEventListener("trouble", (event) => stop(JSON.parse(event.data).text));
    source.onerror = () => stop("the console does not answer");
  });
}

document.addEventListener("submit", (event) => {
  const question = event.submitter?.dataset.confirm;
  if (question && !confirm(question)) event.preventDefault();
});

document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll("[data-chart]").forEach(draw);
  document.querySelectorAll("[data-tail]").forEach(follow);
});
