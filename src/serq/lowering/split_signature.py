"""What must agree between the parts of a split program: server and workload, copies and queues, stages and uses."""

from __future__ import annotations

from serq.errors import SerqError, closest, fail
from serq.lowering.build import Build, Engine
from serq.lowering.split_declare import Declared
from serq.syntax import tree
from serq.syntax.walk import nested

__all__ = ["check_connectors", "check_copies", "check_stages", "one_server", "one_workload", "sent_fields"]


def one_server(deployment: tree.Deployment) -> tree.ServerDecl:
    """The server of a deployment: exactly one."""
    found = [item for item in deployment.items if isinstance(item, tree.ServerDecl)]
    if not found:
        raise fail("structure", "the deployment has no 'server { … }'", deployment.at, code="E-one-server")
    if len(found) > 1:
        raise fail("structure", "a second 'server'", found[1].at, code="E-one-server")
    return found[0]


def one_workload(file: tree.WorkloadFile) -> tree.WorkloadDecl:
    """The workload of a workload file: exactly one."""
    found = [item for item in file.items if isinstance(item, tree.WorkloadDecl)]
    if not found:
        raise SerqError("structure", "the workload file has no 'workload { … }'", code="E-one-workload")
    if len(found) > 1:
        raise fail("structure", "a second 'workload'", found[1].at, code="E-one-workload")
    return found[0]


def sent_fields(server: tree.ServerDecl, workload: tree.WorkloadDecl) -> dict[str, tree.SendField]:
    """What the workload sends for each parameter; every parameter is sent, and nothing else."""
    names = [name for name, _, _ in server.params]
    fields: dict[str, tree.SendField] = {}
    for field in workload.send:
        if field.name not in names:
            message = f"the server has no parameter called {field.name!r}"
            raise fail("signature", message, field.at, hint=closest(field.name, names))
        if field.name in fields:
            raise fail("signature", f"{field.name!r} is sent twice", field.at)
        if isinstance(field.value, tree.Path) and field.value.plain == field.name:
            raise fail("signature", f"write '{field.name}' instead of '{field.name}: {field.name}'", field.at)
        fields[field.name] = field
    for name, _, at in server.params:
        if names.count(name) > 1:
            raise fail("structure", f"two parameters are called {name!r}", at)
        if name not in fields:
            hint = f"add it to the workload's 'send (…, {name})'"
            raise fail("signature", f"the workload does not send the parameter {name!r}", at, hint=hint)
    return fields


def check_copies(decl: tree.TransferDecl, build: Build) -> None:
    """A transfer declaration joins two queues with networks, and the reader's engine has the connector."""
    for library in ("std/kvt", "std/share"):
        if library not in build.uses:
            raise fail("structure", f"'kvt.{decl.kind}' needs 'use \"{library}\";'", decl.at)
    source, reader = build.queues.get(decl.source), build.queues.get(decl.reader)
    for name, queue in ((decl.source, source), (decl.reader, reader)):
        if queue is None:
            hint = closest(name, build.queues)
            raise fail("structure", f"no queue is called {name!r}", decl.at, hint=hint, code="E-copy-no-queue")
    assert source is not None
    assert reader is not None
    if source is reader:
        raise fail("structure", f"{decl.source!r} cannot copy from itself", decl.at, code="E-copy-same-queue")
    for queue in (source, reader):
        if queue.nic is None:
            raise fail("structure", f"the queue {queue.name!r} has no 'nic'", decl.at, code="E-copy-no-nic")
    if "decode" not in reader.entries or reader.entries["decode"].source != decl.source:
        if "decode" in source.entries and source.entries["decode"].source == decl.reader:
            raise fail("structure", "the source comes first, then the reader", decl.at, code="E-copy-swapped")
        message = f"{decl.reader!r} has no entry declared 'from {decl.source}'"
        raise fail("structure", message, decl.at, code="E-copy-no-entry")
    if reader.name in build.copies:
        message = f"{decl.reader!r} already reads from {build.copies[reader.name].source!r}"
        raise fail("structure", message, decl.at, code="E-reader-two-sources")
    connectors = reader.engine.decl.connectors if reader.engine and reader.engine.decl else ()
    spelled = any(
        isinstance(one, tree.TransferStatement) and not one.stages for one in nested(reader.entries["decode"].body)
    )
    if not spelled and not any(one.name == decl.source for one in connectors):
        hint = f"add 'connector {decl.source} {{ load (…); }}' to the engine of {decl.reader!r}"
        message = f"the engine of {decl.reader!r} has no connector {decl.source!r}"
        raise fail("structure", message, decl.at, hint=hint, code="E-copy-no-connector")
    build.copies[reader.name] = decl


def check_connectors(build: Build) -> None:
    """Every connector of an engine names a tier or the source of a copy, and its requests take the memory it fills."""
    for engine in build.engines.values():
        connectors = engine.decl.connectors if engine.decl else ()
        if len(connectors) > 1:
            raise fail("structure", f"a second connector of {engine.name!r}", connectors[1].at)
        for connector in connectors:
            queue = build.queues.get(connector.name)
            copy = build.copies.get(engine.name)
            if queue is None:
                hint = closest(connector.name, build.queues)
                message = f"the connector {connector.name!r} of {engine.name!r} names no queue"
                raise fail("structure", message, connector.at, hint=hint, code="E-connector-misnamed")
            if "l2" not in queue.decl.roles and (copy is None or copy.source != connector.name):
                message = f"no transfer declaration copies from {connector.name!r} to {engine.name!r}"
                hint = f"write 'kvt.nixl_pull ({connector.name}, {engine.name}, share = share.maxmin);'"
                raise fail("structure", message, connector.at, hint=hint, code="E-connector-no-copy")
            if engine.memory is None or not _takes_memory(engine):
                message = (
                    f"the connector {connector.name!r} fills a memory that requests of {engine.name!r} do not take"
                )
                raise fail("structure", message, connector.at, code="E-connector-untaken")


def _takes_memory(engine: Engine) -> bool:
    from serq.lowering.requests import taking_of

    taking, memory = taking_of(engine), engine.memory
    if taking is None or memory is None:
        return False
    return any(memory.name in (part.pool.text, f"{engine.name}.{part.pool.text}") for part in taking.parts)


def check_stages(declared: Declared, build: Build) -> None:
    """Every stage is run by some statement."""
    for resource, decl, queue in declared.stages:
        if resource.ran or build.errors:
            continue
        code = "E-nic-unused" if queue is not None and decl.name == "nic" else None
        hint = "remove it, or run it"
        build.errors.append(
            fail("structure", f"nothing runs the stage {resource.name!r}", decl.name_at, hint=hint, code=code)
        )
