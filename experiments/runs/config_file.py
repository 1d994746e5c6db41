"""A config file of an experiment: how it is read, and how its errors name their place."""

import math

from google.protobuf import text_format

from experiments.runs.places import Places


class ConfigError(Exception):
    """A config is wrong. The text has one line for each problem."""


class ConfigFile:
    """The message of a file, which may still be wrong."""

    def __init__(self, proto, text, path):
        """Parses `text` into `proto`. Errors name `path`. Raises ConfigError."""
        self.proto = proto
        self.path = path
        try:
            text_format.Parse(text, proto)
            self._places = Places(text)
        except text_format.ParseError as error:
            line = error.GetLine() or 1
            problem = str(error).removeprefix(f"{error.GetLine()}:{error.GetColumn()} : ")
            raise ConfigError(f"{path}:{line}: {problem}") from None
        except RecursionError:
            raise ConfigError(
                f"{path}:1: messages are nested too deep, allowed: 64 within one another"
            ) from None

    def problem(self, field, text):
        """Returns a line for a ConfigError."""
        return f"{self.path}:{self._places.line(field)}: {field}: {text}"

    def check(self, problems):
        """Raises ConfigError if there are any (field, problem)."""
        lines = [self.problem(*each) for each in problems]
        if lines:
            raise ConfigError("\n".join(lines))


def read(path):
    """Returns the text of a file. Raises ConfigError."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read --config={path}: {error}") from None


def is_positive(number):
    return math.isfinite(number) and number > 0


def is_set(message, field):
    """Whether a field "a.b" has a value in the file."""
    *outer, last = field.split(".")
    for name in outer:
        message = getattr(message, name)
    return any(descriptor.name == last for descriptor, _ in message.ListFields())
