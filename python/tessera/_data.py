"""Rows of the program, and losses of its own."""
import json
from array import array
from typing import (TYPE_CHECKING, Any, Callable, Iterable, Iterator, Mapping, NamedTuple, Optional, Sequence, Tuple,
                    Union)

from tessera import _native

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Integers = NDArray[np.integer[Any]]
    Booleans = NDArray[np.bool_]
    Int32s = NDArray[np.int32]
    Int64s = NDArray[np.int64]
    Float32s = NDArray[np.float32]
else:  # NumPy may be missing
    Integers = Booleans = Int32s = Int64s = Float32s = Any

Ids = Union[Sequence[int], Integers]


class Tokens(NamedTuple):
    """A row of token ids, used unchanged: no token is added or cut off.

    has_loss[i] is whether the model learns to produce ids[i]. The first token never has a loss. Without has_loss, all
    other tokens have one. Both are lists or arrays of one dimension, of the same length.
    """

    ids: Ids
    has_loss: Optional[Union[Sequence[bool], Booleans]] = None


# A text; a row as on a line of a JSONL file, such as {"prompt": …, "completion": …} or {"messages": …}; or token ids.
Row = Union[str, Mapping[str, Any], Tokens, Ids]


def ids_bytes(ids: Any) -> bytes:
    """The ids as int32."""
    if hasattr(ids, "ndim"):
        if ids.ndim != 1:
            raise ValueError(f"token ids must have one dimension, not {ids.ndim}")
        if getattr(ids.dtype, "kind", "") in ("i", "u") and len(ids) > 0 and -2**31 <= ids.min() and ids.max() < 2**31:
            converted: bytes = ids.astype("int32").tobytes()
            return converted
        ids = ids.tolist()
    try:
        return array("i", ids).tobytes()
    except OverflowError:
        raise ValueError("a token id is outside the range of int32") from None


def _native_row(row: Any) -> Tuple[Any, ...]:
    if isinstance(row, str):
        return ("text", row)
    if isinstance(row, Mapping):
        return ("json", json.dumps(row))
    ids, has_loss = row if isinstance(row, Tokens) else (row, None)
    mask = b""
    if has_loss is not None:
        mask = bytes(bool(flag) for flag in has_loss)
        if len(mask) != len(ids):
            raise ValueError(f"{len(ids)} ids, but has_loss has {len(mask)} values")
    return ("tokens", ids_bytes(ids), mask)


def native_rows(rows: Optional[Iterable[Row]], name: str) -> Optional[Iterator[Tuple[Any, ...]]]:
    """The rows as the library takes them. `name` is for errors."""

    def all_rows(given: Iterable[Row]) -> Iterator[Tuple[Any, ...]]:
        for number, row in enumerate(given):
            try:
                native = _native_row(row)
            except (TypeError, ValueError) as error:
                raise type(error)(f"{name}[{number}]: {error}") from None
            yield native

    if isinstance(rows, (str, bytes, Mapping)):
        raise TypeError(f"{name} must be an iterable of rows, not one {type(rows).__name__}")
    return None if rows is None else all_rows(rows)


class LossChunk:
    """Some of the tokens with loss of a batch: what a loss of the program gets.

    The model computes the logits in chunks, so the logits of a complete batch are never in memory. All arrays are of
    NumPy, and belong to the program: it may keep them.

    num_rows, vocab_size: the shape of the logits.
    targets: int32 [num_rows], the token that each row must predict.
    positions: int32 [num_rows], the position in its sample of the token before the target.
    rows: int64 [num_rows], the number of the row that the sample comes from, in the order in which the program gave its
        rows; -1 for data of files.
    scale: in training, the loss must replace each logit by `scale` times the derivative of its result by this logit.
        In evaluation, it is 0: no gradients are needed.
    """

    def __init__(self, handle: Any, num_rows: int, vocab_size: int, targets: bytes, positions: bytes, rows: bytes,
                 scale: float) -> None:
        self.num_rows = num_rows
        self.vocab_size = vocab_size
        self.scale = scale
        self._handle = handle  # None after the call of the loss
        self._targets = targets
        self._positions = positions
        self._rows = rows
        self._logits: Optional[Float32s] = None

    @property
    def needs_gradients(self) -> bool:
        """Whether the loss must replace the logits by gradients."""
        return self.scale != 0

    @property
    def targets(self) -> Int32s:
        targets: Int32s = _numpy().frombuffer(self._targets, dtype="int32")
        return targets

    @property
    def positions(self) -> Int32s:
        positions: Int32s = _numpy().frombuffer(self._positions, dtype="int32")
        return positions

    @property
    def rows(self) -> Int64s:
        rows: Int64s = _numpy().frombuffer(self._rows, dtype="int64")
        return rows

    @property
    def logits(self) -> Float32s:
        """float32 [num_rows, vocab_size], a copy. The gradients must be written into this array."""
        if self._logits is None:
            self._check()
            self._logits = _numpy().empty((self.num_rows, self.vocab_size), dtype="float32")
            self._copy(0, self.num_rows, to_library=False)
        return self._logits

    def cross_entropy(self, row: Optional[int] = None, weight: float = 1.0) -> float:
        """`weight` times the cross-entropy of all rows, or of one row, as the library computes it.

        Writes the gradients, if they are needed, and returns the sum of the losses. On a CPU, a loss that only calls
        this function gives the bits of the loss that is built in.
        """
        self._check()
        first, count = (0, self.num_rows) if row is None else (row, 1)
        if self._logits is not None and 0 <= first < self.num_rows:
            self._copy(first, count, to_library=True)
        loss = _native.loss_cross_entropy(self._handle, first, count, weight)
        if self._logits is not None and self.needs_gradients:
            self._copy(first, count, to_library=False)
        return loss

    def _check(self) -> None:
        if self._handle is None:
            raise RuntimeError("the chunk can be used only during the call of the loss that got it")

    def _copy(self, first: int, count: int, to_library: bool) -> None:
        """Copies rows between the logits of the library and those of the program."""
        memory = _native.loss_memory(self._handle)
        theirs = _numpy().frombuffer(memory, dtype="float32").reshape(self.num_rows, self.vocab_size)
        own = self._logits
        assert own is not None
        part = slice(first, first + count)
        if to_library:
            theirs[part] = own[part]
        else:
            own[part] = theirs[part]

    def _run(self, loss: "Loss") -> float:
        """The result of the loss. Gives the gradients to the library."""
        try:
            result = float(loss(self))
            if self._logits is not None and self.needs_gradients:
                self._copy(0, self.num_rows, to_library=True)
            return result
        finally:
            self._handle = None


# Returns the sum of the losses of the rows, and replaces the logits by gradients if LossChunk.needs_gradients.
Loss = Callable[[LossChunk], float]


def native_loss(loss: Optional[Loss]) -> Optional[Callable[..., float]]:
    if loss is None:
        return None
    function = loss
    return lambda *fields: LossChunk(*fields)._run(function)


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        raise ImportError("arrays need NumPy. Install it: python3 -m pip install numpy") from None
    return numpy
