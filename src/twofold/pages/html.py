"""Elements of HTML as text, escaped where it is made, and the frame of a page that needs no other file."""

import re
from collections.abc import Iterable, Sequence
from html import escape

from twofold.charts.chart import Chart
from twofold.charts.svg import svg_of

STYLE = """
:root{--ink:#1b1b1b;--soft:#5f6368;--line:#d9dce0;--paper:#fff;--under:var(--paper);--box:#f6f7f9;--link:#0a58ca;--bad:#b3261e}
@media (prefers-color-scheme:dark){:root{color-scheme:dark;
--ink:#e8e8e8;--soft:#a5a9ae;--line:#3c4043;--paper:#16181b;--box:#1f2226;--link:#8ab4f8;--bad:#f2a19b}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:84rem;padding:1.2rem;font:15px/1.5 system-ui,sans-serif}
body{color:var(--ink);background:var(--paper);overflow-wrap:anywhere}
h1{font-size:1.5rem;margin:.2rem 0}
h2{font-size:1.15rem;margin:2rem 0 .6rem;border-bottom:1px solid var(--line)}
h3{font-size:1rem;margin:.4rem 0}
p,ul{max-width:62rem}
a{color:var(--link);text-decoration:none}a:hover{text-decoration:underline}
.soft{color:var(--soft)}.bad{color:var(--bad);font-weight:600}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,38rem),1fr));gap:.7rem}
.card{--under:var(--box);background:var(--box);border-radius:6px;padding:.6rem .9rem;min-width:0}
.wide,figure{overflow-x:auto;background:
linear-gradient(90deg,var(--under) 50%,transparent) 0 0/2rem 100% local,
linear-gradient(270deg,var(--under) 50%,transparent) 100% 0/2rem 100% local,
linear-gradient(90deg,var(--line),transparent) 0 0/1rem 100%,
linear-gradient(270deg,var(--line),transparent) 100% 0/1rem 100%;background-repeat:no-repeat}
.wide{margin-bottom:.6rem}table{border-collapse:collapse;font-size:.92em}
th,td{text-align:left;padding:.2rem .8rem .2rem 0;border-bottom:1px solid var(--line);vertical-align:top}
td,th,dt{overflow-wrap:break-word}td{min-width:3.4rem}td a,th{white-space:nowrap}
a.w{white-space:normal}tbody th{font-weight:400}
.card :is(td,th){padding-right:.6rem}td>span{white-space:nowrap}
@media (max-width:40rem){.card .h :is(table,thead,tbody){display:block}
.card .h tr{display:flex;flex-wrap:wrap;border-bottom:1px solid var(--line)}
.card .h :is(td,th){border:0}.card :is(th,td a){white-space:normal}}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
.charts{columns:33rem;column-gap:1rem}
figure{margin:0 0 1rem;break-inside:avoid}
figure svg{display:block;width:100%;min-width:33rem;max-width:48rem;height:auto}
dl{columns:34rem;column-gap:2rem;font-size:.88em}
dt{margin-top:.5rem;break-after:avoid}dd{margin-left:1.2rem;break-inside:avoid}dt,dd{overflow-wrap:anywhere}
dd ul{margin:.1rem 0;padding-left:1.2rem}
dt:target{background:var(--box);outline:2px solid var(--link)}
@media print{:root{--ink:#000;--soft:#444;--line:#bbb;--paper:#fff;--box:#fff;--link:#000;--bad:#8c1d18}
body{max-width:none;padding:0;font-size:11px}
.cards{display:block}.card{border:1px solid var(--line);margin:.5rem 0}
.wide,figure{overflow:visible;background:none}figure svg{min-width:0;max-width:40rem}
h2,h3{break-after:avoid}.card,figure,tr{break-inside:avoid}}
"""
CELL = "twofold-plan"
CODE = re.compile(r"`([^`]+)`")
LONGEST_WHOLE = 30  # characters of a linked text that stays on its line
OF_THE_PAGE = (":root", "body")
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
    """A text as HTML; what stands between backticks is code."""
    return CODE.sub(r"<code>\1</code>", escape(value, quote=False))


def link(said: str, path: str) -> str:
    """A text that leads to an entry of the same page; what is missed (`✗`) stands out, what is long wraps."""
    marks = [name for name, has in (("bad", said.startswith("✗")), ("w", len(said) > LONGEST_WHOLE)) if has]
    return element("a", text(said), href=f"#{path}", cls=" ".join(marks))


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[int] = ()) -> str:
    """Rows of cells that are HTML already; columns in `numbers` are set right. A wide one scrolls.

    Where no column has a head, the first cell of each row is one: it says what the row tells.
    """
    right, headed = set(numbers), any(heads)

    def cell(at: int, held: str) -> str:
        if at == 0 and not headed:
            return element("th", held, scope="row")
        return element("td", held, cls="n" if at in right else "")

    top = (element("th", head, scope="col", cls="n" if at in right else "") for at, head in enumerate(heads))
    head = element("thead", element("tr", *top)) if headed else ""
    body = (element("tr", *(cell(at, held) for at, held in enumerate(cells))) for cells in rows)
    kind = "wide h" if headed else "wide"
    return element("div", element("table", head, element("tbody", *body)), cls=kind)


def pictures(charts: Iterable[Chart]) -> str:
    """Charts beside each other, each reached by `#chart:KEY`."""
    return element(
        "div", *(element("figure", svg_of(each), id=f"chart:{each.key}") for each in charts), cls="charts"
    )


def cell(*parts: str) -> str:
    """Parts of somebody else's page, such as a notebook: styled within, and nothing else there is."""
    return element("div", f"<style>{scoped(STYLE, f'.{CELL}')}</style>", *parts, cls=CELL)


def scoped(style: str, scope: str) -> str:
    """The rules of a style for what stands below an element alone; what is of the page is of the element.

    >>> scoped("body{margin:0}@media print{a,b{color:inherit}}", ".x")
    '.x{margin:0}@media print{.x a,.x b{color:inherit}}'
    """

    def within(rule: re.Match[str]) -> str:
        names = [each.strip() for each in rule[1].split(",")]
        return ",".join(scope if each in OF_THE_PAGE else f"{scope} {each}" for each in names) + rule[2]

    return re.sub(r"([^{}@\n]+)(\{[^{}]*\})", within, style)


def page(title: str, *parts: str) -> str:
    """The whole file."""
    head = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(title, quote=False)}</title>"
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY, quote=True)}">'
        f"<style>{STYLE}</style></head><body><main>\n"
    )
    return head + "\n".join(parts) + "\n</main></body></html>\n"
