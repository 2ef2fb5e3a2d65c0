"""A chart as an SVG file of its own: with a size and a background, so that it reads on any page."""

from twofold.charts.chart import Chart
from twofold.charts.svg import WIDTH, svg_of

# On a page a chart takes the colours around it; alone it follows the reader's mode, ink and ground together.
COLOURS = (
    "svg{--ink:#1b1b1b;--soft:#5f6368;--line:#d9dce0;--paper:#fff}.paper{fill:var(--paper)}"
    "@media (prefers-color-scheme:dark){svg{--ink:#e8e8e8;--soft:#a5a9ae;--line:#3c4043;--paper:#16181b}}"
)


def svg_file(chart: Chart) -> str:
    """The chart as the text of a file that any viewer shows, and that a page may show as an image."""
    tag, _, rest = svg_of(chart).partition(">")
    height = float(tag.partition('viewBox="')[2].partition('"')[0].split()[3])
    sized = f'{tag} width="{WIDTH:.0f}" height="{height:.0f}">'
    paper = '<rect class="paper" width="100%" height="100%" rx="6"/>'
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{sized}<style>{COLOURS}</style>{paper}{rest}\n'
