"""What a deployment and its workload declare (stages, pools, devices, engines, queues), before anything is lowered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from serq.errors import Place, closest, fail
from serq.ir.words import CALLED, KEYWORDS
from serq.lowering.build import Build, Engine, Queue, Resource, Scope
from serq.lowering.declarations import called_names, constant_scope
from serq.lowering.expressions import constant
from serq.lowering.pools import declare_size, read_capacity
from serq.lowering.queues import ENTRY_PARAMETERS
from serq.syntax import tree

__all__ = ["Declared", "declare_items"]

_NEEDS = {"prefill": "prefill", "decode": "decode", "agg": "decode", "gateway": "route"}


@dataclass
class _Device:
    decl: tree.DeviceDecl
    at: Place
    engine: Engine | None = None
    pools: dict[str, Resource] = field(default_factory=dict)


@dataclass
class Declared:
    """The declarations with the resources they made, in the order of the text."""

    stages: list[tuple[Resource, tree.StageDecl, Queue | None]] = field(default_factory=list)
    engines: list[Engine] = field(default_factory=list)
    pools: list[tuple[Resource, tree.PoolDecl, Queue | None, str]] = field(default_factory=list)


class _Scene:
    """One level of declarations: the deployment, or the inside of a queue."""

    def __init__(self, build: Build, declared: Declared, side: str, queue: Queue | None = None) -> None:
        self.build = build
        self.declared = declared
        self.side = side
        self.queue = queue
        self.scope: Scope = constant_scope(build, side)
        self.devices: dict[str, _Device] = {}
        self.engines: dict[str, Engine] = {}
        self.waiting: list[tree.PoolDecl] = []

    def size(self, written: tree.Expression | None) -> int | None:
        if self.queue is not None:
            return self.queue.count if self.queue.family else None
        return declare_size(written, self.scope)

    def full(self, name: str) -> str:
        return name if self.queue is None or name == self.queue.name else f"{self.queue.name}.{name}"

    def resource(self, kind: str, name: str, size: tree.Expression | None, at: Place) -> Resource:
        if self.queue is None:
            self.build.declare(kind, name, at)
        elif name in self.queue.locals:
            raise fail("structure", f"{name!r} is declared twice in {self.queue.name!r}", at)
        resource = self.build.add_resource(kind, self.full(name), self.size(size), at)
        resource.side = self.side
        if self.queue is not None:
            self.queue.locals[name] = resource
        return resource

    # --- the kinds of declaration -------------------------------------------------------------------------------------

    def stage(self, decl: tree.StageDecl) -> None:
        resource = self.resource("stage", decl.name, decl.size, decl.name_at)
        self.declared.stages.append((resource, decl, self.queue))
        if decl.latency is not None:
            from serq.lowering.expressions import lower_number

            resource.latency = lower_number(decl.latency, self.scope, "a latency")
        if self.queue is not None and decl.name == "nic":
            self.queue.nic = resource

    def device(self, decl: tree.DeviceDecl) -> None:
        if decl.name in self.devices:
            raise fail("structure", f"{decl.name!r} is declared twice", decl.at)
        if self.queue is None:
            self.build.declare("device", decl.name, decl.at)
        if len(decl.caps) > 1:
            message = f"the device {decl.name!r} has two capacities"
            raise fail("structure", message, decl.caps[1].at, code="E-device-two-pools")
        for cap in decl.caps:
            _check_word(cap.name, cap.at, KEYWORDS | CALLED)
        self.devices[decl.name] = _Device(decl, decl.at)

    def engine(self, decl: tree.EngineDecl) -> None:
        if self.queue is not None:
            if decl.name:
                raise fail("structure", "the engine of a queue takes the queue's name", decl.name_at)
            name = self.queue.name
        elif not decl.name:
            raise fail(
                "structure", "an engine outside a queue has a name", decl.at, hint="write 'engine NAME on DEVICE'"
            )
        else:
            name = decl.name
            _check_word(name, decl.name_at, KEYWORDS)
        for cap in decl.caps:
            _check_word(cap.name, cap.at, KEYWORDS)
        resource = self.resource("stage", name, None, decl.name_at)
        engine = Engine(name, decl.name_at, resource, decl, self.queue)
        resource.engine = engine
        self.engines[name] = self.build.engines[name] = engine
        self.declared.engines.append(engine)
        if self.queue is not None:
            self.queue.engine = engine

    def link_engines(self) -> None:
        for engine in self.engines.values():
            assert engine.decl is not None
            device = self.devices.get(engine.decl.device)
            if device is None:
                hint = closest(engine.decl.device, self.devices)
                raise fail("name", f"no device is called {engine.decl.device!r}", engine.decl.device_at, hint=hint)
            if device.engine is not None:
                raise fail("structure", f"{engine.decl.device!r} already carries an engine", engine.decl.device_at)
            device.engine = engine
            engine.rates = {rate.name: rate for rate in device.decl.rates}
            for rate in device.decl.rates:
                _check_rate(rate)

    def pool(self, decl: tree.PoolDecl) -> None:
        if decl.on is not None and decl.size is not None:
            raise fail("structure", f"{decl.name!r} is as large a family as what it stands on", decl.name_at)
        resource = self.resource("pool", decl.name, decl.size, decl.name_at)
        self.declared.pools.append((resource, decl, self.queue, self.side))
        read_capacity(resource, decl.options, self.scope)
        if decl.on is not None:
            self.place(resource, decl, decl.on)

    def place(self, resource: Resource, decl: tree.PoolDecl, on: tree.Path) -> None:
        """Give a pool the capacity it stands on, and the engine that admits it or calls it its memory."""
        if any(option.word == "cap" for option in decl.options):
            raise fail("structure", f"the cap of {decl.name!r} stands with {on.text!r}", decl.name_at)
        engine, device = self._target(on)
        caps = device.decl.caps if device is not None else engine.decl.caps if engine and engine.decl else ()
        cap = next((one for one in caps if one.name == decl.name), None)
        if cap is None:
            message = f"{on.text!r} declares no capacity called {decl.name!r}"
            raise fail("structure", message, decl.name_at, hint=f"add '{decl.name} cap …;'", code="E-pool-no-capacity")
        resource.cap = constant(cap.value, self.scope, "'cap'")
        if not resource.cap >= 0:
            raise fail("value", f"the cap of {decl.name!r} is not negative", cap.value.at)
        if engine is not None:
            resource.admitted_by = engine.stage
            engine.pools.append(resource)
        if device is not None:
            device.pools[decl.name] = resource
            if device.engine is not None:
                device.engine.memory = resource

    def _target(self, on: tree.Path) -> tuple[Engine | None, _Device | None]:
        names = [part.name for part in on.parts]
        engine = self.engines.get(names[0])
        if engine is not None and len(names) == 1:
            return engine, None
        device = self.devices.get(names[-1])
        if device is None or len(names) > 2 or (len(names) == 2 and engine is None):
            hint = closest(on.text, [*self.engines, *self.devices])
            raise fail("name", f"no engine or device is called {on.text!r}", on.at, hint=hint)
        if len(names) == 2 and device.engine is not engine:
            raise fail("structure", f"{names[0]!r} does not run on {names[1]!r}", on.at)
        return (engine if len(names) == 2 else None), device

    def check_capacities(self) -> None:
        """Every capacity is declared as a pool."""
        for device in self.devices.values():
            for cap in device.decl.caps:
                if cap.name not in device.pools:
                    raise _no_pool(cap, device.decl.name)
        for engine in self.engines.values():
            assert engine.decl is not None
            held = {pool.name for pool in engine.pools}
            for cap in engine.decl.caps:
                if self.full(cap.name) not in held:
                    raise _no_pool(cap, engine.name)


def _no_pool(cap: tree.LetDecl, owner: str) -> Exception:
    hint = f"write 'pool {cap.name} on {owner} {{ }}'"
    return fail("structure", f"the capacity {cap.name!r} of {owner!r} is declared by no pool", cap.at, hint=hint)


def _check_rate(rate: tree.DefDecl) -> None:
    from serq.lowering.expressions import expression_names

    assert rate.value is not None
    read = {one.parts[0].name for one in expression_names(rate.value) if isinstance(one, tree.Path)}
    for param in rate.params:
        if param not in read:
            raise fail("structure", f"the time resource {rate.name!r} does not use {param!r}", rate.at)


def declare_items(items: Sequence[tree.Item], build: Build, declared: Declared, side: str) -> None:
    """Declare one file's stages, pools, devices, engines and queues; errors are kept."""
    scene = _Scene(build, declared, side)
    for item in items:
        match item:
            case tree.StageDecl():
                with build.keeping():
                    scene.stage(item)
            case tree.DeviceDecl():
                with build.keeping():
                    scene.device(item)
            case tree.EngineDecl():
                with build.keeping():
                    scene.engine(item)
            case tree.QueueDecl():
                with build.keeping():
                    _queue(item, build, declared)
            case _:
                pass
    with build.keeping():
        scene.link_engines()
    for item in items:
        if isinstance(item, tree.PoolDecl):
            with build.keeping():
                scene.pool(item)
        elif isinstance(item, tree.QueueDecl) and item.name in build.queues:
            with build.keeping():
                _queue_pools(build.queues[item.name])
    with build.keeping():
        scene.check_capacities()


