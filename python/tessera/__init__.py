"""Tessera fine-tunes language models: train, plan, evaluate, generate and chat, without PyTorch.

The settings of `tessera train` and the other commands are keyword arguments, with underscores. Every failure is a
tessera.Error, and nothing is printed unless `log` is given. NumPy is needed only for losses of the program.
"""
from tessera import _native
from tessera._data import Loss, LossChunk, Row, Tokens
from tessera._errors import CommunicationError, Error, InputError, OutOfMemoryError, RunError, UsageError
from tessera._metrics import Evaluation, Plan, PlannedBytes, StepMetrics, TrainResult
from tessera._model import Chat, Generation, Message, Model, Tokenizer
from tessera._options import SettingValue
from tessera._training import Training, export, plan, train

__version__: str = _native.version()
__all__ = [
    "Chat", "CommunicationError", "Error", "Evaluation", "Generation", "InputError", "Loss", "LossChunk", "Message",
    "Model", "OutOfMemoryError", "Plan", "PlannedBytes", "Row", "RunError", "SettingValue", "StepMetrics", "Tokenizer",
    "Tokens", "TrainResult", "Training", "UsageError", "export", "plan", "train", "__version__",
]
