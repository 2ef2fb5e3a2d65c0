"""`twofold catalog`: the tables that plans are made from."""

from pathlib import Path

import click

from twofold.cli.output import json_option, print_json, print_lines, today
from twofold.core import UsageError

SCHEMA = "twofold/catalog/1"
PARTITIONS_SCHEMA = "twofold/partitions/1"
KERNELS_SCHEMA = "twofold/kernels/1"
OF_A_GPU = ("kernels", "partitions")  # questions about one device


@click.command("catalog")
@click.argument("table", required=False)
@click.argument("gpu", required=False)
@click.option("--where", default="", help="Conditions, such as 'mem_gb >= 80 and vendor == nvidia'.")
@click.option("--columns", default="", help="Columns to show, with commas between; `all` shows every one.")
@click.option(
    "--fit", default="", help="With `partitions GPU`: must fit on one, such as '3x 1g.10gb + 4g.40gb'."
)
@click.option(
    "--folder", type=click.Path(path_type=Path), help="A folder with rows of yours, as beside a spec."
)
@json_option
def command(
    table: str | None, gpu: str | None, where: str, columns: str, fit: str, folder: Path | None, as_json: bool
) -> None:
    """Print TABLE of the catalogue; without TABLE, the list of tables.

    `twofold catalog partitions GPU` lists what a device can be cut into, `twofold catalog kernels GPU` what
    each engine runs on it. `twofold catalog refresh-prices --folder catalog` writes the prices of today.
    """
    if table == "refresh-prices":
        _refresh_prices(folder, as_json)
        return
    if gpu and table not in OF_A_GPU:
        raise UsageError(
            f"`{gpu}`: only `partitions` and `kernels` take a GPU",
            hint=f'filter with --where "name ~ {gpu}"',
        )
    if table is None:
        _list_tables(folder, as_json)
    elif table == "kernels":
        _show_kernels(gpu, folder, as_json)
    elif gpu:
        _show_partitions(gpu, fit, as_json)
    else:
        _show_table(table, where, columns, folder, as_json)


def _refresh_prices(folder: Path | None, as_json: bool) -> None:
    from twofold.app import refresh_prices

    written = refresh_prices(folder or Path("catalog"), today())
    if as_json:
        print_json(
            SCHEMA, {"file": str(written.file), "rows": written.row_count, "left_out": written.left_out}
        )
    else:
        print_lines(written.lines)


def _list_tables(folder: Path | None, as_json: bool) -> None:
    from twofold.app import catalog_tables
    from twofold.report import table as lay_out

    tables = catalog_tables(folder)
    if as_json:
        print_json(SCHEMA, {"tables": dict(tables)})
    else:
        print_lines(
            lay_out(("table", "rows"), [(name, f"{count:,}") for name, count in tables], numbers=(1,))
        )


def _show_partitions(gpu: str, fit: str, as_json: bool) -> None:
    from twofold.app import partitions
    from twofold.core import to_data

    answer = partitions(gpu, fit)
    if as_json:
        print_json(PARTITIONS_SCHEMA, to_data(answer))
    else:
        print_lines(answer.lines)


def _show_kernels(gpu: str | None, folder: Path | None, as_json: bool) -> None:
    if not gpu:
        raise UsageError("`kernels` needs a GPU", hint="write `twofold catalog kernels H100-SXM`")
    from twofold.app import kernels
    from twofold.core import to_data

    answer = kernels(gpu, folder)
    if as_json:
        print_json(KERNELS_SCHEMA, to_data(answer))
    else:
        print_lines(answer.lines)


def _show_table(table: str, where: str, columns: str, folder: Path | None, as_json: bool) -> None:
    from twofold.app import catalog_columns, catalog_rows

    wanted = [name.strip() for name in columns.split(",") if name.strip()]
    if wanted == ["all"] or (as_json and not wanted):
        wanted = catalog_columns(table)
    answer = catalog_rows(table, where, wanted, folder, today())
    if as_json:
        units = {column.name: column.unit for column in answer.columns}
        rows = [dict(zip(units, row, strict=True)) for row in answer.rows]
        print_json(SCHEMA, {"table": answer.name, "units": units, "rows": rows})
    else:
        print_lines(answer.lines)
