// Declarations of evaluations during training, of checkpoints and of saved models.
#include "tessera/settings/declarations/declaring.h"

namespace tessera::declaring {

namespace {

std::vector<std::pair<const char*, S::Interval>> intervals() {
  return {{"no", S::Interval::no}, {"epoch", S::Interval::epoch}, {"steps", S::Interval::steps}};
}

// Takes the Trainer's True and False, and Python's None, in any case.
Setting resume() {
  Setting setting = text(
      "resume", &S::resume, kCheckpoints, "auto|none|PATH",
      "auto or true: continue from the newest complete checkpoint in --output-dir; none or false: begin a new run; "
      "PATH: continue from this checkpoint, or from the newest checkpoint in this folder. If PATH is outside "
      "--output-dir, the run in --output-dir is a new run, and the run of PATH is not changed",
      {"resume_from_checkpoint"});
  setting.parse = [](const std::string& given, const std::string& where) -> SettingValue {
    if (given.empty()) throw UsageError(where, "is empty", "Give a value, or leave it out: the default is \"auto\"");
    const std::string word = lower(given);
    return word == "auto" || word == "true" ? "auto" : word == "none" || word == "false" ? "none" : given;
  };
  return setting;
}

Setting with_bare(Setting setting, const char* word) {
  setting.bare_value = word;
  return setting;
}

}  // namespace

std::vector<Setting> checkpoint_settings() {
  return {
      choice("eval_strategy", &S::eval_strategy, kTrainEvaluation, intervals(),
             "When to evaluate on --eval-dataset. no: never; epoch: after each epoch; steps: every --eval-steps",
             {"evaluation_strategy"}),
      steps(
          "eval_steps", &S::eval_steps, kTrainEvaluation,
          "Steps between two evaluations, or a fraction of all steps. Sets --eval-strategy steps, unless you give one"),
      boolean("eval_before", &S::eval_before, kTrainEvaluation, "Also evaluate before the first step",
              {"eval_on_start"}),
      takes_scalars(resume()),
      real("owner_timeout", &S::owner_timeout, kCheckpoints, "SECONDS", {.min = 0.1, .max = 1e8},
           "Seconds without a heartbeat after which a run on another node loses --output-dir"),
      with_words(choice("save_strategy", &S::save_strategy, kCheckpoints, intervals(),
                        "When to save a checkpoint. no: never; epoch: after each epoch; steps: every --save-steps"),
                 {},
                 {{"best", "Give --load-best-model-at-end: the best checkpoint is then kept with the newest ones"}}),
      steps(
          "save_steps", &S::save_steps, kCheckpoints,
          "Steps between two checkpoints, or a fraction of all steps. Sets --save-strategy steps, unless you give one"),
      integer("save_total_limit", &S::save_total_limit, kCheckpoints, "N", kCount,
              "Number of newest checkpoints to keep; the best one is also kept; 0: keep all"),
      boolean("load_best_model_at_end", &S::load_best_model_at_end, recorded(Resume::new_folder, kCheckpoints),
              "End with the best evaluated model instead of the last one"),
      with_words(
          choice("metric_for_best_model", &S::metric_for_best_model, recorded(Resume::new_folder, kCheckpoints),
                 {{"eval_loss", S::Metric::eval_loss}, {"exact_match", S::Metric::exact_match}, {"f1", S::Metric::f1}},
                 "Metric that selects the best model"),
          {{"loss", "eval_loss"}, {"eval_exact_match", "exact_match"}, {"eval_f1", "f1"}}, {}),
      boolean("save_async", &S::save_async, kCheckpoints,
              "Copy a checkpoint in memory and write it in the background while training continues"),
      choice("save_dtype", &S::save_dtype, brief(kSavedModel, "saved weights: auto, fp32, bf16 or fp16", kCheckpoint),
             {{"auto", std::nullopt}, {"fp32", DType::f32}, {"bf16", DType::bf16}, {"fp16", DType::f16}},
             "Data type of the weights in a saved model folder. auto: each tensor as in the files that "
             "the run loaded; fp32 with --init random"),
      bytes(
          "max_shard_size", &S::max_shard_size, kSavedModel, {.min = 1},
          "Maximum bytes of tensors in a weight file of a saved model folder. A larger model gets several files and an "
          "index"),
      with_bare(choice("gguf", &S::gguf, brief(kGguf, "write a GGUF file for llama.cpp: f16, bf16, q8_0, f32"),
                       {{"none", S::Gguf::none},
                        {"auto", S::Gguf::automatic},
                        {"f16", S::Gguf::f16},
                        {"bf16", S::Gguf::bf16},
                        {"q8_0", S::Gguf::q8_0},
                        {"f32", S::Gguf::f32}},
                       "Write a GGUF file for llama.cpp with matrices of this type, instead of a Hugging Face folder. "
                       "auto, or no value: bf16 if most weights were loaded in bf16, otherwise f16"),
                "auto"),
      boolean("overwrite", &S::overwrite, kOverwrite,
              "Replace the run in --output-dir if the new run does not continue it, or an existing GGUF file",
              {"overwrite_output_dir"}),
  };
}

}  // namespace tessera::declaring
