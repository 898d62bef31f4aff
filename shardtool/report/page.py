"""The HTML report: one file that asks nothing of the network, for the screen and for paper."""

from __future__ import annotations

import base64
import html

from ..base.errors import HostError
from ..base.units import show_count, show_size
from ..jobs.simulate import Result
from ..mixing.advice import show_score
from ..version import VERSION
from . import figures
from .mixing import five_numbers, flag, forecast_line, pipeline_words, target_line

# A page that could load anything could also fail to: the policy forbids all but what is inside the file.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"

CSS = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff; margin: 0 auto; padding: 1.5rem;
  max-width: 76rem; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
p { margin: .4rem 0; } .what { color: #555; }
.verdict { background: #f2f6fb; border-left: 5px solid #1f5fa8; padding: .8rem 1rem; margin: 1.2rem 0; }
.score { font-size: 2.6rem; font-weight: 700; line-height: 1.1; } .score small { font-size: 1rem; font-weight: 400; }
.bar { height: .6rem; background: #dde5ee; max-width: 26rem; margin: .3rem 0; }
.bar div { height: 100%; background: #1f5fa8; }
table { border-collapse: collapse; width: 100%; } .wide { overflow-x: auto; }
th, td { text-align: left; padding: .35rem .8rem .35rem 0; border-bottom: 1px solid #ddd; vertical-align: top; }
td.n, td.name { white-space: nowrap; font-variant-numeric: tabular-nums; } th { font-weight: 600; }
.grid { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(30rem, 100%), 1fr)); gap: 1.5rem; }
figure { margin: 0; break-inside: avoid; } figure img { width: 100%; height: auto; display: block; }
figcaption { font-size: .9rem; color: #555; margin-top: .3rem; }
pre { background: #f5f5f5; padding: .7rem 1rem; overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere; }
footer { color: #777; font-size: .85rem; margin-top: 2rem; }
@media (max-width: 40rem) { body { padding: 1rem; } .meaning { display: block; }
  table.five thead { display: none; } table.five td { display: block; border: 0; padding: 0; }
  table.five td.n::before { content: attr(data-name) ": "; color: #777; }
  table.five tr { display: block; border-bottom: 1px solid #ddd; padding: .5rem 0; } }
@media print { body { font-size: 10.5pt; padding: 0; max-width: none; }
  .grid { grid-template-columns: 1fr 1fr; gap: 1rem; } h2 { break-after: avoid; } tr { break-inside: avoid; }
  .verdict, .bar, .bar div { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""


def write_page(result: Result, path: str, command: str) -> None:
    """Raises HostError when it cannot be written."""
    text = page(result, command)
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise HostError(f"cannot write the report: {error.strerror}", file=path) from error


def page(result: Result, command: str) -> str:
    """The whole file."""
    title = f"Mixing of {result.pipe.shuffle.name}: {show_score(result.score)} of 100"
    what = "".join(f"<p class='what'>{_text(line)}</p>" for line in pipeline_words(result))
    target = target_line(result)
    verdict = result.advice.sentence if result.advice is not None else ""
    pictures = "".join(_figure(name, result) for name in figures.FIGURES if _has(name, result))
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{_text(title)}</title><style>{CSS}</style></head><body>
<h1>How well does it mix?</h1>
{what}
<div class="verdict">
<div class="score">{show_score(result.score)} <small>of 100 (0 = the stored order, 100 = a full shuffle)</small></div>
<div class="bar"><div style="width:{max(0.0, min(100.0, result.score)):.1f}%"></div></div>
<p><strong>{_text(verdict)}</strong></p>
{f"<p>{_text(target)}</p>" if target else ""}
</div>
<h2>The numbers</h2>
{_numbers(result)}
<p>{_text(flag(result))} {_text(forecast_line(result))}</p>
<h2>The pictures</h2>
<div class="grid">{pictures}</div>
<h2>Settings</h2>
{_settings(result)}
<h2>How to reproduce</h2>
<pre>{_text(command)}</pre>
<p class="what">The same version and options give the same numbers; another --seed shows how much they vary.</p>
<footer>shardtool {VERSION}</footer>
</body></html>
"""


def _text(words: str) -> str:
    return html.escape(words)


def _has(name: str, result: Result) -> bool:
    """A curve can be drawn from closed forms alone; the others need a simulation."""
    return name == "curve" or result.heat is not None


def _numbers(result: Result) -> str:
    rows = []
    for line in five_numbers(result):
        rows.append(
            f"<tr><td class='name'><strong>{_text(line.name)}</strong></td>"
            f"<td class='n' data-name='here'><strong>{_text(line.value)}</strong></td>"
            f"<td class='n' data-name='stored order'>{_text(line.source)}</td>"
            f"<td class='n' data-name='full shuffle'>{_text(line.full)}</td>"
            f"<td><span class='meaning'>{_text(line.meaning)}</span></td></tr>"
        )
    head = "".join(f"<th>{name}</th>" for name in ("", "here", "stored order", "full shuffle", "what it says"))
    body = "".join(rows)
    return f"<div class='wide'><table class='five'><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _figure(name: str, result: Result) -> str:
    data = base64.b64encode(figures.figure_svg(name, result)).decode("ascii")
    alt = f"{figures.TITLES[name]}. {figures.caption(name, result)}"
    return (
        f"<figure><img src='data:image/svg+xml;base64,{data}' alt='{html.escape(alt, quote=True)}'>"
        f"<figcaption>{_text(figures.caption(name, result))}</figcaption></figure>"
    )


def _settings(result: Result) -> str:
    pipe, stored = result.pipe, result.stored
    shards = f"{show_count(len(stored.shard_samples))} of {show_count(int(stored.shard_samples.min()))}"
    if stored.shard_samples.min() != stored.shard_samples.max():
        shards += f" to {show_count(int(stored.shard_samples.max()))}"
    shards += " samples"
    order = "random" if pipe.shuffle_shards else "as stored"
    rows = [
        ("loader", pipe.shuffle.library),
        ("samples", show_count(stored.samples)),
        ("shards", shards),
        ("mean sample", "unknown" if stored.mean_bytes is None else show_size(round(stored.mean_bytes))),
        ("shard order", order + (" (assumed: the loader's default)" if result.assumed_order else "")),
        ("shards read in turn", show_count(pipe.cycle)),
        ("buffer", show_count(pipe.buffer) if pipe.shuffle.sized else "none"),
        ("batch size", show_count(pipe.batch_size)),
        ("ranks x buffers a rank", f"{pipe.ranks} x {pipe.lanes_per_rank}"),
        ("classes", result.classes_are),
        ("seed", f"{pipe.seed}" + (f", the real order of {pipe.shuffle.exact}" if pipe.exact else "")),
    ]
    cells = "".join(f"<tr><th>{_text(name)}</th><td>{_text(value)}</td></tr>" for name, value in rows)
    return f"<table class='settings'>{cells}</table>"
