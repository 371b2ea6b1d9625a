"""The controller: one broker that decides for all who leads what, for as long as it is in office.

It reads the tree, makes every partition what it should be, and tells every broker what that one
does not know yet. From then on events only say what to look at. It ends when there is another
controller or the session is over; whatever it had begun, the next one finds in the tree.
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from tidelog.base.control import ReplicaStatesResponse
from tidelog.base.coordination import CoordinationError, Node
from tidelog.base.errors import ErrorCode
from tidelog.base.ports import Timer
from tidelog.cluster import paths
from tidelog.cluster.desk import Asked, Desk
from tidelog.cluster.dispatch import Dispatch
from tidelog.cluster.heeding import Announcements, BrokerList, readable
from tidelog.cluster.image import NO_TOPIC_ID, BrokerInfo, TopicInfo
from tidelog.cluster.mending import Mended, with_ids
from tidelog.cluster.messages import Told
from tidelog.cluster.notifications import decode_isr_change, decode_log_dir_event
from tidelog.cluster.reading import Found, read_topics
from tidelog.cluster.realm import PartitionName, Realm, is_end
from tidelog.cluster.reconciling import Reconciler
from tidelog.cluster.requests import Change
from tidelog.cluster.surroundings import Surroundings
from tidelog.cluster.topic_changes import TopicChanges
from tidelog.cluster.wishes import Wishes
from tidelog.cluster.writing import insist, pack, write_parts

_log = logging.getLogger(__name__)

RETRY_MS: Final = 1000


class Controller:
    def __init__(self, realm: Realm, around: Surroundings) -> None:
        self.realm = realm
        self.is_active = False
        """Whether the tree was read."""
        self._coordination = around.coordination
        self._around = around
        self._entropy = around.entropy
        self._timers: dict[str, Timer] = {}
        self._waiting: list[Callable[[], None]] = []
        self._found: Found | None = None
        self._has_brokers = False
        self._configs: dict[str, Mapping[str, str]] = {}
        """Settings that changed while the tree was read."""
        desk = Desk(
            realm=realm,
            told=Told(realm.image),
            peers=around.peers,
            loop=around.loop,
            clock=around.clock,
            doubted=self._check_epoch,
            replica_answered=self._replica_answered,
            replicas_reported=self._replicas_reported,
        )
        self._dispatch = Dispatch(desk)
        self._reconciler = Reconciler(
            realm, self._dispatch, around.coordination, around.loop, around.clock
        )
        self.topics = TopicChanges(
            realm, self._dispatch, self._reconciler, around.coordination, around.entropy
        )
        self.wishes = Wishes(realm, self._dispatch, self._reconciler)
        self._brokers = BrokerList(around.coordination, self._brokers_changed, self._broken)
        self._isr_changes = self._announcements(paths.ISR_CHANGES, self._isrs_changed)
        self._log_dir_events = self._announcements(paths.LOG_DIR_EVENTS, self._log_dirs_failed)

    # -- taking office and leaving it

    def start(self) -> None:
        _log.info("controller under epoch=%d", self.realm.office.epoch)
        self._brokers.look()
        self._load()

    def when_active(self, done: Callable[[], None]) -> None:
        """Once the tree was read, or the office is over."""
        self._waiting.append(done)

    def close(self) -> None:
        self.realm.is_over = True
        self.is_active = False
        for timer in self._timers.values():
            timer.cancel()
        for heeding in (self._brokers, self._isr_changes, self._log_dir_events):
            heeding.close()
        self._reconciler.close()
        self._dispatch.close()
        self._release()

    def _release(self) -> None:
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done()

    def _load(self) -> None:
        insist(partial(read_topics, self._coordination), self._loaded)

    def _loaded(self, found: Found | CoordinationError) -> None:
        if self.realm.is_over:
            return
        if isinstance(found, CoordinationError):
            self._broken(found)
            self._after("load", RETRY_MS, self._load)
            return
        staying = [t for t in found.topics.values() if t.name not in found.marked_for_deletion]

        def looked(mended: Mended | CoordinationError) -> None:
            if isinstance(mended, CoordinationError):
                wrote(mended)
                return
            topics, writes = mended
            found.topics.update((topic.name, topic) for topic in topics)
            write_parts(self._coordination, pack(writes, self.realm.fence), wrote)

        def wrote(error: CoordinationError | None) -> None:
            if error is None:
                self._found = found
                self._begin()
            elif not self.realm.is_over:
                self._broken(error)
                self._after("load", RETRY_MS, self._load)

        insist(partial(with_ids, self._coordination, staying, self._entropy), looked)

    def _begin(self) -> None:
        """Once the brokers and the topics are known, whichever comes last."""
        found = self._found
        if found is None or not self._has_brokers or self.is_active or self.realm.is_over:
            return
        image = self.realm.image
        image.unreadable.update(found.unreadable)
        marked = {name: _marked(found, name) for name in found.marked_for_deletion}
        for topic in found.topics.values():
            if topic.name not in marked:
                image.put_topic(topic)
        self._take_over_configs()
        self.is_active = True
        self._dispatch.brokers_changed(image.brokers)
        self._reconciler.mark_all()
        self._reconciler.mark([])
        self.topics.finish_deletions(list(marked.values()), lambda _: None)
        self._isr_changes.look()
        self._log_dir_events.look()
        self._balance_later()
        self._release()

    def _broken(self, error: CoordinationError) -> None:
        """Ends the office only if the session is over, or another's."""
        if is_end(error):
            self.realm.end_by([error])
        else:
            _log.error("the controller cannot use the tree: %s", error)

    def _check_epoch(self) -> None:
        """A broker says that there is a later controller: that is looked up."""

        def got(node: Node | CoordinationError) -> None:
            is_mine = isinstance(node, Node) and node.stat.version == self.realm.fence.version
            if isinstance(node, Node) and not is_mine and not self.realm.is_over:
                _log.warning("no longer controller under epoch=%d", self.realm.office.epoch)
                self.realm.end()

        insist(partial(self._coordination.get, paths.CONTROLLER_EPOCH), got)

    # -- brokers

    def _brokers_changed(self, brokers: dict[int, BrokerInfo]) -> None:
        realm = self.realm
        before, realm.image.brokers = realm.image.brokers, brokers
        self._has_brokers = True
        if not self.is_active:
            self._begin()
            return
        changed = {
            broker_id
            for broker_id in before.keys() | brokers.keys()
            if _epoch(before, broker_id) != _epoch(brokers, broker_id)
        }
        if not changed and before == brokers:
            return
        for broker_id, epoch in list(realm.shutting_down.items()):
            if _epoch(brokers, broker_id) != epoch:
                del realm.shutting_down[broker_id]
        _log.info("brokers=%s changed=%s", sorted(brokers), sorted(changed))
        self._dispatch.brokers_changed(brokers)
        self._reconciler.mark(self.wishes.held_by(changed))

    def _replica_answered(self, broker: BrokerInfo, name: PartitionName, code: int) -> None:
        if code == ErrorCode.kafka_storage_error:
            self.realm.offline.setdefault(name, {})[broker.broker_id] = broker.epoch
            self._reconciler.mark([name])
        elif code == ErrorCode.none:
            if self.realm.offline[name].pop(broker.broker_id, None) is not None:
                self._reconciler.mark([name])
        else:
            _log.error(
                "broker=%d cannot serve partition=%s-%d: %s",
                broker.broker_id,
                *name,
                ErrorCode(code).name,
            )

    def _replicas_reported(
        self, broker: BrokerInfo, asked: Asked, response: ReplicaStatesResponse | None
    ) -> None:
        self._reconciler.reported(broker, asked, response)

    # -- what is announced

    def _announcements(
        self, path: str, heard: Callable[[list[bytes], Callable[[], None]], None]
    ) -> Announcements:
        return Announcements(self._coordination, self.realm.fence, path, heard, self._broken)

    def _isrs_changed(self, texts: list[bytes], done: Callable[[], None]) -> None:
        names = [name for found in readable(texts, decode_isr_change) for name in found]
        self._reconciler.rereading.read(names, lambda _: done())

    def _log_dirs_failed(self, texts: list[bytes], done: Callable[[], None]) -> None:
        for broker_id in sorted(set(readable(texts, decode_log_dir_event))):
            self._dispatch.tell_again(broker_id, self.wishes.held_by({broker_id}))
        done()

    def configs_changed(self, change: Change, topics: Mapping[str, TopicInfo]) -> None:
        """Settings that elections go by may be among them."""
        for name in change.topic_configs:
            if name in topics:
                self._configs[name] = topics[name].config
        if self.is_active:
            self._take_over_configs()
        if change.broker_config:
            self._reconciler.mark_all()

    def _take_over_configs(self) -> None:
        configs, self._configs = self._configs, {}
        for name, config in configs.items():
            known = self.realm.image.topics.get(name)
            if known is not None:
                self.realm.put_config(name, config)
                self._reconciler.mark((name, at) for at in range(len(known.partitions)))

    # -- balance

    def _balance_later(self) -> None:
        settings = self.realm.settings()
        if settings.flag("auto.leader.rebalance.enable"):
            seconds = settings.whole("leader.imbalance.check.interval.seconds")
            self._after("balance", 1000 * seconds, self._balance)

    def _balance(self) -> None:
        self.wishes.balance()
        self._balance_later()

    def _after(self, what: str, delay_ms: int, callback: Callable[[], None]) -> None:
        if not self.realm.is_over:
            at_ms = self._around.clock.monotonic_ms() + delay_ms
            self._timers[what] = self._around.loop.call_at(at_ms, callback)


def _epoch(brokers: Mapping[int, BrokerInfo], broker_id: int) -> int | None:
    broker = brokers.get(broker_id)
    return None if broker is None else broker.epoch


def _marked(found: Found, name: str) -> TopicInfo:
    """A topic that is to be deleted; if its nodes are gone or cannot be read, its name."""
    known = found.topics.get(name)
    return TopicInfo(name=name, topic_id=NO_TOPIC_ID, partitions=()) if known is None else known
