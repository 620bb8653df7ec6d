#include "tessera/settings/settings.h"

#include "tessera/settings/setting_declarations.h"

namespace tessera {

namespace {

using namespace declaring;

std::vector<Setting> model_settings() {
  return {
      text("model", &S::model, kModel, "PATH|NAME",
           "a Hugging Face folder, or the output folder of a finished run; with --init random also a config.json or a "
           "shape: bloom-560m, bloom-1b1, bloom-1b7, "
           "bloom-3b, bloom-7b1, bloom-176b, gpt"),
      choice("init", &S::init, kModel, {{"pretrained", S::Init::pretrained}, {"random", S::Init::random}},
             "read the model's weights, or draw new ones"),
      text("tokenizer", &S::tokenizer, kTokenizer, "PATH", "a tokenizer.json or its folder; empty: the model's"),
      integer("vocab_size", &S::vocab_size, kVocabulary, "TOKENS", kCount,
              "tokens of the vocabulary; 0: the tokenizer's"),
      integer("hidden_size", &S::hidden_size, kShape, "N", kPositive, "width of the model, divisible by the heads"),
      integer("num_layers", &S::num_layers, kShape, "N", kPositive, "blocks"),
      integer("num_heads", &S::num_heads, kShape, "N", kPositive, "attention heads"),
      integer("ff_dim", &S::ff_dim, kShape, "N", kPositive, "width of the feed-forward layer"),
      real("dropout", &S::dropout, kShape, "P", kBelowOne, "probability of a dropped activation"),
  };
}

std::vector<Setting> data_settings() {
  return {
      text("dataset", &S::dataset, kDataset, "PATH", "SQuAD JSON, or rows as JSON or JSONL: questions, or plain texts"),
      integer("train_size", &S::train_size, kTrainData, "SAMPLES", kCount,
              "use only so many samples, drawn by the seed (with --no-shuffle the first); 0: all"),
      boolean("shuffle", &S::shuffle, kTrainData, "a new order of the samples every epoch"),
      text("eval_dataset", &S::eval_dataset, kEvalData, "PATH", "questions to evaluate on"),
      integer("eval_size", &S::eval_size, kEvalData, "SAMPLES", kCount,
              "use only so many samples, drawn by the seed; 0: all"),
      choice("objective", &S::objective, kText,
             {{"completion", Objective::completion},
              {"causal_lm", Objective::causal_lm},
              {"separate", Objective::separate}},
             "which tokens carry loss: the answer; all; or the prompt's last ones, with the answer as their labels "
             "(poor, to "
             "repeat a workshop's tables)"),
      integer("max_length", &S::max_length, kText, "TOKENS", {2, kMaxCount}, "longest sample",
              {"max_seq_length", "model_max_length"}),
      choice("truncation", &S::truncation, kText, {{"context", Truncation::context}, {"right", Truncation::right}},
             "what a sample that is too long loses: parts of its context, those far from the answer in training and "
             "the end "
             "in evaluation; or its own end"),
      choice("long_texts", &S::long_texts, kText,
             {{"split", LongTexts::split}, {"truncate", LongTexts::truncate}, {"skip", LongTexts::skip}},
             "a plain text longer than --max-length becomes consecutive samples, or is cut, or is left out"),
      choice("bad_rows", &S::bad_rows, kText, {{"skip", BadRows::skip}, {"stop", BadRows::stop}},
             "rows that are malformed, or whose question and answer are longer than --max-length: report and skip "
             "them, or refuse the data set"),
      real("max_bad_rows", &S::max_bad_rows, kText, "PART", kUnitInterval,
           "part of the rows that may be skipped; more are an error"),
  };
}

std::vector<Setting> optimization_settings() {
  return {
      integer("batch_size", &S::batch_size, kOptimization, "SAMPLES", kPositive, "samples per micro-batch and rank",
              {"per_device_train_batch_size"}),
      integer("grad_accum", &S::grad_accum, kOptimization, "N", kPositive, "micro-batches per step",
              {"gradient_accumulation_steps"}),
      real("epochs", &S::epochs, kOptimization, "N", {.min = 0, .max = 1e9, .open_min = true},
           "passes over the data set", {"num_train_epochs", "num_epochs"}),
      integer("max_steps", &S::max_steps, kOptimization, "STEPS", kCount, "end after so many steps; 0: by epochs"),
      real("lr", &S::lr, kOptimization, "RATE", kNonNegativeReal, "learning rate at its highest", {"learning_rate"}),
      choice("lr_schedule", &S::lr_schedule, kOptimization,
             {{"linear", Schedule::linear}, {"constant", Schedule::constant}, {"cosine", Schedule::cosine}},
             "how the rate falls after the warm-up", {"lr_scheduler_type"}),
      integer("warmup_steps", &S::warmup_steps, kOptimization, "STEPS", kCount, "steps of rising rate"),
      real("warmup_ratio", &S::warmup_ratio, kOptimization, "PART", kUnitInterval, "the same as a part of all steps"),
      choice("warmup_type", &S::warmup_type, kOptimization, {{"linear", Warmup::linear}, {"log", Warmup::log}},
             "how the rate rises"),
      real("warmup_min_lr", &S::warmup_min_lr, kOptimization, "RATE", kNonNegativeReal,
           "learning rate at its lowest: where the warm-up begins and the schedule ends"),
      integer("lr_decay_steps", &S::lr_decay_steps, kOptimization, "STEPS", kCount,
              "the step at which the rate is at its lowest again; 0: the last"),
      real("weight_decay", &S::weight_decay, kOptimization, "RATE", kNonNegativeReal,
           "decoupled decay of all parameters but biases and norms"),
      real("beta1", &S::beta1, kOptimization, "X", kBelowOne, "AdamW's decay of the first moment", {"adam_beta1"}),
      real("beta2", &S::beta2, kOptimization, "X", kBelowOne, "AdamW's decay of the second moment", {"adam_beta2"}),
      real("adam_epsilon", &S::adam_epsilon, kOptimization, "X", {.min = 0, .open_min = true},
           "added to AdamW's denominator"),
      real("max_grad_norm", &S::max_grad_norm, kOptimization, "NORM", kNonNegativeReal,
           "gradients are scaled down to this norm; 0: never"),
      integer("max_skipped_updates", &S::max_skipped_updates, kOptimization, "N", kCount,
              "end the run after so many updates in a row whose loss or gradients are NaN or infinite; those by which "
              "fp16's loss scale is found do not count; 0: never"),
      choice("activation_checkpointing", &S::activation_checkpointing, kOptimization,
             {{"none", S::ActivationCheckpointing::none}, {"block", S::ActivationCheckpointing::block}},
             "keep all activations, or compute each block's again in the backward pass"),
      choice("fuse_micro_batches", &S::fuse_micro_batches, kOptimization,
             {{"auto", S::FuseMicroBatches::automatic}, {"off", S::FuseMicroBatches::off}},
             "run the micro-batches of a step as one on a GPU that has the memory: faster, the same but for rounding"),
      boolean("cuda_graphs", &S::cuda_graphs, kOptimization,
              "launch blocks as CUDA graphs on a GPU: the same bits, faster"),
      integer("logging_steps", &S::logging_steps, kOptimization, "STEPS", kCount,
              "steps between two lines of the log; 0: none"),
  };
}

std::vector<std::pair<const char*, S::Interval>> intervals() {
  return {{"no", S::Interval::no}, {"epoch", S::Interval::epoch}, {"steps", S::Interval::steps}};
}

std::vector<Setting> checkpoint_settings() {
  return {
      choice("eval_strategy", &S::eval_strategy, kTrainEvaluation, intervals(),
             "evaluate never, after each epoch, or every --eval-steps (given an --eval-dataset)",
             {"evaluation_strategy"}),
      integer("eval_steps", &S::eval_steps, kTrainEvaluation, "STEPS", kCount, "steps between two evaluations"),
      boolean("eval_before", &S::eval_before, kTrainEvaluation, "evaluate before the first step, too",
              {"eval_on_start"}),
      text(
          "resume", &S::resume, kCheckpoints, "auto|none|PATH",
          "continue from the newest whole checkpoint of the output folder, from none, or from this one (of a folder of "
          "checkpoints the newest); one of another folder begins a new run in --output-dir",
          {"resume_from_checkpoint"}),
      boolean("overwrite", &S::overwrite, kCheckpoints,
              "replace the run in the output folder, if this one does not continue it", {"overwrite_output_dir"}),
      real("owner_timeout", &S::owner_timeout, kCheckpoints, "SECONDS", {.min = 0.1, .max = 1e8},
           "how long a run on another node owns the output folder after its last sign of life"),
      choice("save_strategy", &S::save_strategy, kCheckpoints, intervals(),
             "save a checkpoint never, after each epoch, or every --save-steps"),
      integer("save_steps", &S::save_steps, kCheckpoints, "STEPS", kCount, "steps between two checkpoints"),
      integer("save_total_limit", &S::save_total_limit, kCheckpoints, "N", kCount,
              "keep the newest so many checkpoints, and the best; 0: all"),
      boolean("load_best_model_at_end", &S::load_best_model_at_end, kCheckpoints,
              "end with the best evaluated model, not the last"),
      choice("metric_for_best_model", &S::metric_for_best_model, kCheckpoints,
             {{"eval_loss", S::Metric::eval_loss}, {"exact_match", S::Metric::exact_match}, {"f1", S::Metric::f1}},
             "what makes a model the best"),
      boolean("save_async", &S::save_async, kCheckpoints,
              "copy a checkpoint aside and write it while training goes on"),
      choice("save_dtype", &S::save_dtype, kSavedModel,
             {{"fp32", DType::f32}, {"bf16", DType::bf16}, {"fp16", DType::f16}},
             "type of the weights in a saved model folder"),
  };
}

std::vector<Setting> generation_settings() {
  return {
      integer("eval_batch_size", &S::eval_batch_size, kScoring, "SAMPLES", kPositive, "samples evaluated at a time",
              {"per_device_eval_batch_size"}),
      boolean("eval_generation", &S::eval_generation, kScoring, "generate answers for exact match and F1",
              {"predict_with_generate"}),
      choice("scoring", &S::scoring, kScoring, {{"official", Scoring::official}, {"workshop", Scoring::workshop}},
             "SQuAD's own rules over all references, or the workshop's over the first"),
      integer("max_new_tokens", &S::max_new_tokens, kGeneration, "TOKENS", {1, 1 << 20}, "longest generated text"),
      text("prompt", &S::prompt, kPrompt, "TEXT", "text to go on from, as it is"),
      text("question", &S::question, kQuestion, "TEXT", "a question, put into the prompt of the training data"),
      text("context", &S::context, kQuestion, "TEXT", "the passage that answers the question"),
  };
}

std::vector<Setting> rank_settings() {
  return {
      integer("nproc", &S::nproc, kRanks, "N", {0, 1 << 20},
              "start so many ranks on this machine, or plan for them; 0: as mpirun or srun did, else one",
              {"nproc_per_node", "num_processes"}),
      real("comm_timeout", &S::comm_timeout, kRanks, "SECONDS", {.min = 0, .max = 1e8, .open_min = true},
           "how long a rank waits for another one before the run fails"),
      integer("max_restarts", &S::max_restarts, kRanks, "N", kCount,
              "with --nproc: after a failure start again from the last checkpoint, so many times"),
      real("restart_pause", &S::restart_pause, kRanks, "SECONDS", {.min = 0, .max = 86400},
           "how long to wait before the first restart; each further one waits twice as long, up to 300 s"),
  };
}

std::vector<Setting> machine_settings() {
  return {
      choice("device", &S::device, kMachine,
             {{"auto", S::DeviceChoice::automatic}, {"cpu", S::DeviceChoice::cpu}, {"cuda", S::DeviceChoice::cuda}},
             "where to compute"),
      choice("precision", &S::precision, kMachine,
             {{"fp32", S::Precision::fp32},
              {"tf32", S::Precision::tf32},
              {"fp16", S::Precision::fp16},
              {"bf16", S::Precision::bf16}},
             "type of the arithmetic"),
      integer("threads", &S::threads, kMachine, "N", {0, 4096}, "threads; 0: OMP_NUM_THREADS, else all cores"),
      integer("seed", &S::seed, kMachine, "N", {0, kMaxSeed}, "seed of all random numbers"),
      text("checkpoint", &S::checkpoint, kCheckpoint, "PATH",
           "a folder checkpoint-<step> of a training run, or of all for the newest"),
      text("output_dir", &S::output_dir, kOutputDir, "PATH", "folder of the results"),
      boolean("json", &S::json, kPresentation, "print the result as JSON"),
      choice("progress", &S::progress, kPresentation,
             {{"auto", S::Progress::automatic}, {"on", S::Progress::on}, {"off", S::Progress::off}},
             "a progress bar: on a terminal, always, never"),
  };
}

std::vector<Setting> declare_all() {
  std::vector<Setting> all;
  for (auto* part : {model_settings, data_settings, optimization_settings, checkpoint_settings, generation_settings,
                     rank_settings, sharding_settings, machine_settings, report_settings}) {
    for (auto& setting : part()) all.push_back(std::move(setting));
  }
  return all;
}

}  // namespace

const char* title_of(Group group) {
  switch (group) {
    case kModel:
      return "Model";
    case kShape:
      return "Shape of a new model (gpt)";
    case kText:
      return "Samples";
    case kTrainData:
      return "Training data";
    case kEvalData:
      return "Evaluation data";
    case kOptimization:
      return "Training";
    case kTrainEvaluation:
      return "Evaluation while training";
    case kScoring:
      return "Scoring";
    case kGeneration:
      return "Generation";
    case kQuestion:
      return "Question";
    case kTokenizer:
      return "Tokenizer";
    case kVocabulary:
      return "Vocabulary";
    case kDataset:
      return "Data";
    case kPrompt:
      return "Prompt";
    case kCheckpoint:
      return "Checkpoint";
    case kCheckpoints:
      return "Checkpoints";
    case kSavedModel:
      return "Saved model";
    case kMachine:
      return "Machine";
    case kRanks:
      return "Ranks";
    case kSharding:
      return "Sharding";
    case kGradients:
      return "Gradients";
    case kPlan:
      return "Plan";
    case kLabel:
      return "Label";
    case kReport:
      return "Report";
    case kOutputDir:
      return "Output";
    case kPresentation:
      return "Presentation";
  }
  return "";
}

const std::vector<Setting>& all_settings() {
  static const std::vector<Setting> all = declare_all();
  return all;
}

std::vector<const Setting*> settings_of(Groups groups) {
  std::vector<const Setting*> chosen;
  for (const auto& setting : all_settings()) {
    if (groups & setting.group) chosen.push_back(&setting);
  }
  return chosen;
}

const Setting* find_setting(std::string_view word) {
  for (const auto& setting : all_settings()) {
    if (setting.answers_to(word)) return &setting;
  }
  return nullptr;
}

}  // namespace tessera
