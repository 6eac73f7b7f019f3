"""Text to syntax tree, and which edition a text is written in.  Source: docs/language.md, "Editions and files"."""

from __future__ import annotations

from itertools import pairwise

from serq.errors import Place, Source, fail
from serq.syntax import tree
from serq.syntax.seed import SingleFileParser
from serq.syntax.split import SplitParser
from serq.syntax.tokens import tokenize

__all__ = ["is_deployment", "parse_deployment", "parse_expression", "parse_single_file", "parse_workload", "start_of"]


def is_deployment(source: Source) -> bool:
    """Does the text hold `fn main`, and so belong to the split edition?"""
    tokens, _ = tokenize(source)
    return any(one.text == "fn" and one.kind == "name" and two.text == "main" for one, two in pairwise(tokens))


def start_of(source: Source) -> Place:
    """Where the first word of a text stands."""
    tokens, _ = tokenize(source)
    return tokens[0].at


def parse_single_file(source: Source) -> tree.SingleFileProgram:
    """A program of the single-file edition."""
    return SingleFileParser(source).program()


def parse_deployment(source: Source) -> tree.Deployment:
    """A deployment of the split edition."""
    return SplitParser(source).deployment()


def parse_workload(source: Source) -> tree.WorkloadFile:
    """A workload file of the split edition."""
    return SplitParser(source).workload_file()


def parse_expression(source: Source) -> tree.Expression:
    """One expression and nothing else: the text of an override."""
    parser = SplitParser(source)
    value = parser.expression()
    if parser.token.kind != "end":
        raise fail("syntax", "unexpected text after the expression", parser.token.at)
    return value
