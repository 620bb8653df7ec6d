"""Models in memory."""
import threading
from contextlib import contextmanager
from typing import (TYPE_CHECKING, Any, Callable, Iterable, Iterator, List, Literal, NamedTuple, Optional, Sequence,
                    Union)

from tessera import _native
from tessera._data import Ids, Loss, Row, ids_bytes, native_loss, native_rows
from tessera._metrics import Evaluation
from tessera._options import Log, Path, SettingValue, options, path_text

if TYPE_CHECKING:
    from typing import TypedDict

    class Message(TypedDict):
        role: str  # "system", "user", "assistant", …
        content: str
else:
    Message = dict

# Receives a text in parts. If it returns False, the text ends there; None and everything else continues.
OnText = Callable[[str], object]


class Generation(NamedTuple):
    """A text that a model has generated."""

    text: str
    ids: List[int]
    finish_reason: Literal["stop", "length", "cancelled"]  # an end token or `stop`; max_new_tokens; on_text
    num_prompt_tokens: int
    seconds: float


class Tokenizer:
    """A tokenizer. Several threads may use it at the same time.

    place: a model folder or a tokenizer.json. A model has its own: Model.tokenizer.
    """

    def __init__(self, place: Path) -> None:
        self._handle = _native.tokenizer_load(path_text(place))

    def encode(self, text: str, special_tokens: bool = True) -> List[int]:
        """The ids of a text. With special_tokens, the tokens that the tokenizer puts before and after a text (such as
        BOS) are included."""
        return _native.tokenizer_encode(self._handle, text, special_tokens)

    def decode(self, ids: Ids, skip_special: bool = True) -> str:
        """The text of ids: a list, or an array of one dimension. With skip_special, special tokens are left out."""
        return _native.tokenizer_decode(self._handle, ids_bytes(ids), skip_special)

    def id_of(self, token: str) -> Optional[int]:
        """The id of a token as tokenizer.json writes it. None if the token does not exist."""
        return _native.tokenizer_id_of(self._handle, token)

    @property
    def vocab_size(self) -> int:
        """The largest id plus one."""
        return _native.tokenizer_vocab_size(self._handle)


class _ModelLog:
    """The log of a model. The library keeps this object, but not the function, which may refer to the model."""

    def __init__(self) -> None:
        self.function: Optional[Log] = None

    def __call__(self, level: Any, text: str) -> None:
        if self.function:
            self.function(level, text)


def _generate_options(max_new_tokens: Optional[int], do_sample: Optional[bool], temperature: Optional[float],
                      top_k: Optional[int], top_p: Optional[float], seed: Optional[int],
                      stop: Union[None, str, Sequence[str]]) -> Any:
    stops = [stop] if isinstance(stop, str) else list(stop or ())
    return max_new_tokens, do_sample, temperature, top_k, top_p, seed, stops


def _native_on_text(on_text: Optional[OnText]) -> Optional[Callable[[str], bool]]:
    if on_text is None:
        return None
    function = on_text
    return lambda part: function(part) is not False


