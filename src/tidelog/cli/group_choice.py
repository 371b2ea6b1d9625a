"""Which groups a command is about: words, Kafka's `--group`, or all of them."""

from dataclasses import dataclass
from typing import Annotated

import typer

from tidelog.base.errors import BadValue
from tidelog.client.client import Client
from tidelog.client.groups import list_groups

GroupNames = Annotated[list[str] | None, typer.Argument(metavar="GROUP", help="By name.")]
GroupFlags = Annotated[
    list[str] | None,
    typer.Option("--group", "-g", metavar="NAME", help="The same; may be repeated."),
]
AllGroups = Annotated[bool, typer.Option("--all-groups", help="All groups there are.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    names: list[str]
    is_all: bool
    """Then one that has gone in between is nobody's mistake."""


def choose_groups(
    client: Client,
    words: list[str] | None,
    flags: list[str] | None,
    all_groups: bool = False,
    *,
    none_means_all: bool = False,
    one_only: bool = False,
) -> Groups:
    names = list(dict.fromkeys([*(words or ()), *(flags or ())]))
    if names and all_groups:
        raise BadValue(f"{names[0]} and --all-groups: give one of them")
    if all_groups or (not names and none_means_all):
        return Groups(names=[group.group_id for group in list_groups(client)], is_all=True)
    if not names or (one_only and len(names) > 1):
        raise BadValue("name a group" if one_only else "name a group, or several, or --all-groups")
    return Groups(names=names, is_all=False)
