"use strict";
// Draws the charts of report.html from the JSON in #data. Everything untrusted reaches the page as text, never as markup.
(() => {
  const profiles = JSON.parse(document.getElementById("data").textContent);
  const narrow = window.matchMedia("(max-width: 600px)");
  const PRINTED = { width: 450, height: 250 }; // two fit beside each other on A4 or letter, landscape
  let printing = false;
  let drawn = [];

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const micro = (value) => {
    if (value == null) return "–";
    const digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }) + " µs";
  };

  // x = 1 / (1 - p): 1 is 0 %, 10 is 90 %, 1000 is 99.9 %.
  const percent = (x) => {
    const decades = Math.log10(x);
    const digits = Math.max(0, Math.ceil(decades - 1e-9) - 2) + (Number.isInteger(Math.round(decades * 1e6) / 1e6) ? 0 : 1);
    return (100 * (1 - 1 / x)).toFixed(digits) + " %";
  };

  const powers = (low, high, factors) => {
    const found = [];
    for (let power = Math.floor(Math.log10(low)) - 1; power <= Math.ceil(Math.log10(high)); power++)
      for (const factor of factors) {
        const value = factor * 10 ** power;
        if (value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9)) found.push(Number(value.toPrecision(6)));
      }
    return found;
  };

  const latencies = (u, axis, low, high) => {
    const fine = powers(low, high, [1, 2, 5]);
    return fine.length <= 9 ? fine : powers(low, high, [1]);
  };

  const latencyRange = (u, low, high) => (low == null ? [1, 10] : [low / 1.25, Math.max(high * 1.25, low * 2)]);

  const axis = (more) => ({
    stroke: () => colour("--soft"),
    grid: { stroke: () => colour("--line"), width: 1 },
    ticks: { stroke: () => colour("--line"), width: 1, size: 4 },
    font: "12px system-ui, sans-serif",
    filter: (u, splits) => splits, // the default thins out a logarithmic axis by its own rule
    ...more,
  });

  const latencyAxis = () =>
    axis({
      size: 58,
      splits: latencies,
      values: (u, splits) => splits.map((value) => value.toLocaleString("en", { maximumSignificantDigits: 3 })),
    });

  // As many as marked.py says, each unlike the others in black and white.
  const DASHES = [undefined, [6, 4], [2, 3], [10, 3, 2, 3], [16, 5], [8, 3, 2, 3, 2, 3], [3, 8]];

  const line = (one, more) => ({
    label: one.label,
    stroke: () => colour("--s" + one.colour),
    dash: DASHES[one.dash],
    width: 2,
    points: { show: false },
    value: (u, value) => micro(value),
    ...more,
  });

  // A legend shows a line as it is drawn, with its dashes.
  const sample = (row, series) => {
    const line = (name, attributes) => {
      const made = document.createElementNS("http://www.w3.org/2000/svg", name);
      for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
      return made;
    };
    const svg = line("svg", { class: "sample", width: 34, height: 10, "aria-hidden": true });
    const dash = (series.dash || []).join(" ");
    svg.append(line("line", { x1: 1, x2: 33, y1: 5, y2: 5, stroke: series.stroke(), "stroke-width": 2.5, "stroke-dasharray": dash }));
    row.querySelector(".u-marker").replaceWith(svg);
  };

  const box = (place, title) => {
    const made = document.createElement("div");
    made.className = "chart";
    const heading = document.createElement("h3");
    heading.textContent = title + ", latency in µs";
    made.append(heading);
    place.append(made);
    return made;
  };

  // So much is kept free to the right for the last label of the axis below, which is as wide on either side of its tick.
  const RIGHT = 16, BESIDE_PERCENT = 40, BESIDE_LATENCY = 28;

  const draw = (place, options, data) => {
    const size = () =>
      printing ? PRINTED : { width: Math.floor(place.clientWidth), height: narrow.matches ? 240 : 280 };
    const chart = new uPlot({ ...size(), padding: [10, RIGHT, 0, 0], legend: { live: true }, ...options }, data, place);
    chart.series.forEach((series, at) => at && sample(chart.root.querySelectorAll(".u-series")[at], series));
    drawn.push({ chart, size });
  };

  const percentileChart = (place, profile) => {
    const wanted = (u, low, high) => {
      const decades = powers(low, high, [1]);
      const room = (u.bbox.width / devicePixelRatio / Math.max(1, decades.length - 1)) | 0;
      const step = room < 30 ? 3 : room < 60 ? 2 : 1;
      return decades.filter((value, index) => index % step === 0);
    };
    draw(
      place,
      {
        padding: [10, BESIDE_PERCENT, 0, 0],
        scales: {
          x: { time: false, distr: 3, range: (u, low, high) => [1, Math.max(high, 10)] },
          y: { distr: 3, range: latencyRange },
        },
        axes: [
          axis({ size: 30, splits: (u, index, low, high) => wanted(u, low, high), values: (u, splits) => splits.map(percent) }),
          latencyAxis(),
        ],
        series: [{ label: "percentile", value: (u, value) => (value == null ? "–" : percent(value)) }, ...profile.percentiles.map((one) => line(one))],
      },
      [profile.axis, ...profile.percentiles.map((one) => one.y)],
    );
  };

  // A share of 0 has no place on a logarithmic axis: it is drawn below the chart's edge.
  const NONE = 1e-15;

  const share = (value) => {
    if (value == null || value <= NONE) return "–";
    const percent = 100 * value;
    return (percent < 0.001 ? percent.toExponential(1) : +percent.toPrecision(3)) + " %";
  };

  const frequencyChart = (place, profile) => {
    const least = Math.min(...profile.frequencies.flatMap((one) => one.y.filter((y) => y > 0)));
    draw(
      place,
      {
        padding: [10, BESIDE_LATENCY, 0, 0],
        scales: {
          x: { time: false, distr: 3, range: (u, low, high) => (low == null ? [1, 10] : [low, high]) },
          y: { distr: 3, range: () => [10 ** Math.floor(Math.log10(least)), 1] },
        },
        axes: [
          axis({ size: 30, splits: latencies, values: (u, splits) => splits.map((value) => value.toLocaleString("en", { maximumSignificantDigits: 3 })) }),
          axis({ size: 66, splits: (u, index, low, high) => powers(low, high, [1]).filter((value, at, all) => all.length < 7 || at % 2 === 0), values: (u, splits) => splits.map(share) }),
        ],
        series: [
          { label: "from", value: (u, value) => micro(value) },
          ...profile.frequencies.map((one) => line(one, { value: (u, value) => share(value), paths: uPlot.paths.stepped({ align: 1 }) })),
        ],
      },
      [profile.bins, ...profile.frequencies.map((one) => one.y.map((y) => y || NONE))],
    );
  };

  // Three lines for each trial. The legend has one entry, which shows all three and turns them on and off together.
  const COMPANIONS = [["avg", { width: 1 }], ["min", { width: 1, dash: [1, 3] }]];

  const SECONDS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30];
  const INCREMENTS = [...SECONDS, ...[1, 2, 5, 10, 15, 30].map((n) => n * 60), ...[1, 2, 4, 6, 12, 24, 48, 96].map((n) => n * 3600)];

  const clock = (seconds, step) =>
    step >= 3600 ? seconds / 3600 + " h" : step >= 60 ? seconds / 60 + " min" : +seconds.toFixed(6) + " s";

  // 12 s, 5:07 min, 40:00:00 h: as a legend shows it.
  const moment = (value) => {
    if (value < 60) return +value.toFixed(3) + " s";
    const [hours, minutes, seconds] = [Math.floor(value / 3600), Math.floor(value / 60) % 60, Math.floor(value % 60)];
    const two = (number) => String(number).padStart(2, "0");
    return hours ? `${hours}:${two(minutes)}:${two(seconds)} h` : `${minutes}:${two(seconds)} min`;
  };

  // Of soaks: grey where nothing was measured, a red mark at the top where frames were lost, repeated or out of order.
  const gapsBelow = (profile) => (u) => {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.fillStyle = colour("--line");
    for (const [from, to] of profile.times.flatMap((one) => one.gaps)) {
      const left = Math.max(u.valToPos(from, "x", true), bbox.left);
      const right = Math.min(u.valToPos(to, "x", true), bbox.left + bbox.width);
      if (right > left) ctx.fillRect(left, bbox.top, Math.max(right - left, devicePixelRatio), bbox.height);
    }
    ctx.restore();
  };

  const faultsAbove = (profile) => (u) => {
    const { ctx, bbox } = u;
    const size = 4 * devicePixelRatio;
    ctx.save();
    ctx.fillStyle = colour("--bad-ink");
    for (const [at] of profile.times.flatMap((one) => one.faults)) {
      const x = u.valToPos(at, "x", true);
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.beginPath();
      ctx.moveTo(x - size, bbox.top);
      ctx.lineTo(x + size, bbox.top);
      ctx.lineTo(x, bbox.top + 2 * size);
      ctx.fill();
    }
    ctx.restore();
  };

  const timeChart = (place, profile) => {
    // join() keeps a null (nothing received: a gap) apart from a time that another trial has and this one has not.
    const data = uPlot.join(profile.times.flatMap((one) => ["max", "avg", "min"].map((name) => [one.x, one[name]])));
    const points = { show: data[0].length <= 120, size: 4 };
    const all = (u, at, index) => {
      if (index == null) return "–";
      const [most, mean, least] = [0, 1, 2].map((more) => micro(data[at + more][index]).replace(" µs", ""));
      return `${least} / ${mean} / ${most} µs`;
    };
    const each = 1 + COMPANIONS.length;
    draw(
      place,
      {
        scales: { x: { time: false }, y: { distr: 3, range: latencyRange } },
        axes: [
          axis({ size: 30, incrs: INCREMENTS, values: (u, splits, at, space, step) => splits.map((value) => clock(value, step)) }),
          latencyAxis(),
        ],
        series: [
          { label: "time", value: (u, value) => (value == null ? "–" : moment(value)) },
          ...profile.times.flatMap((one) => [
            line(one, { points, value: (u, value, at, index) => all(u, at, index) }),
            ...COMPANIONS.map(([name, more]) => line(one, { label: `${one.label}, ${name}`, class: "u-companion", ...more })),
          ]),
        ],
        hooks: {
          drawClear: [gapsBelow(profile)],
          draw: [faultsAbove(profile)],
          setSeries: [
            (u, at, options) => {
              if (at == null || options.show == null || (at - 1) % each !== 0) return;
              for (let more = 1; more < each; more++) u.setSeries(at + more, { show: options.show });
            },
          ],
        },
      },
      data,
    );
  };

  const render = () => {
    for (const [id, make] of [["percentiles", percentileChart], ["frequencies", frequencyChart], ["times", timeChart]]) {
      const place = document.getElementById(id);
      if (!place) continue;
      place.replaceChildren();
      // All boxes first: how wide one is depends on how many there are.
      const shown = profiles.filter((profile) => profile[id].length);
      const boxes = shown.map((profile) => box(place, profile.title));
      shown.forEach((profile, index) => make(boxes[index], profile));
    }
  };

  const redraw = () => {
    drawn.forEach(({ chart }) => chart.destroy());
    drawn = [];
    render();
  };

  render();
  let waiting;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => drawn.forEach(({ chart, size }) => chart.setSize(size())), 100);
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  // Paper is white: print in light colours, with everything unfolded.
  window.addEventListener("beforeprint", () => {
    printing = true;
    document.documentElement.classList.add("print");
    document.querySelectorAll("details").forEach((one) => { one.open = true; });
    redraw();
  });
  window.addEventListener("afterprint", () => {
    printing = false;
    document.documentElement.classList.remove("print");
    redraw();
  });
  document.documentElement.dataset.charts = String(drawn.length);
  document.documentElement.dataset.drawnAfter = String(Math.round(performance.now())); // ms since the page was asked for
})();
