"""Builds C++ sources to registered foreign functions: compiles once, caches and loads.

    build_and_load("kernels.cc", {"scale": "Scale"})

The cache key is the preprocessed source, including headers, with the compiler and its flags. A
library is written to a temporary file and moved into place, so that other processes see either the
complete file or nothing.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shardwise._src.compiling.disk_cache import disk_cache, key_of
from shardwise._src.ffi.ffi_targets import (
    TypeRegistration,
    pycapsule,
    register_ffi_target,
    register_ffi_type,
)
from shardwise._src.runtime.compiler.ffi import headers

COMPILERS = ("c++", "g++", "clang++")
FLAGS = ("-std=c++17", "-O2", "-fPIC")
_QUIET = "-w"  # the headers cause warnings that users cannot fix
_loaded: dict[str, ctypes.CDLL] = {}


def build_and_load(
    source: str | os.PathLike[str],
    handlers: Mapping[str, str | Mapping[str, str]],
    *,
    types: Mapping[str, tuple[str, str]] | None = None,
    flags: Sequence[str] = (),
    compiler: str | None = None,
    platform: str = "cpu",
    folder: str | os.PathLike[str] | None = None,
    timeout: float = 600,
) -> ctypes.CDLL:
    """Compiles C++ with the headers that jaxlib ships, loads it, and registers its functions.

        build_and_load(text, {"scale": "Scale", "step": {"instantiate": "New", "execute": "Step"}})

    Libraries that any process of the user has already compiled are only loaded.

    Args:
      source: the path of a file, or the C++ code itself: a string with more than one line.
      handlers: the names to register, and the symbols (`XLA_FFI_DEFINE_HANDLER_SYMBOL`) of their
        functions, or of the functions of their stages.
      types: of the states of functions: the names to register, and for each the symbols of two
        functions that return the addresses of its `TypeId` and its `TypeInfo`.
      flags: for the compiler, after "-std=c++17 -O2 -fPIC": paths of headers, libraries.
      compiler: its command; by default the environment variable CXX, else the first of c++, g++
        and clang++ that is installed.
      platform: the platform to register the functions for.
      folder: where libraries are cached; by default `ffi` next to the compiled programs (see
        `compilation_cache_dir`), and no caching if these are not cached or other users may write.
      timeout: the time limit of the compiler, in seconds.

    Returns:
      The library, for access to its other symbols.

    Raises:
      FileNotFoundError: if the file does not exist, or no compiler is found.
      RuntimeError: if compiling fails, with the compiler's output.
      AttributeError: if the library does not have a symbol.
      JaxRuntimeError: if XLA rejects a function or type.
      ValueError: if another function already has the name.
    """
    text, near = _read(source)
    command = [*_compiler(compiler), *FLAGS, _QUIET, "-I", str(headers()), "-I", near, *flags]
    plain = _run([*command, "-E", "-P", "-x", "c++", "-"], text, timeout)
    about = os.stat(shutil.which(command[0]) or command[0])  # another version may be installed
    version = f"{about.st_size} {about.st_mtime_ns}"
    key = key_of([part.encode() for part in (plain, *command, version)])
    library = _loaded.get(key)
    if library is None:
        library = _loaded[key] = _library(key, command, text, folder, timeout)
    for name, (type_id, info) in (types or {}).items():  # before the functions that use them
        found = TypeRegistration(type_id=_given(library, type_id), type_info=_given(library, info))
        register_ffi_type(name, found, platform)
    for name, symbols in handlers.items():
        stages = symbols if isinstance(symbols, Mapping) else {"": symbols}
        fns = {stage: _function(library, symbol) for stage, symbol in stages.items()}
        register_ffi_target(name, fns.get("", fns), platform)
    return library


def _read(source: str | os.PathLike[str]) -> tuple[str, str]:
    """The source, and the folder for relative includes."""
    if isinstance(source, str) and "\n" in source:
        return source, os.getcwd()
    path = Path(source)
    if not path.is_file():
        raise FileNotFoundError(
            f"build_and_load: there is no file {os.fspath(source)!r}. Pass the path of a C++ file, "
            "or C++ source of more than one line."
        )
    return f'#line 1 "{path.resolve()}"\n' + path.read_text(), str(path.resolve().parent)


def _compiler(asked: str | None) -> list[str]:
    own = asked or os.environ.get("CXX") or next(filter(shutil.which, COMPILERS), "")
    command = shlex.split(own)
    if not command or shutil.which(command[0]) is None:
        tried = repr(command[0]) if command else f"{', '.join(COMPILERS)} in the PATH"
        raise FileNotFoundError(
            f"build_and_load: no C++ compiler was found (looked for {tried}). Install one, such as "
            "g++, or specify one with compiler= or the environment variable CXX."
        )
    return command


def _run(command: Sequence[str], text: str, timeout: float) -> str:
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(
            f"build_and_load: the compiler took more than {timeout:g} s: {shlex.join(command)}"
        ) from None
    if done.returncode:
        raise RuntimeError(
            f"build_and_load: the compiler failed, with status {done.returncode}:\n"
            f"{shlex.join(command)}\n{done.stderr.strip()}"
        )
    return done.stdout


def _library(
    key: str,
    command: Sequence[str],
    text: str,
    asked: str | os.PathLike[str] | None,
    timeout: float,
) -> ctypes.CDLL:
    """The library, compiled if it is not cached."""
    folder = _kept_in() if asked is None else Path(asked)
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="shardwise-ffi-") as new:
            return _library(key, command, text, new, timeout)
    folder.mkdir(0o700, parents=True, exist_ok=True)
    place = folder / f"{key}.so"
    if not place.exists():
        number, unfinished = tempfile.mkstemp(".so.tmp", place.name[:16], folder)
        os.close(number)
        try:
            _run([*command, "-shared", "-x", "c++", "-", "-o", unfinished], text, timeout)
            os.replace(unfinished, place)
        except BaseException:
            Path(unfinished).unlink(missing_ok=True)
            raise
    return ctypes.CDLL(str(place))


def _kept_in() -> Path | None:
    """The cache folder: it contains code that will run, so no other user may write there."""
    cache = disk_cache()
    if cache is None:
        return None
    folder = cache.folder / "ffi"
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if _is_private(folder) and _is_private(cache.folder) else None


def _is_private(folder: Path) -> bool:
    found = folder.stat()
    mine = not hasattr(os, "getuid") or found.st_uid == os.getuid()
    return mine and not found.st_mode & 0o022 and os.access(folder, os.W_OK)


def _given(library: ctypes.CDLL, symbol: str) -> Any:
    """The address that a function of the library returns."""
    function = getattr(library, symbol)
    function.restype = ctypes.c_void_p
    return pycapsule(function())


def _function(library: ctypes.CDLL, symbol: str) -> Any:
    try:
        return pycapsule(getattr(library, symbol))
    except AttributeError:
        raise AttributeError(
            f"build_and_load: the library has no symbol {symbol!r}. Define it "
            f"with XLA_FFI_DEFINE_HANDLER_SYMBOL({symbol}, function, binding), outside of any "
            "namespace."
        ) from None
