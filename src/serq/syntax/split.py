"""The grammar of the split edition: deployments and workload files.

Source: docs/language.md, "Grammar of deployments", "Grammar of workload files".
"""

from __future__ import annotations

from collections.abc import Callable

from serq.errors import Place, closest, fail
from serq.syntax import tree
from serq.syntax.engine import EngineParser
from serq.syntax.tokens import Token

__all__ = ["SplitParser"]

_ITEMS = ("use", "let", "def", "stage", "pool", "device", "engine", "queue", "server", "gauge", "claim", "kvt")
_ROLES = ("gateway", "prefill", "decode", "agg", "link", "l2")
_VERBS = ("route", "prefill", "decode", "transfer")


class SplitParser(EngineParser):
    def deployment(self) -> tree.Deployment:
        outer: list[tree.Item] = []
        while self.sees("use", "let", "def"):
            outer.append(self._outer())
        if self.sees("workload"):
            raise self._workload_here()
        start = self.expect("fn", "a deployment is 'fn main() { … }'")
        self.expect("main")
        self.expect("(")
        self.expect(")")
        self.expect("{")
        items: list[tree.Item] = []
        while not self.sees("}"):
            items.append(self._item())
        self.next()
        if self.token.kind != "end":
            raise self.unexpected("nothing after 'fn main() { … }'")
        return tree.Deployment(start.at, tuple(outer), tuple(items))

    def workload_file(self) -> tree.WorkloadFile:
        items: list[tree.Item] = []
        while self.token.kind != "end":
            items.append(self._workload_file_item())
        return tree.WorkloadFile(tuple(items))

    def _outer(self) -> tree.Item:
        readers: dict[str, Callable[[], tree.Item]] = {"use": self.use_item, "let": self.let_item, "def": self.def_item}
        return readers[self.token.text]()

    def _workload_file_item(self) -> tree.Item:
        if self.sees("use", "let", "def"):
            return self._outer()
        if self.sees("stage"):
            return self._stage()
        if self.sees("pool"):
            return self.pool_item()
        if self.sees("workload"):
            return self.workload_item()
        raise self.unexpected("'workload', 'stage', 'pool', 'let', 'def' or 'use'")

    def _workload_here(self) -> Exception:
        message = "the workload of a deployment is a file of its own"
        return fail("structure", message, self.token.at, code="E-workload-in-deployment")

    def _item(self) -> tree.Item:
        word = self.token
        if self.sees("use", "let", "def"):
            return self._outer()
        if self.sees("workload", "run") and self.ahead().text == "{":
            raise self._workload_here()
        readers: dict[str, Callable[[], tree.Item]] = {
            "stage": self._stage,
            "pool": self.pool_item,
            "device": self.device_item,
            "engine": self.engine_item,
            "queue": self._queue,
            "server": self._server,
            "gauge": self.gauge_item,
            "claim": self.claim_item,
            "kvt": self._transfer_item,
        }
        if word.kind != "name" or word.text not in readers:
            raise self.unexpected("a declaration or '}'", closest(word.text, _ITEMS))
        return readers[word.text]()

    def _stage(self) -> tree.StageDecl:
        word = self.next()
        name = self.name()
        size = self.size()
        self.expect(":")
        kind, value = self.stage_kind()
        self.expect(";")
        return tree.StageDecl(word.at, name.text, name.at, size, kind, value)

    # --- queues -------------------------------------------------------------------------------------------------------

    def _queue(self) -> tree.QueueDecl:
        word = self.next()
        name = self.name()
        size = self.size()
        roles = self.many(self._role) if self.accept(":") else ()
        self.expect("{")
        items = []
        while not self.sees("}"):
            items.append(self._queue_item(name))
        self.next()
        return tree.QueueDecl(word.at, name.text, name.at, size, roles, tuple(items))

    def _role(self) -> str:
        if not self.sees(*_ROLES):
            raise self.unexpected("a role", f"the roles are {', '.join(_ROLES)}")
        return self.next().text

    def _queue_item(
        self, queue: Token
    ) -> tree.PoolDecl | tree.DeviceDecl | tree.EngineDecl | tree.StageDecl | tree.EntryDecl:
        if self.sees("pool"):
            return self.pool_item()
        if self.sees("device"):
            return self.device_item()
        if self.sees("engine"):
            return self.engine_item()
        if self.sees("serve", "nic"):
            return self._service(queue)
        if self.sees(*_VERBS):
            return self._entry()
        raise self.unexpected("'pool', 'device', 'engine', 'serve', 'nic', an entry or '}'")

    def _service(self, queue: Token) -> tree.StageDecl:
        word = self.next()
        kind, value = self.stage_kind()
        latency = self.expression() if word.text == "serve" and self.accept("latency") else None
        self.expect(";")
        name = queue.text if word.text == "serve" else "nic"
        return tree.StageDecl(word.at, name, word.at, None, kind, value, latency=latency)

    def _entry(self) -> tree.EntryDecl:
        verb = self.next()
        params = self.parameters() if self.sees("(") else ()
        source = self.name("a queue").text if self.accept("from") else None
        return tree.EntryDecl(verb.at, verb.text, params, source, self.block())

    def _transfer_item(self) -> tree.TransferDecl:
        word = self.next()
        self.expect(".")
        if not self.sees("nixl_pull", "nixl_push"):
            raise self.unexpected("'nixl_pull' or 'nixl_push'")
        kind = self.next().text
        self.expect("(")
        source = self.name("a queue").text
        self.expect(",")
        reader = self.name("a queue").text
        latency, share = self._named()
        if share is None:
            raise self.unexpected("'share = share.maxmin' or 'share = share.bottleneck'")
        self.expect(")")
        self.expect(";")
        return tree.TransferDecl(word.at, kind, source, reader, latency, share)

    # --- the server ---------------------------------------------------------------------------------------------------

    def _server(self) -> tree.ServerDecl:
        word = self.next()
        params: tuple[tuple[str, bool, Place], ...] = ()
        if self.accept("("):
            params = self.many(self._parameter)
            self.expect(")")
        reply: tuple[tuple[str, Place], ...] = ()
        if self.accept("reply"):
            self.expect("(")
            names = self.many(self.name)
            self.expect(")")
            reply = tuple((name.text, name.at) for name in names)
        return tree.ServerDecl(word.at, params, reply, self.block())

    def _parameter(self) -> tuple[str, bool, Place]:
        hidden = self.sees("hidden") and self.ahead().kind == "name"
        if hidden:
            self.next()
        name = self.name("a parameter")
        return name.text, hidden, name.at