def _check_word(name: str, at: Place, words: frozenset[str]) -> None:
    if name in words:
        raise fail("structure", f"{name!r} is a word of the language", at, code="E-reserved-word")


def _queue(decl: tree.QueueDecl, build: Build, declared: Declared) -> None:
    build.declare("queue", decl.name, decl.name_at)
    size = declare_size(decl.size, constant_scope(build))
    queue = Queue(decl.name, decl, 1 if size is None else size, size is not None)
    build.queues[decl.name] = queue
    scene = _Scene(build, declared, "server", queue)
    queue.scene = scene
    _check_roles(queue)
    inside = sorted(decl.items, key=lambda item: isinstance(item, tree.StageDecl) and item.name == "nic")
    for item in inside:
        if isinstance(item, tree.DeviceDecl):
            scene.device(item)
        elif isinstance(item, tree.EngineDecl):
            scene.engine(item)
        elif isinstance(item, tree.StageDecl):
            scene.stage(item)
        elif isinstance(item, tree.EntryDecl):
            _entry(item, queue, build)
    scene.link_engines()


def _check_roles(queue: Queue) -> None:
    items, at = queue.decl.items, queue.decl.name_at
    served = any(isinstance(item, tree.StageDecl) and item.name == queue.name for item in items)
    for role in queue.decl.roles:
        needed = _NEEDS.get(role)
        if needed and not any(isinstance(item, tree.EntryDecl) and item.verb == needed for item in items):
            raise fail("structure", f"the {role} queue {queue.name!r} has no entry {needed!r}", at)
        if role in ("link", "l2") and not served:
            raise fail("structure", f"the {role} queue {queue.name!r} has no 'serve'", at)
        if role == "l2" and sum(isinstance(item, tree.PoolDecl) for item in items) != 1:
            raise fail("structure", f"the l2 queue {queue.name!r} has exactly one pool", at)


def _entry(decl: tree.EntryDecl, queue: Queue, build: Build) -> None:
    if decl.verb in queue.entries:
        raise fail("structure", f"a second {decl.verb!r} in {queue.name!r}", decl.at)
    wanted = ENTRY_PARAMETERS[decl.verb]
    if len(decl.params) != wanted:
        message = f"{decl.verb!r} has {wanted} parameter{'s' * (wanted != 1)}, not {len(decl.params)}"
        raise fail("structure", message, decl.at)
    queue.entries[decl.verb] = decl
    for name, at in called_names(decl.body, build):
        if name in decl.params:
            raise fail("structure", f"{name!r} is the entry's parameter and cannot be assigned", at)
        queue.names.add(name)
        build.slot(f"{queue.name}.{name}")


def _queue_pools(queue: Queue) -> None:
    scene = queue.scene
    assert isinstance(scene, _Scene)
    for item in queue.decl.items:
        if isinstance(item, tree.PoolDecl):
            scene.pool(item)
    scene.check_capacities()