class Model:
    """A model on a device.

    place: a folder of Hugging Face, the folder or a checkpoint of a run, or a name in the cache of the hub.
    settings: the options of `tessera eval`, `generate` and `chat`; adapter is the folder of an adapter.
    log: called with ("result", "note" or "warning", text) for what the program would print.

    Calls of several threads to one model run one after the other. A function that a call runs, such as on_text, must
    not call the same model: this raises RuntimeError. Ctrl-C interrupts generate(), evaluate() and Chat.say() within a
    token or a batch, and the model can be used again. Loading a model cannot be interrupted.
    """

    def __init__(self, place: Path, *, log: Optional[Log] = None, config_file: Optional[Path] = None,
                 **settings: SettingValue) -> None:
        self._lock = threading.Lock()
        self._user: Optional[int] = None  # the thread of the current call
        self._log = log
        self._native_log = _ModelLog() if log else None
        self._handle: Any = None
        given = options({"model": path_text(place), **settings})
        with self._call(is_loading=True):
            self._handle = _native.model_load(given, path_text(config_file), self._native_log)
            self._num_parameters, self._max_positions, tokenizer = _native.model_facts(self._handle)
        self._tokenizer = Tokenizer.__new__(Tokenizer)
        self._tokenizer._handle = tokenizer

    @classmethod
    def load(cls, place: Path, *, log: Optional[Log] = None, config_file: Optional[Path] = None,
             **settings: SettingValue) -> "Model":
        """The same as Model(place, …)."""
        return cls(place, log=log, config_file=config_file, **settings)

    @contextmanager
    def _call(self, is_loading: bool = False) -> Iterator[Any]:
        """A call of the library with this model, which only one thread runs at a time."""
        if self._user == threading.get_ident():
            raise RuntimeError("a function that a call of the model runs must not call the model")
        with self._lock:
            if self._handle is None and not is_loading:
                raise RuntimeError("the model is closed")
            try:
                self._user = threading.get_ident()
                if self._native_log:
                    self._native_log.function = self._log
                yield self._handle
            finally:
                self._user = None
                if self._native_log:
                    self._native_log.function = None

    def close(self) -> None:
        """Frees the memory of the model. Its chats cannot be used afterwards."""
        if self._handle is not None:
            with self._call():
                self._handle = None

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def tokenizer(self) -> Tokenizer:
        return self._tokenizer

    @property
    def num_parameters(self) -> int:
        return self._num_parameters

    @property
    def max_positions(self) -> int:
        """The longest sequence in tokens; 0: no limit."""
        return self._max_positions

    def generate(self, prompt: Union[str, Sequence[Message]], *, on_text: Optional[OnText] = None,
                 max_new_tokens: Optional[int] = None, do_sample: Optional[bool] = None,
                 temperature: Optional[float] = None, top_k: Optional[int] = None, top_p: Optional[float] = None,
                 seed: Optional[int] = None, stop: Union[None, str, Sequence[str]] = None) -> Generation:
        """Continues a text, or answers the last message of a conversation with the chat template of the model.

        on_text gets the text in parts, as soon as later tokens cannot change them. If it returns False, the text ends.
        What is not given has the value of the model's settings.
        """
        how = _generate_options(max_new_tokens, do_sample, temperature, top_k, top_p, seed, stop)
        given = prompt if isinstance(prompt, str) else [(message["role"], message["content"]) for message in prompt]
        with self._call() as handle:
            return Generation(**_native.model_generate(handle, given, how, _native_on_text(on_text)))

    def generate_all(self, prompts: Iterable[str], *, max_new_tokens: Optional[int] = None,
                     do_sample: Optional[bool] = None, temperature: Optional[float] = None, top_k: Optional[int] = None,
                     top_p: Optional[float] = None, seed: Optional[int] = None,
                     stop: Union[None, str, Sequence[str]] = None) -> List[Generation]:
        """Continues texts together: eval_batch_size at a time."""
        how = _generate_options(max_new_tokens, do_sample, temperature, top_k, top_p, seed, stop)
        if isinstance(prompts, str):
            raise TypeError("prompts must be a list of texts, not one text")
        with self._call() as handle:
            results = _native.model_generate_several(handle, list(prompts), how)
        return [Generation(**fields) for fields in results]

    def chat(self, system: str = "") -> "Chat":
        """Begins a conversation. An empty `system` means no system message."""
        return Chat(self, system)

    def evaluate(self, *, rows: Optional[Iterable[Row]] = None, loss: Optional[Loss] = None,
                 **settings: SettingValue) -> Evaluation:
        """The loss of the model on `rows`, or on the files of eval_dataset. With eval_generation, also the scores of
        its answers. `settings` override the settings of the model in this call. `loss` replaces the cross-entropy."""
        with self._call() as handle:
            return Evaluation(**_native.model_evaluate(handle, options(settings), native_rows(rows, "rows"),
                                                       native_loss(loss)))

    def save(self, folder: Path) -> None:
        """Saves the model as a folder of Hugging Face. A model with an adapter saves the adapter, as a PEFT folder."""
        with self._call() as handle:
            _native.model_save(handle, path_text(folder))

    def use_adapter(self, folder: Optional[Path]) -> None:
        """Replaces the adapter by the one in `folder`; None removes it. The base stays in memory if both adapters have
        the same options. Otherwise, it is read again."""
        with self._call() as handle:
            _native.model_use_adapter(handle, path_text(folder))


class Chat:
    """A conversation with a model (Model.chat())."""

    def __init__(self, model: Model, system: str = "") -> None:
        self._model = model
        with model._call() as handle:
            self._handle = _native.model_chat(handle, system)

    def say(self, message: str, *, on_text: Optional[OnText] = None, max_new_tokens: Optional[int] = None,
            do_sample: Optional[bool] = None, temperature: Optional[float] = None, top_k: Optional[int] = None,
            top_p: Optional[float] = None, seed: Optional[int] = None,
            stop: Union[None, str, Sequence[str]] = None) -> Generation:
        """Adds a message of the user, and the answer of the model. If the call fails, the conversation is unchanged."""
        how = _generate_options(max_new_tokens, do_sample, temperature, top_k, top_p, seed, stop)
        with self._model._call():
            return Generation(**_native.chat_say(self._handle, message, how, _native_on_text(on_text)))

    @property
    def messages(self) -> List[Message]:
        with self._model._call():
            return _native.chat_messages(self._handle)

    def set_system(self, text: str) -> None:
        """Replaces the system message; an empty text removes it."""
        with self._model._call():
            _native.chat_set_system(self._handle, text)

    def reset(self) -> None:
        """Forgets everything except the system message."""
        with self._model._call():
            _native.chat_reset(self._handle)

    def undo(self) -> bool:
        """Forgets the last message of the user and its answer. False if there is none."""
        with self._model._call():
            return _native.chat_undo(self._handle)
