"""What a run measures."""
from typing import Any, Dict, List, NamedTuple, Optional


class StepMetrics(NamedTuple):
    """A step of training."""

    step: int  # counts from 1
    num_steps: int  # of the complete run
    epoch: float  # 1.5: in the middle of the second epoch
    loss: Optional[float]  # mean over the tokens with loss; None if no token of the step has one
    gradient_norm: Optional[float]  # before clipping
    learning_rate: float
    loss_scale: float  # above 1 only in fp16
    updated: bool  # False: the update was skipped, because a value was not finite
    num_targets: int  # tokens with loss
    num_tokens: int
    num_samples: int
    runtime_s: float  # since the start of the run, including earlier parts of a continued run


class Evaluation(NamedTuple):
    """An evaluation, of a model or during training."""

    step: int  # in training: the number of steps before it
    epoch: float
    loss: float  # mean over the tokens with loss
    perplexity: float
    exact_match: Optional[float]  # from 0 to 1, with eval_generation
    f1: Optional[float]  # from 0 to 1, with eval_generation
    num_samples: int
    runtime_s: float


class TrainResult(NamedTuple):
    """The end of a run."""

    finished: bool  # False: the run was stopped, and the same call continues it
    steps: int
    epoch: float
    train_loss: Optional[float]  # mean over all steps
    num_samples: int
    num_tokens: int
    num_targets: int
    evaluations: List[Evaluation]  # of a continued run, also the evaluations of its earlier parts
    runtime_s: float
    output_dir: str
    model: Optional[str]  # the folder of the saved model; None if the run was stopped
    summary: Optional[Dict[str, Any]]  # the content of summary.json; None if the run was stopped


class PlannedBytes(NamedTuple):
    """The bytes of a category of memory in a phase of a run, at the peak of the category."""

    phase: str  # "load", "step", "evaluation", "save", "resume"
    category: str  # "parameters", "gradients", "optimizer", "activations", …
    device_bytes: int
    host_bytes: int


class Plan(NamedTuple):
    """The memory of a training run: what its first rank needs. str(plan) is what `tessera plan` prints."""

    fits: Optional[bool]  # None if the memory of the planned machine is not known
    peak_bytes: int
    device_peak_bytes: int
    host_peak_bytes: int
    file_bytes: int  # of arrays offloaded to files
    memory_limit_bytes: Optional[int]
    bytes: List[PlannedBytes]
    num_parameters: int
    num_trainable_parameters: int
    step_flops: float
    step_bytes_sent: int  # by the rank, with several ranks
    estimated_step_s: Optional[float]  # with fit: predicted, perhaps for a typical machine
    settings: Dict[str, Any]  # with fit: the settings that were found
    text: str
    record: Dict[str, Any]  # what `tessera plan --json` prints

    def __str__(self) -> str:
        return self.text
