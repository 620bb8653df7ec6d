"""The exceptions of the library."""
from typing import ClassVar

from tessera import _native


class Error(Exception):
    """A failure of the library. After it, all objects and functions can be used again.

    The subclass says which kind of failure it is. An exception of your own function leaves the call unchanged.

    subject: the option, file, row or tensor at fault, such as "learning-rate" or "train.jsonl:12". It may be empty.
    text: what is wrong, and what to do. str(error) has the subject before it.
    """

    kind: ClassVar[str] = "run"

    def __init__(self, subject: str, text: str) -> None:
        super().__init__(subject, text)
        self.subject = subject
        self.text = text

    def __str__(self) -> str:
        return f"{self.subject}: {self.text}" if self.subject else self.text


class RunError(Error):
    """A failure at run time: a full disk, a diverging run."""


class UsageError(Error):
    """Wrong options, or options that contradict each other."""

    kind = "usage"


class InputError(Error):
    """A bad file or row: data, model, tokenizer, checkpoint."""

    kind = "input"


class OutOfMemoryError(Error):
    """The work does not fit into memory, as planned or as allocated."""

    kind = "memory"


class CommunicationError(Error):
    """Other ranks failed."""

    kind = "communication"


_CLASSES = {cls.kind: cls for cls in (RunError, UsageError, InputError, OutOfMemoryError, CommunicationError)}
for _class in (Error, *_CLASSES.values()):
    _class.__module__ = "tessera"


def _make(kind: str, subject: str, text: str) -> Error:
    return _CLASSES.get(kind, RunError)(subject, text)


_native.set_error_maker(_make)
