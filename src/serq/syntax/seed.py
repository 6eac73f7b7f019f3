"""The grammar of the single-file edition.  Source: docs/language.md, "Grammar of the single-file edition"."""

from __future__ import annotations

from collections.abc import Callable

from serq.errors import closest
from serq.syntax import tree
from serq.syntax.items import ItemParser
from serq.syntax.tokens import Token

__all__ = ["SingleFileParser"]

_ITEMS = ("use", "let", "def", "pool", "stage", "workload", "session", "server", "share", "gauge", "claim", "run")


class SingleFileParser(ItemParser):
    single_file = True

    def program(self) -> tree.SingleFileProgram:
        items: list[tree.Item] = []
        while self.token.kind != "end":
            items.append(self._item())
        return tree.SingleFileProgram(tuple(items))

    def _item(self) -> tree.Item:
        word = self.token
        readers: dict[str, Callable[[], tree.Item]] = {
            "use": self.use_item,
            "let": self.let_item,
            "def": self.def_item,
            "pool": self._pool,
            "stage": self._stage,
            "workload": self.workload_item,
            "session": self._session,
            "server": self._server,
            "share": self._share,
            "gauge": self.gauge_item,
            "claim": self.claim_item,
            "run": self._run_item,
        }
        if word.kind != "name" or word.text not in readers:
            hint = closest(word.text, _ITEMS) or f"a program consists of {', '.join(_ITEMS)}"
            raise self.unexpected("a declaration", hint)
        return readers[word.text]()

    def _pool(self) -> tree.PoolDecl:
        word = self.next()
        name = self.name()
        size = self.size()
        return tree.PoolDecl(word.at, name.text, name.at, size, self.pool_options())

    def _stage(self) -> tree.StageDecl:
        word = self.next()
        name = self.name()
        size = self.size()
        self.expect(":")
        if self.accept("step"):
            options = self._step_options()
            self.accept(";")
            return tree.StageDecl(word.at, name.text, name.at, size, "step", options=options)
        kind, value = self.stage_kind()
        self.expect(";")
        return tree.StageDecl(word.at, name.text, name.at, size, kind, value)

    def _step_options(self) -> tuple[tree.StepOption, ...]:
        self.expect("{")
        options = []
        while not self.sees("}"):
            word = self.name("a step option or '}'")
            options.append(self._step_option(word))
            self.expect(";")
        self.next()
        return tuple(options)

    def _step_option(self, word: Token) -> tree.StepOption:
        if word.text in ("budget", "chunk", "cost"):
            return tree.StepOption(word.at, word.text, self.expression())
        if word.text == "memory":
            return tree.StepOption(word.at, word.text, self.reference("a pool"))
        if word.text == "serve":
            return tree.StepOption(word.at, word.text, order=self._serve())
        raise self.unknown("step option", word, "the options are 'budget', 'chunk', 'cost', 'serve', 'memory'")

    def _serve(self) -> tree.Order:
        if self.accept("exclusive"):
            self.expect("prefill")
            return tree.Order("exclusive")
        only = self.parenthesised() if self.accept("only") else None
        if self.accept("by"):
            return tree.Order("by", self.keys(), only)
        if self.accept("decode"):
            self.expect("first")
            return tree.Order("decode_first", (), only)
        if self.accept("admission") or only is not None:
            return tree.Order("admission", (), only)
        raise self.unexpected("'admission', 'by', 'decode first', 'exclusive prefill' or 'only'")

    def _session(self) -> tree.SessionDecl:
        word = self.next()
        return tree.SessionDecl(word.at, self.block())

    def _server(self) -> tree.ServerDecl:
        word = self.next()
        return tree.ServerDecl(word.at, (), (), self.block())

    def _share(self) -> tree.ShareDecl:
        word = self.next()
        if not self.sees("maxmin", "bottleneck"):
            raise self.unexpected("'maxmin' or 'bottleneck'")
        policy = self.next().text
        self.expect(";")
        return tree.ShareDecl(word.at, policy)

    def _run_item(self) -> tree.RunDecl:
        word = self.next()
        self.expect("{")
        settings = []
        while not self.sees("}"):
            if not self.sees("horizon", "warmup", "seed", "arrivals"):
                raise self.unexpected("'horizon', 'warmup', 'seed', 'arrivals' or '}'")
            name = self.next()
            settings.append((name.text, self.expression()))
            self.expect(";")
        self.next()
        return tree.RunDecl(word.at, tuple(settings))
