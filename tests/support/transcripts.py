"""Scenarios as text: commands, each followed by what it changed, indented.

A transcript is read, run and compared line by line; so a change in behaviour is a change in a
file that people can read. With TIDELOG_WRITE_TRANSCRIPTS=1 in the environment the files are
written anew instead.

    # a comment
    hold A e1:m1 e1:m2 hw=2      records that a replica has from the beginning
    lead A isr=AB [told=AB]      a new leader epoch
    write A m3                   the leader appends
    fetch B [count=1]            a round: B asks whom it follows, and takes the answer
    restart B [hw=1] [lost=1]    the process is back, with what was saved and kept
    time 500                     so many milliseconds pass
    expire A                     the leader looks for members that are not in sync
    written A                    what the leader proposed stands in the coordinator
"""

from collections.abc import Callable
from typing import Final

from support.machines import NAMES, Machines, name_of

Handler = Callable[["Scene", str, dict[str, str], list[str]], list[str]]


class Scene:
    def __init__(self, replicas: str, min_isr: int) -> None:
        self.machines = Machines(replicas, min_isr)
        self._names = NAMES[: len(replicas)]
        self._shown = {name: self.machines.line(name) for name in self._names}

    def run(self, command: str) -> list[str]:
        """What it changed, as lines."""
        verb, *words = command.split()
        options = dict(word.split("=") for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        said = _COMMANDS[verb](self, plain[0], options, plain[1:])
        for name in self._names:
            line = self.machines.line(name)
            if line != self._shown[name]:
                self._shown[name] = line
                said.append(line)
        return said or ["nothing changes"]


def replay(text: str) -> str:
    """The transcript with what its commands do now."""
    lines: list[str] = []
    scene: Scene | None = None
    for line in text.splitlines():
        if line.startswith("  "):
            continue
        lines.append(line)
        if not line or line.startswith("#"):
            continue
        if line.startswith("replicas "):
            _, replicas, min_isr = line.split()
            scene = Scene(replicas, int(min_isr.partition("=")[2]))
        else:
            assert scene is not None, "a transcript begins with its replicas"
            lines += [f"  {said}" for said in scene.run(line)]
    return "\n".join(lines) + "\n"


def _hold(scene: Scene, name: str, options: dict[str, str], words: list[str]) -> list[str]:
    scene.machines.hold(name, " ".join(words), int(options.get("hw", 0)))
    scene.machines.epoch = max(scene.machines.epoch, scene.machines[name].log.epochs.latest)
    return []


def _lead(scene: Scene, name: str, options: dict[str, str], _: list[str]) -> list[str]:
    scene.machines.lead(name, options["isr"], options.get("told"))
    return []


def _write(scene: Scene, name: str, _: dict[str, str], words: list[str]) -> list[str]:
    scene.machines.write(name, *(int(word[1:]) for word in words))
    return []


def _fetch(scene: Scene, name: str, options: dict[str, str], _: list[str]) -> list[str]:
    machines = scene.machines
    ask = machines.ask(name)
    leader = name_of(machines.replica(name).leader_id)
    answer = machines.serve(leader, ask, int(options.get("count", 100)))
    offset, last_epoch, _start = ask.position
    asked = f"{name} asks {leader} from {offset} on, the record before is of epoch {last_epoch}"
    if answer.diverging is not None:
        epoch, end = answer.diverging
        told = f"its epoch {epoch} ends at {end}"
    elif answer.error:
        told = f"error {answer.error}"
    else:
        sent = " ".join(f"e{epoch}:m{value}" for epoch, value in answer.records) or "no record"
        told = f"{sent}, HW {answer.high_watermark}"
    verdict = machines.take(name, ask, answer)
    return [asked, f"{leader} answers: {told}; {name} does: {verdict.name}"]


def _restart(scene: Scene, name: str, options: dict[str, str], _: list[str]) -> list[str]:
    saved = options.get("hw")
    scene.machines.restart(name, None if saved is None else int(saved), int(options.get("lost", 0)))
    return []


def _time(scene: Scene, duration_ms: str, *_: object) -> list[str]:
    scene.machines.now_ms += int(duration_ms)
    return [f"it is {scene.machines.now_ms} ms"]


def _expire(scene: Scene, name: str, *_: object) -> list[str]:
    scene.machines.expire(name)
    return []


def _written(scene: Scene, name: str, *_: object) -> list[str]:
    scene.machines.write_isr(name)
    return []


_COMMANDS: Final[dict[str, Handler]] = {
    "hold": _hold,
    "lead": _lead,
    "write": _write,
    "fetch": _fetch,
    "restart": _restart,
    "time": _time,
    "expire": _expire,
    "written": _written,
}
