"""Strict translation between frozen dataclasses and JSON, and the one spelling of non-finite numbers."""

import dataclasses
import functools
import json
import math
import types
import typing
from collections.abc import Mapping
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


def decode(kind: type[T], value: Any, path: str = "$") -> T:
    """Build a `kind` from JSON values; raises ContractError naming the path of what is unknown, missing or wrong."""
    return typing.cast(T, _decode(kind, value, path))


@functools.cache
def _fields(kind: type) -> dict[str, tuple[str, Any, bool]]:
    """JSON name → (attribute, type, required) of each field of a dataclass."""
    hints = typing.get_type_hints(kind)
    return {
        json_name(field.name): (
            field.name,
            hints[field.name],
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING,
        )
        for field in dataclasses.fields(kind)
    }


def _decode(kind: Any, value: Any, path: str) -> Any:
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        if value is None:
            return None
        (inner,) = (item for item in typing.get_args(kind) if item is not type(None))
        return _decode(inner, value, path)
    if origin is typing.Literal:
        choices = typing.get_args(kind)
        if not any(value == choice and type(value) is type(choice) for choice in choices):
            raise ContractError(path, f"{value!r} is not one of {', '.join(map(str, choices))}")
        return value
    if origin is tuple:
        if not isinstance(value, list):
            raise ContractError(path, f"expected a list, got {_name(value)}")
        inner = typing.get_args(kind)[0]
        return tuple(_decode(inner, item, f"{path}[{index}]") for index, item in enumerate(value))
    if origin is Mapping:
        if not isinstance(value, dict):
            raise ContractError(path, f"expected an object, got {_name(value)}")
        inner = typing.get_args(kind)[1]
        return {key: _decode(inner, item, f"{path}.{key}") for key, item in value.items()}
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _decode_dataclass(kind, value, path)
    return _decode_scalar(kind, value, path)


def _decode_dataclass(kind: type, value: Any, path: str) -> Any:
    if not isinstance(value, dict):
        raise ContractError(path, f"expected an object, got {_name(value)}")
    fields = _fields(kind)
    for name in value:
        if name not in fields:
            raise ContractError(f"{path}.{name}", "unknown field")
    for name, (_, _, required) in fields.items():
        if required and name not in value:
            raise ContractError(f"{path}.{name}", "missing field")
    result = kind(**{fields[name][0]: _decode(fields[name][1], item, f"{path}.{name}") for name, item in value.items()})
    check = getattr(result, "check", None)
    if check is not None:
        check(path)
    return result


def _decode_scalar(kind: Any, value: Any, path: str) -> Any:
    if kind is float:
        if isinstance(value, str) and value in NON_FINITE:
            return NON_FINITE[value]
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            try:
                number = float(value)
            except OverflowError as error:
                raise ContractError(path, "number too large") from error
            if math.isfinite(number):
                return number
            raise ContractError(path, "number too large; spell non-finite numbers as strings")
        raise ContractError(path, f"expected a number, got {_name(value)}")
    if kind is int:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        raise ContractError(path, f"expected an integer, got {_name(value)}")
    if kind in (str, bool):
        if isinstance(value, kind):
            return value
        raise ContractError(path, f"expected {'a string' if kind is str else 'true or false'}, got {_name(value)}")
    raise TypeError(f"{path}: the contract has no rule for {kind!r}")


def _name(value: Any) -> str:
    names = {type(None): "null", bool: "a boolean", int: "an integer", float: "a number", str: "a string"}
    if isinstance(value, list):
        return "a list"
    return names.get(type(value), "an object")
