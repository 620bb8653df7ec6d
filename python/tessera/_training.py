"""Training, plans and exports."""
import atexit
import json
import os
import signal
import threading
import traceback
import weakref
from queue import SimpleQueue
from types import FrameType
from typing import Any, Callable, Iterable, Iterator, Literal, Optional, Union

from tessera import _native
from tessera._data import Loss, Row, native_loss, native_rows
from tessera._metrics import Evaluation, Plan, PlannedBytes, StepMetrics, TrainResult
from tessera._options import Log, Path, SettingValue, options, path_text

# After a step: None continues. "stop" saves a checkpoint and ends; the same call continues the run. "finish" ends as if
# this were the last step, and saves the model.
OnStep = Callable[[StepMetrics], Optional[Literal["stop", "finish"]]]
OnEvaluation = Callable[[Evaluation], object]


def _next_number(answer: object) -> int:
    for number, known in enumerate((None, "stop", "finish")):
        if answer is known or answer == known:
            return number
    raise TypeError(f'on_step must return None, "stop" or "finish", not {answer!r}')


def _train(settings: Any, config_file: Optional[Path], on_step: Optional[OnStep],
           on_evaluation: Optional[OnEvaluation], stop_requested: Callable[[], bool], log: Optional[Log],
           loss: Optional[Loss], rows: Optional[Iterable[Row]], eval_rows: Optional[Iterable[Row]]) -> TrainResult:
    def after_step(step: Any) -> int:
        assert on_step
        return _next_number(on_step(StepMetrics(**step)))

    def after_evaluation(evaluation: Any) -> None:
        assert on_evaluation
        on_evaluation(Evaluation(**evaluation))

    fields = _native.train(
        options(settings), path_text(config_file), after_step if on_step else None,
        after_evaluation if on_evaluation else None, stop_requested, log, native_loss(loss), native_rows(rows, "rows"),
        native_rows(eval_rows, "eval_rows"))
    summary = fields.pop("summary_json")
    model = os.fsdecode(fields.pop("model"))
    fields["output_dir"] = os.fsdecode(fields["output_dir"])
    fields["evaluations"] = [Evaluation(**evaluation) for evaluation in fields["evaluations"]]
    return TrainResult(model=model or None, summary=json.loads(summary) if summary else None, **fields)


class _CtrlC:
    """The first Ctrl-C sets `pressed`; the second raises KeyboardInterrupt. Only on the main thread, and only if the
    program has no handler of its own."""

    def __init__(self) -> None:
        self.pressed = False
        self._installed = False

    def __enter__(self) -> "_CtrlC":
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._press)
            self._installed = True
        return self

    def __exit__(self, *exception: object) -> None:
        if self._installed and signal.getsignal(signal.SIGINT) == self._press:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _press(self, number: int, frame: Optional[FrameType]) -> None:
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True


def train(*, on_step: Optional[OnStep] = None, on_evaluation: Optional[OnEvaluation] = None,
          log: Optional[Log] = None, loss: Optional[Loss] = None, rows: Optional[Iterable[Row]] = None,
          eval_rows: Optional[Iterable[Row]] = None, config_file: Optional[Path] = None,
          **settings: SettingValue) -> TrainResult:
    """Trains a model, and returns when the run ends.

    `settings` are the options of `tessera train`, with underscores: model, output_dir and dataset (or `rows`) are
    required. The run writes the same files as the program, and continues an earlier run in output_dir in the same way.

    on_step: called after each step. It returns None to continue, "stop" to save a checkpoint and end, or "finish" to
        end as if this were the last step.
    on_evaluation: called after each evaluation.
    log: called with ("result", "note" or "warning", text) for what the program would print.
    loss: replaces the cross-entropy, in training and evaluation (LossChunk).
    rows, eval_rows: replace the files of dataset and eval_dataset. All rows are read before the run starts.
    config_file: a TOML file of `tessera`; settings override its lines.

    All functions run on the calling thread. If one raises an exception, the run ends without a checkpoint, and train()
    raises this exception.

    Ctrl-C: the step ends, the run saves a checkpoint, and train() raises KeyboardInterrupt. A second Ctrl-C interrupts
    a function of the program, and then saves no checkpoint.

    Raises Error: UsageError, InputError, OutOfMemoryError, RunError.
    """
    with _CtrlC() as ctrl_c:
        result = _train(settings, config_file, on_step, on_evaluation, lambda: ctrl_c.pressed, log, loss, rows,
                        eval_rows)
    if ctrl_c.pressed:
        raise KeyboardInterrupt(f"the training has ended after step {result.steps}")
    return result


_Item = Union[StepMetrics, Evaluation]


