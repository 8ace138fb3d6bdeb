"""Compiles chat templates as Hugging Face does: templates in the wild count on each of these settings."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(Extension):
    """`{% generation %}` marks what the assistant says, for training on text. It renders as its body."""

    tags = {"generation"}  # noqa: RUF012 — jinja2's own type

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The body itself."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def compile_template(text: str) -> jinja2.Template:
    """A template in the immutable sandbox: a model folder is data, and may come from strangers."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment.from_string(text)


def tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    """JSON as it is: jinja2's own filter escapes HTML and sorts keys."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def raise_exception(message: str) -> NoReturn:
    """How a template refuses a conversation."""
    raise jinja2.TemplateError(message)


def strftime_now(form: str) -> str:
    """The local date, for templates that tell the model."""
    return datetime.now().strftime(form)
