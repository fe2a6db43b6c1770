"""The figures of the benchmark as pictures, and the page that shows them."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferd.bench.posting.errors import PlotsMissing
from inferd.bench.posting.measure import OURS, RATES, RULES, TARGET

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FRONTIER_PNG, CELLS_PNG, PAGE = "posting-frontier.png", "posting-cells.png", "posting.html"
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>inferd: what the time of posting costs</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; }}
img {{ max-width: 100%; }}
table {{ border-collapse: collapse; }}
th, td {{ padding: 0.2rem 0.8rem; border-bottom: 1px solid #ccc; text-align: right; }}
th:first-child, td:first-child {{ text-align: left; }}
</style>
</head>
<body>
<h1>What the time of posting costs</h1>
<p>{summary}</p>
<h2>Gas against delay</h2>
<p>Each point is a price of delay, in percent of a post's fixed gas for one result and block.</p>
<img src="{frontier_png}" alt="Gas paid over the mean delay, a curve for each rate">
{frontier}
<h2>Cost against the clairvoyant's</h2>
<img src="{cells_png}" alt="Cost of each rule relative to the clairvoyant's, by rate and deadline">
{cells}
</body>
</html>
"""


def write_plots(
    folder: Path, measured: Mapping[str, Any], frontier: Sequence[Mapping[str, Any]]
) -> None:
    """Two PNG files and `posting.html` with both and their figures. Raises PlotsMissing."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra, and slow to load
    except ImportError:
        raise PlotsMissing(
            "plots need matplotlib, which is not installed",
            help_text="pip install 'inferd[bench]', or leave out --plots",
        ) from None
    folder.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(8, 5), layout="constrained")
    _draw_frontier(figure.subplots(), frontier)
    figure.savefig(folder / FRONTIER_PNG, dpi=120, metadata={"Software": None})
    figure = Figure(figsize=(10, 5), layout="constrained")
    _draw_cells(figure.subplots(), measured["cells"])
    figure.savefig(folder / CELLS_PNG, dpi=120, metadata={"Software": None})
    page = _PAGE.format(
        summary=html.escape(summary(measured)),
        frontier_png=FRONTIER_PNG,
        cells_png=CELLS_PNG,
        frontier=_table(frontier),
        cells=_table(measured["cells"]),
    )
    (folder / PAGE).write_text(page, encoding="utf-8")


def summary(measured: Mapping[str, Any]) -> str:
    """The outcome in one paragraph."""
    return (
        f"A {measured['series']} series of {measured['blocks']} blocks, {measured['seeds']} seeds,"
        f" {measured['fixed_gas']:,} gas a post and {measured['per_result_gas']:,} a result; one"
        f" result's waiting for one block is worth {measured['delay_percent']:g} % of a post's"
        f" fixed gas. In the worst cell inferd pays {measured['worst_ratio']:.3f} times what one"
        f" would who knew all arrivals and prices in advance; {measured['missed']} deadlines were"
        " missed."
    )


def _draw_frontier(axes: Axes, frontier: Sequence[Mapping[str, Any]]) -> None:
    for rate in RATES:
        rows = [row for row in frontier if row["rate"] == rate]
        x = [row["mean_delay_blocks"] for row in rows]
        y = [100.0 * row["gas_share"] for row in rows]
        axes.plot(x, y, marker="o", label=f"{rate:g} results a block")
        for row, at_x, at_y in zip(rows, x, y, strict=True):
            label = f"{row['delay_percent']:g} %"
            axes.annotate(label, (at_x, at_y), (4, 4), textcoords="offset points", fontsize=7)
    axes.set_xlabel("mean delay of a result, blocks")
    axes.set_ylabel("gas paid, % of posting at once")
    axes.grid(alpha=0.3)
    axes.legend()


def _draw_cells(axes: Axes, cells: Sequence[Mapping[str, Any]]) -> None:
    places = sorted({(row["rate"], row["deadline_blocks"]) for row in cells})
    width = 0.8 / len(RULES)
    for number, policy in enumerate(RULES):
        heights = [
            next(
                row["cost_ratio"]
                for row in cells
                if (row["rate"], row["deadline_blocks"], row["policy"]) == (*place, policy)
            )
            for place in places
        ]
        x = [place + (number - (len(RULES) - 1) / 2) * width for place in range(len(places))]
        color = "black" if policy == OURS else None
        axes.bar(x, [height - 1.0 for height in heights], width, 1.0, label=policy, color=color)
    axes.axhline(TARGET, color="red", linewidth=1, label=f"target {TARGET:.2f}")
    axes.set_xticks(range(len(places)), [f"{rate:g}/block\n{d} blocks" for rate, d in places])
    axes.set_ylabel("cost / the clairvoyant's")
    axes.legend(ncols=3)


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Its first column is a name where there is one."""
    columns = sorted(rows[0], key=lambda column: column != "policy")
    head = "".join(f"<th>{html.escape(column.replace('_', ' '))}</th>" for column in columns)
    body = "\n".join(
        "<tr>"
        + "".join(f"<td>{html.escape(str(row[column]))}</td>" for column in columns)
        + "</tr>"
        for row in rows
    )
    return f"<table>\n<tr>{head}</tr>\n{body}\n</table>"
