"""The part of a run's page that is about its task: labels, a confusion matrix, the worst errors with their text."""

import html

STYLE = """
.matrix td, .matrix th { text-align: right; width: auto; padding: .3rem .5rem; border: 1px solid var(--ground); }
.matrix th { max-width: 9rem; } .matrix td { color: var(--ink); } .scroll { overflow-x: auto; }
.errors td, .errors th { width: auto; }
"""


def section(details):
    """The details of evaluations as HTML.

    Args:
      details: dict from part of the dev set ("" for the main one) to a dict as of `bert.tasks.details`.
    """
    found = []
    for part, of in details.items():
        name = f" ({html.escape(part)})" if part else ""
        if of.get("labels"):
            found.append(f"<section><h2>Labels{name}</h2>{_labels(of['labels'])}</section>")
        if of.get("confusion"):
            names = [entry["label"] for entry in of["labels"]]
            found.append(f"<section><h2>What is taken for what{name}</h2>{_matrix(names, of['confusion'])}</section>")
        if of.get("errors"):
            found.append(f"<section><h2>Worst errors{name}</h2>{_errors(of['errors'])}</section>")
    return "".join(found)


def _labels(entries):
    rows = "".join(
        f"<tr><th>{html.escape(entry['label'])}</th>"
        + "".join(f"<td>{entry[name]:.3f}</td>" for name in ("precision", "recall", "f1"))
        + f"<td>{entry['examples']:,}</td></tr>"
        for entry in entries
    )
    return _scrolled(f"<table>{_head('label', 'precision', 'recall', 'F1', 'examples')}{rows}</table>")


def _matrix(names, counts):
    """A table whose cells are as dark as the share of the true label's examples that they have."""
    rows = []
    for name, row in zip(names, counts):
        total = sum(row) or 1
        cells = "".join(
            f'<td style="background:color-mix(in srgb, var(--training) {round(75 * count / total)}%, var(--card))"'
            f' title="{100 * count / total:.1f} % of {html.escape(name, quote=True)}">{count:,}</td>'
            for count in row
        )
        rows.append(f"<tr><th>{html.escape(name)}</th>{cells}</tr>")
    head = _head("true \\ predicted", *names)
    return _scrolled(f'<table class="matrix">{head}{"".join(rows)}</table>')


def _errors(entries):
    rows = "".join(
        f"<tr><td>{entry['number']:,}</td><td>{_text(entry)}</td><td>{html.escape(entry['label'])}</td>"
        f"<td>{html.escape(entry['predicted'])} {html.escape(entry['probability'])}</td>"
        f"<td>{entry['loss']:.3f}</td></tr>"
        for entry in entries
    )
    return _scrolled(f'<table class="errors">{_head("row", "text", "true", "predicted", "loss")}{rows}</table>')


def _text(entry):
    if "text_a" not in entry:
        return "(made from records, whose text is not known)"
    texts = [entry["text_a"], entry["text_b"]] if entry["text_b"] else [entry["text_a"]]
    return "<br>".join(html.escape(text if len(text) <= 500 else text[:500] + " …") for text in texts)


def _head(*names):
    return "<tr>" + "".join(f"<th>{html.escape(name)}</th>" for name in names) + "</tr>"


def _scrolled(table):
    return f'<div class="scroll">{table}</div>'
