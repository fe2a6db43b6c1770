"""The comparison as pictures, and the page that shows them."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferd.bench.policies.errors import BenchExtraMissing
from inferd.bench.policies.report import BASELINE, VALUE_TARGET

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOADS_PNG, CELLS_PNG, WAITS_PNG = "policies-loads.png", "policies-cells.png", "policies-waits.png"
PAGE = "policies.html"
_STAGES = (("queue_s", "queue"), ("run_s", "run"), ("post_s", "post"))
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>inferd: policies compared</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; }}
img {{ max-width: 100%; }}
table {{ border-collapse: collapse; font-size: 0.85em; }}
th, td {{ padding: 0.2rem 0.6rem; border-bottom: 1px solid #ccc; text-align: right; }}
th:first-child, td:first-child {{ text-align: left; }}
</style>
</head>
<body>
<h1>Policies compared</h1>
<p>{summary}</p>
<h2>Targets of {default}</h2>
{targets}
<h2>Value against the clairvoyant bound</h2>
<img src="{loads}" alt="Value of each policy relative to the bound, by load">
<h2>All cells</h2>
<img src="{cells}" alt="Value of each policy relative to the bound, in every cell">
{ratios}
<p>"Told" has true beliefs of speeds, failures and outages at the start and learns nothing. All
others learn on the way, as a node does.</p>
<h2>Where the time goes</h2>
<img src="{waits}" alt="Quantiles of queue, run and post for each policy">
{figures}
<h2>Where {default} loses</h2>
{losses}
</body>
</html>
"""


