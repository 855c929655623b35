"""`lab class validate`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from lab.classroom.planning import ClassPlan, SeatPlan
from lab.classroom.preparation import plan_from
from lab.cli.class_actions import ClassOptions
from lab.console import print_json
from lab.errors import ConfigError
from lab.formatting import counted
from lab.log import LOG
from lab.tables import show, table_of
from lab.units import memory_for_people

_ID = 12  # characters of a UUID: `GPU-5e3f1a09`


def run(options: ClassOptions) -> None:
    """Check a class config and this host, and print what each seat gets."""
    file = str(options.file)
    try:
        plan = plan_from(options.file, options.gpus)
    except ConfigError as error:
        if options.json:
            print_json({"file": file, "valid": False, "problems": error.problems})
        raise
    if options.json:
        print_json({"file": file, "valid": True, "problems": [], **plan.to_json()})
        return
    columns = ("seat", "gpus", "network", ">cpus", ">memory", ">disk")
    show(table_of(columns, [*map(_row, plan.seats), *_other_rows(plan)]))
    for notice in plan.notices:
        LOG.info(notice)
    LOG.info(f"{file}: valid: {plan.name}, {counted(len(plan.seats), 'seat')}")


def _row(seat: SeatPlan) -> tuple[str, ...]:
    return (
        seat.name,
        short_ids(seat.gpus),
        str(seat.network),
        "" if seat.cpus is None else f"{seat.cpus:g}",
        "" if seat.memory_bytes is None else memory_for_people(seat.memory_bytes),
        "" if seat.disk_bytes is None else memory_for_people(seat.disk_bytes),
    )


def _other_rows(plan: ClassPlan) -> Iterator[tuple[str, ...]]:
    """Yield a row for the proxy, and one for each run that can be active."""
    yield "(proxy)", "", str(plan.proxy_network), "", "", ""
    for gpu, network in zip_longest(plan.queue_gpus, plan.run_networks, fillvalue=""):
        yield "(queue)", str(gpu)[:_ID] or "none", str(network), "", "", ""


def short_ids(ids: tuple[str, ...]) -> str:
    """Return the beginnings of UUIDs."""
    return " ".join(each[:_ID] for each in ids) or "none"
