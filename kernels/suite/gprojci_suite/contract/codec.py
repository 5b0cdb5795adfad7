"""Strict translation between frozen dataclasses and JSON, and the one spelling of non-finite numbers."""

import dataclasses
import functools
import json
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from gprojci_suite.contract.errors import ContractError

T = TypeVar("T")

NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def loads(text: str) -> Any:
    """Parse JSON text; duplicate keys and bare ``NaN``/``Infinity`` raise ContractError."""

    def no_constants(name: str) -> Any:
        raise ContractError("$", f'bare {name} is not JSON; spell it as the string "{name}"')

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            names = [name for name, _ in pairs]
            raise ContractError("$", f"duplicate key {next(n for n in names if names.count(n) > 1)!r}")
        return result

    try:
        return json.loads(text, parse_constant=no_constants, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise ContractError("$", f"not JSON: {error}") from error
    except RecursionError as error:
        raise ContractError("$", "not JSON: nested too deeply") from error


def dumps(value: Any, *, indent: int | None = None) -> str:
    """Spell an encoded value as JSON text."""
    return json.dumps(value, allow_nan=False, indent=indent, ensure_ascii=False)


def json_name(attribute: str) -> str:
    """Name of a field in JSON: a trailing underscore, needed where the name is a Python keyword, is dropped."""
    return attribute.removesuffix("_")


def encode(value: Any) -> Any:
    """Turn a dataclass tree into JSON values; non-finite floats become ``"NaN"``, ``"Infinity"``, ``"-Infinity"``."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {json_name(field.name): encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def decode(kind: type[T], value: Any, path: str = "$", *, ignore_unknown: bool = False) -> T:
    """Build a `kind` from JSON values; raises ContractError naming the path of what is unknown, missing or wrong.

    Args:
        ignore_unknown: leave out fields that `kind` does not have, instead of raising.
    """
    try:
        return typing.cast(T, _decoder(typing.cast(Any, kind), ignore_unknown)(value))
    except ContractError as error:
        raise ContractError(f"{path}{error.path}", error.problem) from error


Decoder = Callable[[Any], Any]
"""Builds a value from JSON; the path of its ContractError begins at that value, and whoever called puts its own
before it. So no path is spelled while nothing is wrong: a report has some ten thousand values."""


@functools.cache
def _decoder(kind: Any, ignore_unknown: bool) -> Decoder:
    """What builds values of a type, made once for each type."""
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        (inner,) = (item for item in typing.get_args(kind) if item is not type(None))
        return _optional(_decoder(inner, ignore_unknown))
    if origin is typing.Literal:
        return _literal(typing.get_args(kind))
    if origin is tuple:
        return _list(_decoder(typing.get_args(kind)[0], ignore_unknown))
    if origin is Mapping:
        return _mapping(_decoder(typing.get_args(kind)[1], ignore_unknown))
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _dataclass(kind, ignore_unknown)
    if kind is float:
        return _float
    if kind is int:
        return _int
    if kind in (str, bool):
        return _exactly(kind, "a string" if kind is str else "true or false")
    raise TypeError(f"the contract has no rule for {kind!r}")


def _optional(inner: Decoder) -> Decoder:
    return lambda value: None if value is None else inner(value)


def _literal(choices: tuple[Any, ...]) -> Decoder:
    offered = {(type(choice), choice) for choice in choices}

    def decode_literal(value: Any) -> Any:
        if not isinstance(value, (str, int)) or (type(value), value) not in offered:
            raise ContractError("", f"{value!r} is not one of {', '.join(map(str, choices))}")
        return value

    return decode_literal


def _list(inner: Decoder) -> Decoder:
    def decode_list(value: Any) -> Any:
        if not isinstance(value, list):
            raise ContractError("", f"expected a list, got {_name(value)}")
        found: list[Any] = []
        try:
            for item in value:
                found.append(inner(item))
        except ContractError as error:
            raise ContractError(f"[{len(found)}]{error.path}", error.problem) from error
        return tuple(found)

    return decode_list


def _mapping(inner: Decoder) -> Decoder:
    def decode_mapping(value: Any) -> Any:
        if not isinstance(value, dict):
            raise ContractError("", f"expected an object, got {_name(value)}")
        return {key: _at(f".{key}", inner, item) for key, item in value.items()}

    return decode_mapping


def _at(step: str, inner: Decoder, value: Any) -> Any:
    try:
        return inner(value)
    except ContractError as error:
        raise ContractError(f"{step}{error.path}", error.problem) from error


def _dataclass(kind: type, ignore_unknown: bool) -> Decoder:
    hints = typing.get_type_hints(kind)
    fields = {
        json_name(field.name): (field.name, _decoder(hints[field.name], ignore_unknown))
        for field in dataclasses.fields(kind)
    }
    defaults = {
        field.name: field.default for field in dataclasses.fields(kind) if field.default is not dataclasses.MISSING
    }
    factories = {
        field.name: field.default_factory
        for field in dataclasses.fields(kind)
        if field.default_factory is not dataclasses.MISSING
    }
    optional = defaults.keys() | factories.keys()
    required = {json_name(field.name): None for field in dataclasses.fields(kind) if field.name not in optional}
    check = getattr(kind, "check", None)

    def decode_dataclass(value: Any) -> Any:
        if not isinstance(value, dict):
            raise ContractError("", f"expected an object, got {_name(value)}")
        if not value.keys() <= fields.keys():
            if ignore_unknown:
                return decode_dataclass({name: item for name, item in value.items() if name in fields})
            unknown = next(name for name in value if name not in fields)
            raise ContractError(f".{unknown}", "unknown field")
        if not value.keys() >= required.keys():
            missing = next(name for name in required if name not in value)
            raise ContractError(f".{missing}", "missing field")
        result: Any = object.__new__(kind)
        name = ""
        attributes = result.__dict__  # what __init__ of a frozen dataclass fills one by one, which takes twice as long
        attributes.update(defaults)
        try:
            for name, item in value.items():
                attribute, inner = fields[name]
                attributes[attribute] = inner(item)
        except ContractError as error:
            raise ContractError(f".{name}{error.path}", error.problem) from error
        for attribute, factory in factories.items():
            if attribute not in attributes:
                attributes[attribute] = factory()
        if check is not None:
            check(result, "")
        return result

    return decode_dataclass


def _float(value: Any) -> float:
    if type(value) is float and math.isfinite(value):
        return value
    if isinstance(value, str) and value in NON_FINITE:
        return NON_FINITE[value]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError as error:
            raise ContractError("", "number too large") from error
        if math.isfinite(number):
            return number
        raise ContractError("", "number too large; spell non-finite numbers as strings")
    raise ContractError("", f"expected a number, got {_name(value)}")


def _int(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ContractError("", f"expected an integer, got {_name(value)}")


def _exactly(kind: type, words: str) -> Decoder:
    def decode_exactly(value: Any) -> Any:
        if isinstance(value, kind):
            return value
        raise ContractError("", f"expected {words}, got {_name(value)}")

    return decode_exactly


def _name(value: Any) -> str:
    names = {type(None): "null", bool: "a boolean", int: "an integer", float: "a number", str: "a string"}
    if isinstance(value, list):
        return "a list"
    return names.get(type(value), "an object")
