"""Runs programs in the tests' own process, though several of them have flags of the same names."""

import contextlib
import importlib

from absl import flags
from absl.testing import flagsaver

# Programs with their flags, which are defined only when a module is imported for the first time.
_imported = {}


class Program:
    """A program whose flags are there only while it runs."""

    def __init__(self, module):
        """Imports a program, such as "bert.run_classifier"."""
        if module not in _imported:
            with _without_flags():
                _imported[module] = importlib.import_module(module), _take_flags()
        self._module, self._flags = _imported[module]

    @property
    def defaults(self):
        """Dict from the flags' names to their defaults."""
        return {name: flag.default for found in self._flags.values() for name, flag in found.items()}

    def __call__(self, **given):
        """Runs it with flags; those that are None are not given."""
        arguments = [f"--{name}={value}" for name, value in given.items() if value is not None]
        with _without_flags():
            _put_flags(self._flags)
            with flagsaver.flagsaver():
                flags.FLAGS([self._module.__name__, *arguments])
                self._module.main()
            _take_flags()


@contextlib.contextmanager
def _without_flags():
    """Within it there are no flags of the project's programs."""
    others = _take_flags()
    try:
        yield
    finally:
        _take_flags()
        _put_flags(others)


def _take_flags():
    """Removes the flags of the project's programs; returns them by module."""
    taken = {
        module: list(found)
        for module, found in flags.FLAGS.flags_by_module_dict().items()
        if module.startswith("bert.")
    }
    names = [name for name in flags.FLAGS if any(flags.FLAGS[name] in found for found in taken.values())]
    by_name = {name: flags.FLAGS[name] for name in names}
    for name in names:
        if name in flags.FLAGS:  # a short name goes with its flag
            delattr(flags.FLAGS, name)
    return {module: {flag.name: by_name[flag.name] for flag in found} for module, found in taken.items()}


def _put_flags(taken):
    for module, found in taken.items():
        for flag in found.values():
            flags.DEFINE_flag(flag, flags.FLAGS, module)
