"""Three ZooKeepers that are one: a session outlives the death of the leader among them."""

import time
from pathlib import Path

from support.coordinated import RealZooKeeper, Seen
from support.zookeepers import own_ensemble
from tidelog.base.coordination import CoordinationError, Create, SetData
from tidelog.world.real.zookeeper_server import ZooKeeperServer, ask


def test_when_the_leader_dies_the_session_survives_and_writes_go_on(tmp_path: Path) -> None:
    with own_ensemble(tmp_path) as members:
        place = RealZooKeeper(",".join(member.address for member in members) + "/below", 60_000)
        place.write(Create(path="/e", ephemeral=True), Create(path="/a"))
        seen = Seen()
        place.get("/a", seen.watch)
        session_id = place.coordination.session_id
        leader_of(members).kill()
        began = time.monotonic()
        write_until_it_is_done(place)
        took_seconds = time.monotonic() - began
        print(f"the next write was done {took_seconds:.1f} s after the leader's death")
        assert seen.events == [("changed", "/a")]
        assert place.get("/e").stat.ephemeral_owner == place.coordination.session_id == session_id
        assert {state for state, _ in place.states} == {"suspended", "connected"}
        assert len(place.sessions) == 1
        place.release()


def leader_of(members: list[ZooKeeperServer]) -> ZooKeeperServer:
    (leader,) = [member for member in members if "Mode: leader" in ask(member.address, "srvr")]
    return leader


def write_until_it_is_done(place: RealZooKeeper) -> None:
    while True:
        try:
            place.write(SetData(path="/a", data=b"1"))
        except CoordinationError:
            continue
        return
