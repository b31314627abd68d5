"""A page about a run that a person can look at, at any time: curves, results, settings, data, throughput, restarts."""

import glob
import html
import io
import math
import os

import tensorflow.compat.v1 as tf

from bert import files
from bert.training import run_folder, task_report

REPORT_FILE = "report.html"
PLOT_FILE = "loss.png"
_MAX_POINTS = 500  # of a curve: more than a screen shows
_WIDTH, _HEIGHT = 560, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 14, 14, 34

_STYLE = """
:root { color-scheme: light dark; --ground: #fff; --ink: #1c2330; --faint: #5c6675; --line: #dfe3e9; --card: #f6f7f9;
  --training: #1f6fd1; --heldout: #d2591a; --restart: #8a93a2; }
@media (prefers-color-scheme: dark) { :root { --ground: #12161c; --ink: #e4e8ee; --faint: #9aa5b4; --line: #2c3440;
  --card: #1a2028; --training: #6aaeff; --heldout: #ff9a5c; --restart: #727d8d; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.2rem 1rem 3rem; max-width: 76rem; background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin: 0 0 .2rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .6rem; }
p { margin: .2rem 0; } .faint { color: var(--faint); }
.charts { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr)); }
figure { margin: 0; padding: .7rem .7rem .3rem; background: var(--card); border-radius: .5rem; }
figcaption { font-weight: 600; font-size: .95rem; } svg { width: 100%; height: auto; display: block; }
svg text { fill: var(--faint); font-size: 12px; } .grid { stroke: var(--line); } .axis { stroke: var(--faint); }
.restart { stroke: var(--restart); stroke-dasharray: 3 4; } polyline { fill: none; stroke-width: 1.8; }
.training { stroke: var(--training); } .heldout { stroke: var(--heldout); } circle.heldout { fill: var(--heldout); }
.key { display: inline-block; width: 1.4em; height: .25em; margin: 0 .4em .25em 1em; border-radius: 1px; }
.tables { display: grid; gap: 0 2rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 25rem), 1fr)); }
table { border-collapse: collapse; width: 100%; font-size: .93rem; } td, th { padding: .25rem .5rem .25rem 0;
  border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; font-weight: 400; }
td { font-variant-numeric: tabular-nums; } th { color: var(--faint); width: 50%; } details { margin-top: 1.2rem; }
summary { cursor: pointer; font-weight: 600; }
"""


def write(output_dir):
    """Writes `report.html` and `loss.png` in the folder of a run.

    Returns:
      The path of the report.
    """
    run = _Run(output_dir)
    path = os.path.join(output_dir, REPORT_FILE)
    with files.atomic_write(path, "w") as f:
        f.write(_page(run))
    if "loss" in run.training:
        with files.atomic_write(os.path.join(output_dir, PLOT_FILE)) as f:
            f.write(_plot(run))
    return path


class _Run:
    """What is known of a run: its record, its results, and its curves as dicts from name to [(step, value)]."""

    def __init__(self, output_dir):
        self.name = os.path.basename(os.path.abspath(output_dir)) if "://" not in output_dir else output_dir
        self.record = run_folder.read_record(output_dir) or {}
        self.results = run_folder.read_results(output_dir)
        self.summary = run_folder.read_json(output_dir, run_folder.SUMMARY_FILE) or {}
        self.training = read_curves(output_dir)
        self.held_out = {}
        evaluations = run_folder.read_evaluations(output_dir)
        for entry in [*evaluations, self.results]:
            for name, value in entry.items():
                self.held_out.setdefault(name, {})[entry["global_step"]] = value
        self.held_out = {name: sorted(values.items()) for name, values in self.held_out.items()}
        self.details = run_folder.read_json(output_dir, run_folder.DETAILS_FILE) or {}
        self.restarts = self.record.get("starts", [])[1:]


