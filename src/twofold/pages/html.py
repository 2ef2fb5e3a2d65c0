"""Elements of HTML as text, escaped where it is made, and the frame of a page that needs no other file."""

from collections.abc import Iterable, Sequence
from html import escape

from twofold.charts.chart import Chart
from twofold.charts.svg import svg_of

STYLE = """
:root{--ink:#1b1b1b;--soft:#5f6368;--line:#d9dce0;--paper:#fff;--box:#f6f7f9;--link:#0a58ca;--bad:#b3261e}
@media (prefers-color-scheme:dark){
:root{--ink:#e8e8e8;--soft:#a5a9ae;--line:#3c4043;--paper:#16181b;--box:#1f2226;--link:#8ab4f8;--bad:#f2a19b}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:62rem;padding:1.2rem;font:15px/1.5 system-ui,sans-serif}
body{color:var(--ink);background:var(--paper)}
h1{font-size:1.5rem;margin:.2rem 0}
h2{font-size:1.15rem;margin:2rem 0 .6rem;border-bottom:1px solid var(--line)}
h3{font-size:1rem;margin:1rem 0 .3rem}
a{color:var(--link);text-decoration:none}a:hover{text-decoration:underline}
.soft{color:var(--soft)}.bad{color:var(--bad);font-weight:600}
.card{background:var(--box);border-radius:6px;padding:.6rem .9rem;margin:.7rem 0}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.92em}
th,td{text-align:left;padding:.2rem .8rem .2rem 0;border-bottom:1px solid var(--line);vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,28rem),1fr));gap:1rem}
figure{margin:0}svg{width:100%;height:auto}
dt{margin-top:.5rem;overflow-wrap:anywhere}dd{margin-left:1.2rem;overflow-wrap:anywhere}
dt:target{background:var(--box)}
@media print{body{max-width:none;font-size:11px}a{color:inherit}.card,figure,tr{break-inside:avoid}}
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"  # nothing is fetched, nothing runs


def element(tag: str, *parts: str, **attributes: str) -> str:
    """An element around parts that are HTML already; attributes are escaped, `cls` is `class`."""
    said = "".join(
        f' {name.replace("cls", "class")}="{escape(value, quote=True)}"'
        for name, value in attributes.items()
        if value
    )
    return f"<{tag}{said}>{''.join(parts)}</{tag}>"


def text(value: str) -> str:
    """A text as HTML."""
    return escape(value, quote=False)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[int] = ()) -> str:
    """Rows of cells that are HTML already; columns in `numbers` are set right. A wide one scrolls."""
    right = set(numbers)

    def row(cells: Sequence[str], tag: str) -> str:
        return element(
            "tr", *(element(tag, cell, cls="n" if at in right else "") for at, cell in enumerate(cells))
        )

    body = "".join(row(cells, "td") for cells in rows)
    return element(
        "div", element("table", element("thead", row(heads, "th")), element("tbody", body)), cls="wide"
    )


def pictures(charts: Iterable[Chart]) -> str:
    """Charts beside each other, each reached by `#chart:KEY`."""
    return element(
        "div", *(element("figure", svg_of(each), id=f"chart:{each.key}") for each in charts), cls="charts"
    )


def page(title: str, *parts: str) -> str:
    """The whole file."""
    head = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{text(title)}</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY, quote=True)}">'
        f"<style>{STYLE}</style></head><body>\n"
    )
    return head + "\n".join(parts) + "\n</body></html>\n"
