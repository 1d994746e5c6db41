"""The lines of the fields in a protobuf text, for errors that name the line."""

import re

_TOKEN = re.compile(
    r"""\#[^\n]*
    | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*'
    | [{}<>\[\]:,;]
    | [^\s{}<>\[\]:,;"'\#]+""",
    re.VERBOSE,
)
_CLOSING = {"{": "}", "<": ">"}


class Places:
    """The lines of the fields of a text, which protobuf must have read without error.

    A field is named as a.b[1].c. A part without a number means the first field of its name.
    """

    def __init__(self, text):
        self._lines = {}
        self._tokens = [
            (match.group(), text.count("\n", 0, match.start()) + 1)
            for match in _TOKEN.finditer(text)
            if not match.group().startswith("#")
        ]
        self._tokens.reverse()  # the next token is at the end of the list
        self._read_message("", None)

    def line(self, field):
        """Returns the line of a field, or of the message that should hold it if it is missing."""
        parts = [part if part.endswith("]") else part + "[0]" for part in field.split(".")]
        while parts:
            line = self._lines.get(".".join(parts))
            if line is not None:
                return line
            parts.pop()
        return 1

    def _peek(self):
        return self._tokens[-1][0] if self._tokens else None

    def _skip(self, *tokens):
        while self._tokens and self._peek() in tokens:
            self._tokens.pop()

    def _read_message(self, prefix, end):
        counts = {}
        while self._peek() not in (end, None):
            name = prefix + self._tokens.pop()[0]
            self._skip(":")
            if self._peek() == "[":
                self._tokens.pop()
                while self._peek() != "]":
                    self._read_value(name, counts)
                    self._skip(",")
                self._tokens.pop()
            else:
                self._read_value(name, counts)
            self._skip(",", ";")
        if end is not None:
            self._tokens.pop()

    def _read_value(self, name, counts):
        field = f"{name}[{counts.get(name, 0)}]"
        counts[name] = counts.get(name, 0) + 1
        token, self._lines[field] = self._tokens.pop()
        if token in _CLOSING:
            self._read_message(field + ".", _CLOSING[token])
        elif token[0] in "\"'":
            while self._tokens and self._peek()[0] in "\"'":  # consecutive strings are one value
                self._tokens.pop()