def read_curves(output_dir):
    """The scalars in the event files of a folder: a dict from tag to [(step, value)], sorted by step.

    Steps that were made again after a restart have the values of the last time.
    """
    if files.is_remote(output_dir):
        paths = tf.io.gfile.glob(os.path.join(output_dir, "events.out.tfevents.*"))
    else:
        paths = glob.glob(os.path.join(glob.escape(output_dir), "events.out.tfevents.*"))
    curves = {}
    for path in sorted(paths, key=lambda path: path.split("tfevents.")[1]):
        try:
            for event in tf.train.summary_iterator(path):
                for value in event.summary.value:
                    if value.HasField("simple_value"):
                        curves.setdefault(value.tag, {})[event.step] = value.simple_value
        except tf.errors.DataLossError:
            continue  # the last event of a process that was killed
    return {tag: sorted(values.items()) for tag, values in curves.items()}


def _page(run):
    record = run.record
    settings = record.get("settings", {})
    total, step = settings.get("num_train_steps"), record.get("step")
    lines = [f"{record.get('status', 'unknown')}{': ' + record['reason'] if record.get('reason') else ''}"]
    if total and step is not None:
        lines.append(f"step {step:,} of {total:,} ({100 * step / total:.1f} %)")
    charts = "".join(_chart(name, run) for name in _order(run))
    results = dict(run.results)
    for name in ("uniform_loss", "token_frequency_loss"):
        value = (run.summary.get("eval_metrics") or {}).get(name)
        if value is not None:
            results[f"{name} (without a model)"] = value
    flat = {name: value for name, value in settings.items() if not isinstance(value, (dict, list))}
    phases = "; ".join(
        f"length {phase['max_seq_length']} to step {phase['last_step']:,}" for phase in settings.get("phases", [])
    )
    tables = [
        ("Results on held-out data", results),
        ("Speed", _speed(run)),
        ("Training", {**flat, "phases": phases, "seed": str(record.get("seed", "")), "device": record.get("device")}),
        ("Model", settings.get("model", {})),
        *(
            (f"Data of phase {i + 1}" if len(record["data"]) > 1 else "Data", data)
            for i, data in enumerate(record.get("data", []))
        ),
        (
            "Program",
            {**record.get("versions", {}), **{k: record.get(k) for k in ("git_commit", "host", "start", "end")}},
        ),
    ]
    restarts = "".join(
        f"<tr><th>step {start['step']:,}</th><td>{html.escape(start['time'])}, the run before was "
        f"{html.escape(str(start.get('run_before')))}</td></tr>"
        for start in run.restarts
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(run.name)}</title>
<style>{_STYLE}{task_report.STYLE}</style>
</head>
<body>
<h1>{html.escape(run.name)}</h1>
<p>{html.escape(", ".join(lines))}</p>
<p class="faint"><span class="key" style="background:var(--training);margin-left:0"></span>training
<span class="key" style="background:var(--heldout)"></span>held-out data
<span class="key" style="background:var(--restart)"></span>restart</p>
<div class="charts">{charts}</div>
{task_report.section(run.details)}
<div class="tables">{"".join(_table(title, entries) for title, entries in tables)}</div>
<h2>Restarts</h2>
<table>{restarts or "<tr><td>none</td></tr>"}</table>
<details><summary>All flags</summary>{_table("", record.get("flags", {}))}</details>
</body>
</html>
"""


def _order(run):
    """Names of the curves, those that matter most first."""
    first = ["loss", "masked_lm_accuracy", "next_sentence_accuracy", "masked_lm_loss", "next_sentence_loss"]
    last = ["gradient_norm", "learning_rate", "examples_per_second"]
    others = sorted(set(run.training) - set(first) - set(last))
    others += sorted(set(run.held_out) - set(run.training) - set(first) - {"global_step", "max_seq_length"})
    return [name for name in (*first, *others, *last) if name in run.training or name in run.held_out]


def _speed(run):
    rate = run.summary.get("examples_per_second") or run.record.get("metrics", {}).get("examples_per_second")
    if not rate:
        return {}
    speed = {"examples per second": rate}
    phases = run.record.get("settings", {}).get("phases", [])
    if phases:
        speed["tokens per second"] = rate * phases[-1]["max_seq_length"]
    batch = run.record.get("settings", {}).get("train_batch_size")
    if batch:
        speed["seconds per step"] = batch / rate
    return speed


def _table(title, entries):
    rows = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(_text(value))}</td></tr>"
        for name, value in entries.items()
        if value not in (None, "")
    )
    heading = f"<h2>{html.escape(title)}</h2>" if title else ""
    return f"<section>{heading}<table>{rows}</table></section>" if rows else ""


def _text(value):
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:.5g}"


def _chart(name, run):
    """One curve as an SVG image that takes its colours from the page."""
    training, held_out = (
        [point for point in curves.get(name, []) if math.isfinite(point[1])] for curves in (run.training, run.held_out)
    )
    points = training + held_out
    if not points:
        return ""
    x_low, x_high = 0, max(step for step, _ in points) or 1
    low, high = min(value for _, value in points), max(value for _, value in points)
    if name.endswith("accuracy") or 0 <= low < 0.5 * high:
        low = 0.0
    y_ticks = _ticks(low, high if high > low else low + abs(low) * 0.1 + 1e-9)
    low, high = min(y_ticks[0], low), max(y_ticks[-1], high)

    def place(step, value):
        x = _LEFT + (_WIDTH - _LEFT - _RIGHT) * (step - x_low) / (x_high - x_low)
        y = _TOP + (_HEIGHT - _TOP - _BOTTOM) * (high - value) / (high - low)
        return f"{x:.1f}", f"{y:.1f}"

    parts = []
    for tick in y_ticks:
        _, y = place(0, tick)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{_LEFT - 7}" y="{float(y) + 4:.1f}" text-anchor="end">{_short(tick)}</text>')
    for tick in _ticks(x_low, x_high):
        x, _ = place(tick, low)
        parts.append(f'<text x="{x}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{_short(tick)}</text>')
    _, bottom = place(0, low)
    parts.append(f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{bottom}" y2="{bottom}"/>')
    for start in run.restarts:
        if start["step"] <= x_high:
            x, _ = place(start["step"], low)
            parts.append(f'<line class="restart" x1="{x}" x2="{x}" y1="{_TOP}" y2="{bottom}"/>')
    for kind, curve in (("training", _thin(training)), ("heldout", held_out)):
        if len(curve) > 1:
            line = " ".join(",".join(place(*point)) for point in curve)
            parts.append(f'<polyline class="{kind}" points="{line}"/>')
        if curve and (kind == "heldout" or len(curve) == 1):
            for x, y in (place(*point) for point in curve):
                parts.append(f'<circle class="{kind}" cx="{x}" cy="{y}" r="3.2"/>')
    title = html.escape(name.replace("_", " "))
    return (
        f'<figure><figcaption>{title}</figcaption><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{title} by step">{"".join(parts)}</svg></figure>'
    )


def _thin(curve):
    """A curve of at most `_MAX_POINTS`, each the mean of its neighbours."""
    size = math.ceil(len(curve) / _MAX_POINTS)
    groups = [curve[i : i + size] for i in range(0, len(curve), size)] if size > 1 else [[point] for point in curve]
    return [(group[-1][0], sum(value for _, value in group) / len(group)) for group in groups]


def _ticks(low, high, count=5):
    """About `count` round numbers between two others."""
    rough = (high - low) / count
    magnitude = 10 ** math.floor(math.log10(rough))
    step = next(factor * magnitude for factor in (1, 2, 5, 10) if factor * magnitude >= rough)
    return [i * step for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _short(value):
    return f"{value:.10g}" if value == 0 or 1e-3 <= abs(value) < 1e6 else f"{value:.0e}".replace("e-0", "e-")


def _plot(run):
    """The loss as a PNG image."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5), dpi=120)
    axes.plot(*zip(*_thin(run.training["loss"])), label="training", linewidth=1.4)
    if run.held_out.get("loss"):
        axes.plot(*zip(*run.held_out["loss"]), "o-", label="held-out data", markersize=4)
    for i, start in enumerate(run.restarts):
        axes.axvline(start["step"], color="grey", linewidth=0.8, linestyle=":", label="restart" if i == 0 else None)
    axes.set(xlabel="step", ylabel="loss", title=run.name)
    axes.grid(alpha=0.3)
    axes.legend()
    content = io.BytesIO()
    figure.savefig(content, format="png", bbox_inches="tight")
    pyplot.close(figure)
    return content.getvalue()
