"""The grammar of the declarations both editions share: constants, definitions, stages, pools, measures, workloads."""

from __future__ import annotations

from typing import Any

from serq.errors import fail
from serq.syntax import tree
from serq.syntax.statements import StatementParser
from serq.syntax.tokens import Token

__all__ = ["ItemParser"]


class ItemParser(StatementParser):
    """Reads the declarations that look alike in both editions."""

    def use_item(self) -> tree.UseDecl:
        word = self.next()
        path = self.string()
        self.expect(";")
        return tree.UseDecl(word.at, path.text)

    def let_item(self) -> tree.LetDecl:
        word = self.next()
        name = self.name()
        self.expect("=")
        value = self.expression()
        self.expect(";")
        return tree.LetDecl(word.at, name.text, name.at, value)

    def def_item(self) -> tree.DefDecl:
        self.next()
        name = self.name()
        params = self.parameters()
        if self.sees("="):
            return self._equation(name, params)
        if self._holds_statements():
            return tree.DefDecl(name.at, name.text, params, None, self.block(), True)
        self.expect("{")
        value = self.expression()
        self.expect("}")
        return tree.DefDecl(name.at, name.text, params, value, (), True)

    def _equation(self, name: Token, params: tuple[str, ...]) -> tree.DefDecl:
        mark = self.next()
        if not self.single_file:
            hint = f"write 'def {name.text}({', '.join(params)}) {{ … }}'"
            raise fail("syntax", "a definition's body is braced in the split edition", mark.at, hint=hint)
        value = self.expression()
        self.expect(";")
        return tree.DefDecl(name.at, name.text, params, value, (), False)

    def _holds_statements(self) -> bool:
        """Does the braced body ahead hold statements?  Those end in ';' or '}'; an expression has neither inside."""
        depth = 0
        for count in range(len(self.tokens) - self.position):
            token = self.ahead(count)
            if token.kind != "op":
                continue
            if token.text == ";" or (token.text == "{" and depth):
                return True
            depth += {"{": 1, "}": -1}.get(token.text, 0)
            if token.text == "}" and depth <= 0:
                return self.ahead(count - 1).text == "{"
        return False

    def parameters(self) -> tuple[str, ...]:
        self.expect("(")
        names = () if self.sees(")") else self.many(lambda: self.name().text)
        self.expect(")")
        return names

    def size(self) -> tree.Expression | None:
        if not self.accept("["):
            return None
        value = self.expression()
        self.expect("]")
        return value

    def stage_kind(self) -> tuple[str, tree.Expression | None]:
        """`fifo`, `fifo(c)`, `ps(e)` or `delay`."""
        if self.accept("fifo"):
            return "fifo", self.parenthesised() if self.sees("(") else None
        if self.accept("ps"):
            self.expect("(")
            value = self.expression()
            if self.sees("in"):
                hint = "this spelling is retired: write 'ps(e)' and read the number of jobs as 'present'"
                raise fail("syntax", "'ps(e in n)' is retired", self.token.at, hint=hint)
            self.expect(")")
            return "ps", value
        if self.accept("delay"):
            return "delay", None
        raise self.unexpected("'fifo', 'ps', 'delay'" + (" or 'step'" if self.single_file else ""))

    def pool_options(self) -> tuple[tree.PoolOption, ...]:
        self.expect("{")
        options = []
        while not self.sees("}"):
            options.append(self._pool_option(self.name("a pool option or '}'")))
            self.expect(";")
        self.next()
        return tuple(options)

    def _pool_option(self, word: Token) -> tree.PoolOption:
        at, text = word.at, word.text
        if text in ("cap", "block"):
            return tree.PoolOption(at, text, value=self.expression())
        if text in ("evict", "queue"):
            return self._keyed_option(word)
        if text == "preempt":
            return self._preempt_option(word)
        if text == "reserve":
            self.expect("held")
            return tree.PoolOption(at, text)
        if text == "spill":
            return self._spill_option(word)
        if text == "admit" and self.single_file:
            self.expect("via")
            return tree.PoolOption(at, text, names=(self.reference("a stage"),))
        names = "'cap', 'block', 'evict', 'preempt', 'queue', 'reserve', 'spill'"
        raise self.unknown("pool option", word, f"the options are {names}")

    def _every(self) -> tree.Expression | None:
        return self.parenthesised() if not self.single_file and self.accept("every") else None

    def _keyed_option(self, word: Token) -> tree.PoolOption:
        plain = "lru" if word.text == "evict" else "fifo"
        keys: tree.Keys = ()
        if self.accept("by"):
            keys = self.keys()
        else:
            self.expect(plain)
        every = self._every() if word.text == "queue" else None
        return tree.PoolOption(word.at, word.text, "by" if keys else plain, keys=keys, every=every)

    def _preempt_option(self, word: Token) -> tree.PoolOption:
        if self.sees("none", "lifo"):
            return tree.PoolOption(word.at, "preempt", self.next().text)
        if self.single_file:
            raise self.unexpected("'none' or 'lifo'")
        if self.accept("by"):
            keys = self.keys()
            tail = False
            if self.accept("requeue"):
                if not self.sees("head", "tail"):
                    raise self.unexpected("'head' or 'tail'")
                tail = self.next().text == "tail"
            return tree.PoolOption(word.at, "preempt", "by_tail" if tail else "by", keys=keys)
        self.expect("leases")
        self.expect("by")
        keys = self.keys()
        every = self._every()
        suspend: tree.Keys = ()
        if every is not None and self.accept("suspend"):
            self.expect("by")
            suspend = self.keys()
        return tree.PoolOption(word.at, "preempt", "leases", keys=keys, every=every, suspend=suspend)

    def _spill_option(self, word: Token) -> tree.PoolOption:
        tier = self.reference("a pool")
        self.expect("via")
        link = self.reference("a stage")
        work = self.parenthesised()
        self.expect("when")
        return tree.PoolOption(word.at, "spill", value=work, names=(tier, link), when=self.parenthesised())

    def gauge_item(self) -> tree.GaugeDecl:
        word = self.next()
        name = self.name()
        self.expect("=")
        value = self.expression()
        self.expect(";")
        return tree.GaugeDecl(word.at, name.text, name.at, value)

    def claim_item(self) -> tree.ClaimDecl:
        word = self.next()
        name = self.name()
        given = self.parenthesised() if self.accept("given") else None
        self.expect(":")
        stage = None
        if self.accept("at"):
            self.expect("end")
            kind = "at_end"
        else:
            if not self.sees("every", "some"):
                raise self.unexpected("'every iteration of', 'some iteration of' or 'at end'")
            kind = f"{self.next().text}_iteration"
            self.expect("iteration")
            self.expect("of")
            stage = self.reference("an engine")
        test = self.parenthesised()
        self.expect(";")
        return tree.ClaimDecl(word.at, name.text, name.at, kind, stage, test, given)

    # --- the workload -------------------------------------------------------------------------------------------------

    def workload_item(self) -> tree.WorkloadDecl:
        word = self.next()
        self.expect("{")
        found: dict[str, Any] = {}
        while not self.sees("}"):
            self._workload_part(self.name("a workload item or '}'"), found)
        self.next()
        return tree.WorkloadDecl(word.at, **found)

    def _workload_part(self, word: Token, found: dict[str, Any]) -> None:
        text = word.text
        if text == "arrive":
            found["arrive"] = self._arrive(word)
        elif text in ("init", "turn", "session"):
            if text in found:
                raise fail("structure", f"a second {text!r}", word.at)
            found[text] = tree.SessionDecl(word.at, self.block())
        elif text == "trace":
            path = self.string()
            found["trace"] = (path.text, bool(self.accept("ordered")), path.at)
            self.expect(";")
        elif text == "send" and not self.single_file:
            self.expect("(")
            found["send"] = self.many(self._send_field)
            self.expect(")")
            self.expect(";")
        elif text == "hidden" and self.single_file:
            names = self.many(self.name)
            found["hidden"] = (*found.get("hidden", ()), *((name.text, name.at) for name in names))
            self.expect(";")
        else:
            words = "'arrive', 'trace', 'init', 'turn', 'session'" + (", 'hidden'" if self.single_file else ", 'send'")
            raise self.unknown("workload item", word, f"the items are {words}")

    def _arrive(self, word: Token) -> tree.ArriveItem:
        if self.accept("none"):
            self.expect(";")
            return tree.ArriveItem(word.at, "none")
        if not self.sees("poisson", "renewal", "closed", "batch"):
            raise self.unexpected("'poisson', 'renewal', 'closed', 'batch' or 'none'")
        kind = self.next()
        value = self.parenthesised()
        self.expect(";")
        return tree.ArriveItem(kind.at, kind.text, value)

    def _send_field(self) -> tree.SendField:
        name = self.name("a parameter of the server")
        value = self.expression() if self.accept(":") else None
        return tree.SendField(name.at, name.text, value)
