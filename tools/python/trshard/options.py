# SPDX-License-Identifier: BSD-3-Clause
"""Options as the words of trshard's command line, as dictionaries, and as keyword arguments."""
import os
from typing import Any, Iterator, Mapping, Optional, Tuple, Union

Options = Union[str, Mapping[str, Any], None]


def _value(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, os.PathLike)):
        return os.fspath(value)
    if isinstance(value, bytes) or isinstance(value, Mapping):
        raise TypeError(f"option {name} is {value!r}, expected a number, a text or a list of them")
    try:
        return ",".join(_value(name, part) for part in value)
    except TypeError:
        return str(value)


def _pairs(options: Mapping[str, Any], begin: str = "") -> Iterator[Tuple[str, str]]:
    for key, value in options.items():
        name = begin + key.lstrip("-")
        if isinstance(value, Mapping):
            yield from _pairs(value, name + "_")
        elif value is not None:
            yield name, _value(name, value)


def words(options: Options = None, more: Optional[Mapping[str, Any]] = None) -> str:
    """The options as one text. {"steps": 10} and steps=10 become "-steps 10".

    A list becomes words with commas, a bool true or false, and None is left out. Nested dictionaries join their names:
    {"table": {"user": {"pooling": "mean"}}} becomes "-table_user_pooling mean".
    """
    text = [options] if isinstance(options, str) else []
    for given in ({} if options is None or isinstance(options, str) else options, more or {}):
        for name, value in _pairs(given):
            for word in (name, value):
                if '"' in word:
                    raise ValueError(f"option {name} is {value!r}, expected a value without double quotes")
            text += [f'"-{name}"' if set(name) & set(" \t\r\n") else f"-{name}", f'"{value}"' if not value or set(value) & set(" \t\r\n") else value]
    return " ".join(part for part in text if part)