def write_plots(folder: Path, found: Mapping[str, Any]) -> None:
    """Three PNG files and `policies.html` with them and the figures. Raises BenchExtraMissing."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra, and slow to load
    except ImportError:
        raise BenchExtraMissing("plots need matplotlib, which is not installed") from None
    folder.mkdir(parents=True, exist_ok=True)
    for name, size, draw in (
        (LOADS_PNG, (10, 5), _draw_loads),
        (CELLS_PNG, (12, 6), _draw_cells),
        (WAITS_PNG, (12, 5), _draw_waits),
    ):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure, found)
        figure.savefig(folder / name, dpi=110, metadata={"Software": None})
    (folder / PAGE).write_text(page(found), encoding="utf-8")


def page(found: Mapping[str, Any]) -> str:
    """The page, without its pictures."""
    policies = found["policies"]
    cells = [cell["name"] for cell in found["cells"]]
    return _PAGE.format(
        summary=html.escape(summary(found)),
        default=html.escape(found["default"]),
        targets=_table(
            ("target", "worst", "in", "met"),
            (
                (one["what"], f"{one['worst']:.4g}", one["where"], "yes" if one["met"] else "no")
                for one in found["targets"]
            ),
        ),
        loads=LOADS_PNG,
        cells=CELLS_PNG,
        waits=WAITS_PNG,
        ratios=_table(
            ("policy", *cells),
            (
                *(
                    (name, *(f"{policy['cells'][cell]['value_ratio']:.3f}" for cell in cells))
                    for name, policy in policies.items()
                ),
                (
                    f"{found['default']}, told",
                    *(f"{cell['told_value_ratio']:.3f}" for cell in found["cells"]),
                ),
            ),
        ),
        figures=_table(
            (
                *("policy", "value", "95 % interval", "operator", "on time"),
                *(f"{word} p50/p95/p99 s" for _, word in _STAGES),
                *("max wait s", "Jain", "gas a result", "losing posts", "not posted"),
            ),
            (_row(name, policy) for name, policy in policies.items()),
        ),
        losses=_losses(found),
    )


def summary(found: Mapping[str, Any]) -> str:
    """The outcome in one paragraph."""
    cells = found["cells"]
    target = [cell for cell in cells if cell["target"]]
    ours = found["policies"][found["default"]]
    ratios = ", ".join(
        f"{ours['cells'][cell['name']]['value_ratio']:.3f} at {cell['name']}" for cell in target
    )
    others = sorted({cell["seeds"] for cell in cells if not cell["target"]} or {0})
    sizes = ", ".join(f"{cell['requests']:,}" for cell in target)
    return (
        f"Worlds of {sizes} requests,"
        f" {target[0]['seeds']} seeds"
        f" (others {' to '.join(map(str, others))}), arrivals and lengths from {found['trace']},"
        f" base fees from {found['base_fee']}; fees, deadlines and tenants are drawn."
        f" {found['default']} earns {ratios} of what one could who knew the future."
    )


def _row(name: str, policy: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        name,
        f"{policy['value_ratio']:.3f}",
        f"{policy['value_ratio_low']:.3f} … {policy['value_ratio_high']:.3f}",
        f"{policy['operator_ratio']:.3f}",
        f"{policy['on_time']:.1%}",
        *("/".join(f"{value:.1f}" for value in policy[stage].values()) for stage, _ in _STAGES),
        f"{policy['max_wait_s']:.0f}",
        f"{policy['jain']:.3f}",
        f"{policy['gas_per_result']:,.0f}",
        str(policy["losing_posts"]),
        str(policy["not_posted"]),
    )


def _losses(found: Mapping[str, Any]) -> str:
    if not found["default_loses"]:
        return "<p>In no cell does another policy surely earn more.</p>"
    return _table(
        ("cell", "policy", "earns more by", "95 % interval"),
        (
            (
                one["cell"],
                one["policy"],
                f"{one['mean']:.4f}",
                f"{one['low']:.4f} … {one['high']:.4f}",
            )
            for one in found["default_loses"]
        ),
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    body = "\n".join(line(row, "td") for row in rows)
    return f"<table>\n{line(head, 'th')}\n{body}\n</table>"


def _draw_loads(figure: Figure, found: Mapping[str, Any]) -> None:
    axes = figure.subplots()
    target = [cell["name"] for cell in found["cells"] if cell["target"]]
    policies: Mapping[str, Any] = found["policies"]
    width = 0.85 / len(policies)
    for number, (name, policy) in enumerate(policies.items()):
        cells = [policy["cells"][cell] for cell in target]
        heights = [cell["value_ratio"] for cell in cells]
        errors = [
            [cell["value_ratio"] - cell["value_ratio_low"] for cell in cells],
            [cell["value_ratio_high"] - cell["value_ratio"] for cell in cells],
        ]
        x = [place + (number - (len(policies) - 1) / 2) * width for place in range(len(target))]
        color = {found["default"]: "black", BASELINE: "deeppink"}.get(name)
        axes.bar(x, heights, width, yerr=errors, label=name, color=color, error_kw={"lw": 0.8})
    axes.axhline(VALUE_TARGET, color="gray", linewidth=1, label=f"target {VALUE_TARGET}")
    axes.set_xticks(range(len(target)), target)
    axes.set_ylabel("net value / clairvoyant bound")
    figure.legend(ncols=4, fontsize=8, loc="outside lower center")


def _draw_cells(figure: Figure, found: Mapping[str, Any]) -> None:
    axes = figure.subplots()
    cells = [cell["name"] for cell in found["cells"]]
    policies: Mapping[str, Any] = found["policies"]
    values = [
        [policy["cells"][cell]["value_ratio"] for cell in cells] for policy in policies.values()
    ]
    axes.imshow(values, vmin=0.0, vmax=1.0, cmap="viridis", aspect="auto")
    axes.set_xticks(range(len(cells)), cells, rotation=35, ha="right")
    axes.set_yticks(range(len(policies)), list(policies))
    for row, line in enumerate(values):
        for column, value in enumerate(line):
            color = "white" if value < 0.6 else "black"
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", color=color)


def _draw_waits(figure: Figure, found: Mapping[str, Any]) -> None:
    policies: Mapping[str, Any] = found["policies"]
    for axes, (stage, word) in zip(figure.subplots(1, 3, sharey=True), _STAGES, strict=True):
        for at, policy in enumerate(policies.values()):
            quantiles = policy[stage]
            axes.plot(list(quantiles.values()), [at] * len(quantiles), marker="o", color="tab:blue")
        axes.set_xlabel(f"{word}: p50, p95, p99, seconds")
        axes.grid(alpha=0.3)
        axes.set_yticks(range(len(policies)), list(policies))
        axes.invert_yaxis()
