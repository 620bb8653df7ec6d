// Declarations of steps, rates and AdamW.
#include "tessera/engine/engine.h"
#include "tessera/settings/declarations/declaring.h"

namespace tessera::declaring {

namespace {

Setting max_steps() {
  Setting setting = integer("max_steps", &S::max_steps, recorded(Resume::any, kOptimization), "STEPS", {-1, kMaxCount},
                            "Total number of optimizer steps; replaces --epochs; 0 or -1: use --epochs");
  setting.set = [](S& s, const SettingValue& value) { s.max_steps = std::max<int64_t>(0, std::get<int64_t>(value)); };
  return setting;
}

}  // namespace

std::vector<Setting> optimization_settings() {
  return {
      text("experiment", &S::experiment, kOptimization, "NAME", "A label of the run, stored in summary.json",
           {"run_name"}),
      integer("batch_size", &S::batch_size,
              determines(kTheStep, brief(kOptimization, "samples per micro-batch and rank")), "SAMPLES", kCount,
              "Samples per micro-batch on each rank; 0: --batch-tokens decides", {"per_device_train_batch_size"}),
      integer(
          "batch_tokens", &S::batch_tokens,
          determines(kTheStep, brief(kOptimization, "or: maximum number of tokens per micro-batch and rank")), "TOKENS",
          {0, kMaxBatchTokens},
          "Pack complete samples into micro-batches of up to this number of tokens, instead of --batch-size; at least "
          "--max-length; 0: use --batch-size"),
      integer("grad_accum", &S::grad_accum, determines(kTheStep, brief(kOptimization, "micro-batches per step")), "N",
              kPositive, "Micro-batches per optimizer step (gradient accumulation)", {"gradient_accumulation_steps"}),
      real("epochs", &S::epochs, recorded(Resume::any, brief(kOptimization, "passes over the data set")), "EPOCHS",
           {.min = 0, .max = 1e9, .open_min = true}, "Number of passes over the training data",
           {"num_train_epochs", "num_epochs"}),
      max_steps(),
      real("lr", &S::lr, recorded(Resume::new_folder, brief(kOptimization, "highest learning rate")), "RATE",
           kNonNegativeReal, "Peak learning rate", {"learning_rate"}),
      real("weight_decay", &S::weight_decay, recorded(Resume::new_folder, kOptimization), "RATE", kNonNegativeReal,
           "Decoupled weight decay (AdamW) of all parameters except biases and norms"),
      text("freeze", &S::freeze, recorded(Resume::never, kOptimization), "PATTERN,...",
           "Do not train the tensors with these names: patterns with * ? [...], such as 'word_embeddings*,h.0.*' "
           "(names as in the model's files). Frozen tensors have no gradients and no optimizer states"),
      real("beta1", &S::beta1, recorded(Resume::new_folder, kOptimization), "X", kBelowOne,
           "AdamW: decay rate of the first moment", {"adam_beta1"}),
      real("beta2", &S::beta2, recorded(Resume::new_folder, kOptimization), "X", kBelowOne,
           "AdamW: decay rate of the second moment", {"adam_beta2"}),
      real("adam_epsilon", &S::adam_epsilon, recorded(Resume::new_folder, kOptimization), "X",
           {.min = 0, .open_min = true}, "AdamW: constant added to the denominator"),
      real("max_grad_norm", &S::max_grad_norm, recorded(Resume::new_folder, kOptimization), "NORM", kNonNegativeReal,
           "Clip gradients to this global norm; 0: no clipping"),
      integer("max_skipped_updates", &S::max_skipped_updates, kOptimization, "N", kCount,
              "Stop the run after this many consecutive updates with NaN or infinite loss or gradients; 0: never. "
              "Updates skipped by the search for fp16's loss scale do not count"),
      boolean("stop_on_divergence", &S::stop_on_divergence, kOptimization,
              "End the run with an error when its loss is hopeless: for many steps far above the first loss and the "
              "loss of random guesses. Otherwise, only print a warning"),
      choice(
          "optimizer_states", &S::optimizer_states, recorded(Resume::new_folder, kOptimization),
          {{"fp32", S::OptimizerStates::fp32}, {"bf16", S::OptimizerStates::bf16}, {"8bit", S::OptimizerStates::q8}},
          "What AdamW keeps for each parameter. fp32: two fp32 moments and an fp32 master weight (12 bytes together); "
          "8bit: two moments of 8 bits and an fp32 master weight (6 bytes together); bf16, only with --precision bf16: "
          "two bf16 moments and the bf16 weight, without a master weight (6 bytes together). AdamW then rounds all "
          "three stochastically"),
      choice(
          "matmul_precision", &S::matmul_precision, recorded(Resume::new_folder, kOptimization),
          {{"as-precision", S::MatmulPrecision::as_precision}, {"fp8", S::MatmulPrecision::fp8}},
          "How many bits the linear layers of the blocks multiply in training. as-precision: those of --precision. "
          "fp8, only with --precision bf16: inputs, weights and gradients are rounded to 8 bits (e4m3), with a scale "
          "for 128 values or for a square of them. This needs a GPU with compute capability 9.0 (H100, H200), or a "
          "CPU, which emulates it for experiments. The head, evaluation and generation do not use fp8"),
      choice(
          "gather_dtype", &S::gather_dtype, kOptimization,
          {{"auto", S::GatherDtype::automatic}, {"fp8", S::GatherDtype::fp8}},
          "How ranks send sharded weights of the blocks to each other in training. auto: in the type of --precision; "
          "fp8, only with --matmul-precision fp8: in 8 bits, which halves the bytes. The results have the same bits. "
          "Each rank then also keeps its part in 8 bits (1 byte per parameter)"),
      takes_scalars(parsed(
          "activation_checkpointing", &S::activation_checkpointing, kOptimization, "none|auto|block|N|PART[=N],...",
          "Activations that are not kept, but computed again in the backward pass: none, as many as the memory needs "
          "(auto), or those of these parts in the first N blocks or in all blocks. block: all activations except the "
          "block's input; mlp: the outputs of "
          "the MLP's first products; attention: the output of attention. mlp and attention begin after the blocks of "
          "block. A number alone means block. Needs less memory, but more time. The losses have the same bits",
          parse_checkpointing, checkpointing_text)),
      choice("fuse_micro_batches", &S::fuse_micro_batches, kOptimization,
             {{"auto", S::FuseMicroBatches::automatic}, {"off", S::FuseMicroBatches::off}},
             "auto: a GPU with enough memory runs the micro-batches of a step as one batch (faster, results differ "
             "only by rounding); off: one after the other"),
      boolean("cuda_graphs", &S::cuda_graphs, kOptimization,
              "Launch blocks as CUDA graphs on a GPU (faster, results have the same bits)"),
      steps("logging_steps", &S::logging_steps, kOptimization,
            "Steps between two log lines, or a fraction of all steps; 0: no log lines"),
  };
}

}  // namespace tessera::declaring