class _Channel:
    """Between the thread that trains and the thread that iterates. Only one of them works at a time.

    Ctrl-C can end any function of the iterating thread at any place, and another call then continues. The state is
    therefore in numbers that may be written and read twice. The queues only wake a thread, which then reads the numbers.
    """

    def __init__(self) -> None:
        self.item: Optional[_Item] = None  # the latest item
        self.num_items = 0  # given by the training thread
        self.num_turns = 0  # the training thread waits until this is num_items
        self.stop = False
        self.has_ended = False
        self.result: Optional[TrainResult] = None
        self.error: Optional[BaseException] = None
        self.wake_iteration: "SimpleQueue[None]" = SimpleQueue()
        self.wake_training: "SimpleQueue[None]" = SimpleQueue()

    def give(self, item: Any) -> Optional[Literal["stop"]]:
        """Hands an item to the iterating thread, and waits until it asks for the next one."""
        self.item = item
        self.num_items += 1
        self.wake_iteration.put(None)
        while self.num_turns < self.num_items and not self.stop:
            self.wake_training.get()
        return "stop" if self.stop else None

    def run(self, work: Callable[["_Channel"], TrainResult]) -> None:
        try:
            self.result = work(self)
        except BaseException as error:  # the iterating thread raises it
            self.error = error
        self.has_ended = True
        self.wake_iteration.put(None)

    def wait(self, num_seen: int) -> None:
        """Lets the training thread work after the first num_seen items. Returns when it has given another item, or has
        ended."""
        self.num_turns = num_seen
        self.wake_training.put(None)
        while self.num_items == num_seen and not self.has_ended:
            self.wake_iteration.get()


class Training:
    """A training run as an iterator of metrics: a StepMetrics per step, and an Evaluation per evaluation.

    The arguments are those of train(), without on_step and on_evaluation. The run starts with the first next(), on a
    thread of its own, and waits after each step until the next one is asked for. `log`, `loss` and the rows run on
    that thread.

        with tessera.Training(model="bloom-560m", dataset="train.jsonl", output_dir="runs/mine") as training:
            for item in training:
                print(item)
        print(training.result)

    To stop the run, leave the loop: close(), the end of `with` and the end of the object save a checkpoint, and the
    same arguments continue the run. Ctrl-C does the same. next() and close() raise the errors of the run.
    """

    def __init__(self, *, log: Optional[Log] = None, loss: Optional[Loss] = None, rows: Optional[Iterable[Row]] = None,
                 eval_rows: Optional[Iterable[Row]] = None, config_file: Optional[Path] = None,
                 **settings: SettingValue) -> None:
        def work(channel: _Channel) -> TrainResult:
            return _train(settings, config_file, channel.give, channel.give, lambda: channel.stop, log, loss, rows,
                          eval_rows)

        self._channel = _Channel()
        # The thread has no reference to this object, so the object can end first.
        self._thread = threading.Thread(target=self._channel.run, args=(work,), name="tessera training", daemon=True)
        self._num_seen = 0  # items
        self._is_done = False  # the end of the run was seen

    @property
    def result(self) -> TrainResult:
        """The end of the run. Raises RuntimeError before it has ended, and the error of a run that failed."""
        if self._channel.error:
            raise self._channel.error
        if self._channel.result is None:
            raise RuntimeError("the training has no result yet: finish the iteration, or call close()")
        return self._channel.result

    def __iter__(self) -> Iterator[_Item]:
        return self

    def __next__(self) -> _Item:
        if self._is_done:
            raise StopIteration
        if self._thread.ident is None:
            _running.add(self)
            self._thread.start()
        self._channel.wait(self._num_seen)
        item = self._channel.item
        if self._channel.num_items > self._num_seen and item is not None:
            self._num_seen = self._channel.num_items
            return item
        self._end()
        raise StopIteration

    def _end(self) -> None:
        """Raises the error of the run."""
        self._thread.join()
        _running.discard(self)
        self._is_done = True
        if self._channel.error:
            raise self._channel.error

    def close(self) -> None:
        """Stops the run, and returns when it has saved a checkpoint. Does nothing after the end of the run."""
        self._channel.stop = True
        if not self._is_done and self._thread.ident is not None:
            while not self._channel.has_ended:
                self._channel.wait(self._channel.num_items)
            self._end()
        self._is_done = True

    def __enter__(self) -> "Training":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not hasattr(self, "_is_done"):  # __init__ has failed
            return
        if threading.current_thread() is self._thread:  # a garbage collection during the run: it stops soon
            self._channel.stop = True
            self._channel.wake_training.put(None)
        else:
            self.close()


_running: "weakref.WeakSet[Training]" = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """Stops the runs that a program has left behind, before the interpreter ends."""
    try:
        for training in list(_running):
            try:
                training.close()
            except Exception:  # the error of one run must not keep the others from saving
                traceback.print_exc()
    finally:
        _native.begin_exit()


def plan(*, log: Optional[Log] = None, config_file: Optional[Path] = None, **settings: SettingValue) -> Plan:
    """Plans the memory of a run, and touches no device. `settings` are the options of `tessera plan`; only model is
    required.

    Raises Error: UsageError, InputError.
    """
    fields = _native.plan(options(settings), path_text(config_file), log)
    fields["bytes"] = [PlannedBytes(**row) for row in fields["bytes"]]
    return Plan(record=json.loads(fields.pop("json")), **fields)


def export(*, log: Optional[Log] = None, config_file: Optional[Path] = None, **settings: SettingValue) -> str:
    """Writes a model folder, or with gguf="q8_0" (f16, bf16, f32) a file for llama.cpp. Returns its path.

    `settings` are the options of `tessera export`: output_dir is required, and a checkpoint, or a model with or without
    an adapter.
    """
    return os.fsdecode(_native.export(options(settings), path_text(config_file), log))
