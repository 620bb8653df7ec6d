#include "tessera/settings/settings.h"

#include <fmt/format.h>

#include <cmath>

#include "tessera/base/counted.h"
#include "tessera/engine/engine.h"
#include "tessera/settings/setting_declarations.h"

namespace tessera {

namespace {

using namespace declaring;

std::vector<Setting> model_settings() {
  return {
      text("model", &S::model, brief(kModel, "a Hugging Face folder, run folder or shape"), "PATH|NAME",
           "Hugging Face folder, output folder of a finished run, checkpoint of a run, or the name of a model in the "
           "cache of the Hugging Face hub (ORG/NAME). With --init random also a config.json or one of: "
           "gpt, bloom-560m, bloom-1b1, bloom-1b7, bloom-3b, bloom-7b1, bloom-176b, llama-3.2-1b, llama-3.2-3b, "
           "llama-3.1-8b, llama-3.1-70b, qwen2.5-0.5b, qwen2.5-1.5b, qwen2.5-3b, qwen2.5-7b, qwen2.5-14b, qwen2.5-32b, "
           "qwen2.5-72b, qwen3-0.6b, qwen3-1.7b, qwen3-4b, qwen3-8b, qwen3-14b, qwen3-32b, mistral-7b",
           {"model_name_or_path"}),
      choice("init", &S::init, kWeights, {{"pretrained", S::Init::pretrained}, {"random", S::Init::random}},
             "pretrained: read the model's weights; random: initialize new weights from --seed"),
      boolean("resize_embeddings", &S::resize_embeddings, kWeights,
              "Add rows to the embedding and an untied head if the tokenizer has more tokens than the model. New rows "
              "get the mean of the model's rows",
              {"resize_token_embeddings", "resize_vocab"}),
      text("eos_token", &S::eos_token, kModel, "TOKEN",
           "The token that ends a text: the text of an added token, or a number, which is always an id; empty: the "
           "token "
           "that the files of the model name"),
      text("tokenizer", &S::tokenizer, kTokenizer, "PATH",
           "tokenizer.json, its folder, or a model as for --model; empty: the model's tokenizer"),
      integer("vocab_size", &S::vocab_size, kVocabulary, "TOKENS", kCount,
              "Size of the vocabulary in tokens; 0: the size of the tokenizer's vocabulary"),
      integer("hidden_size", &S::hidden_size, kShape, "N", kPositive,
              "Width of the hidden states; must be divisible by --num-heads"),
      integer("num_layers", &S::num_layers, kShape, "N", kPositive, "Number of transformer blocks"),
      integer("num_heads", &S::num_heads, kShape, "N", kPositive, "Number of attention heads in each block"),
      integer("ff_dim", &S::ff_dim, kShape, "N", kPositive, "Width of the feed-forward layer in each block"),
      real("dropout", &S::dropout, kShape, "P", kBelowOne,
           "Dropout probability of hidden activations and attention weights"),
      boolean("tie_word_embeddings", &S::tie_word_embeddings, kShape,
              "Use the embedding as the weight of the head; otherwise the head has its own weight"),
  };
}

// Marks `setting` (train_size_per_rank) as a setting that only sets another setting, train_size.
Setting per_rank(Setting setting) {
  setting.stands_for_others = true;
  return setting;
}

Setting or_empty(Setting setting) {
  setting.may_be_empty = true;
  return setting;
}

Setting eval_fraction() {
  Setting setting{
      .name = "eval_fraction",
      .group = kTrainData,
      .type = SettingType::text,
      .unit = "FRACTION|none",
      .help =
          "Hold out this fraction of the training rows, drawn with --seed, and evaluate on them. It replaces "
          "--eval-dataset. The rows are held out before --train-size and --eval-size choose rows",
      .get = [](const S& s) { return SettingValue(eval_fraction_text(s.eval_fraction)); },
      .set =
          [](S& s, const SettingValue& value) {
            s.eval_fraction = parse_eval_fraction(std::get<std::string>(value), "");
          }};
  setting.canonical = [](const std::string& text, const std::string& where) {
    return eval_fraction_text(parse_eval_fraction(text, where));
  };
  setting.takes_scalars = true;
  return setting;
}

std::vector<Setting> data_settings() {
  return {
      list("dataset", &S::dataset, brief(kDataset, "files: SQuAD JSON, rows as JSON or JSONL, .txt"), "PATH...",
           "Data files, read in this order: SQuAD JSON, rows (questions, prompts with completions, or plain texts) as "
           "JSON or JSONL, or plain text (.txt)"),
      integer("train_size", &S::train_size, kTrainData, "ROWS", kCount,
              "Number of training rows to use, chosen by --subset; 0: all", {"max_train_samples"}),
      per_rank(integer("train_size_per_rank", &S::train_size_per_rank, kTrainData, "ROWS", kCount,
                       "Training rows per rank: sets --train-size to this number times the number of ranks")),
      choice("subset", &S::subset, kText,
             {{"auto", std::nullopt},
              {"random", RowOrder::random},
              {"first", RowOrder::first},
              {"datasets", RowOrder::datasets}},
             "Which rows --train-size and --eval-size take. random: rows drawn with --seed; first: the first rows; "
             "datasets: the rows that shuffle(seed).select(range(N)) of Hugging Face datasets takes; auto: random, but "
             "with --no-shuffle the first rows of the training data"),
      boolean("shuffle", &S::shuffle, kTrainData, "Draw a new order of the samples for every epoch"),
      eval_fraction(),
      list("eval_dataset", &S::eval_dataset, brief(kEvalData, "files to evaluate on"), "PATH...",
           "Evaluation data: files in the same formats as the training data"),
      integer("eval_size", &S::eval_size, kEvalData, "ROWS", kCount,
              "Number of evaluation rows to use, chosen by --subset; 0: all", {"max_eval_samples"}),
      choice("objective", &S::objective, brief(kText, "completion: answers; causal_lm: all", kOptimization),
             {{"completion", Objective::completion},
              {"causal_lm", Objective::causal_lm},
              {"separate", Objective::separate},
              {"prompt", Objective::prompt}},
             "Which tokens carry loss. completion: the answer; causal_lm: all; separate: the last prompt positions, "
             "with the answer as labels; prompt: the prompt, without the answer. separate and prompt give poor "
             "results; they reproduce the tables of a workshop"),
      boolean("append_eos", &S::append_eos, kText,
              "End each sample with the end-of-sequence token (not with --objective separate)"),
      or_empty(text(
          "unanswerable_text", &S::unanswerable_text, kText, "TEXT",
          "What the model learns to answer to a question without an answer; empty: only the end-of-sequence token. A "
          "generated answer with the same words counts as no answer, and predictions.json has an empty text for it")),
      integer("max_length", &S::max_length, brief(kText, "longest sample"), "TOKENS", {2, kMaxCount},
              "Maximum length of a sample in tokens", {"max_seq_length", "model_max_length"}),
      choice("txt_rows", &S::txt_rows, kText, {{"file", TextRows::file}, {"line", TextRows::line}},
             "What is a text in a .txt file. file: the complete file; line: each line that is not blank"),
      choice("truncation", &S::truncation, kText, {{"context", Truncation::context}, {"right", Truncation::right}},
             "How to shorten a sample that is too long. context: shorten its context (training keeps the part around "
             "the answer, evaluation keeps the beginning); right: cut the end of the sample"),
      choice("long_texts", &S::long_texts, kText,
             {{"split", LongTexts::split}, {"truncate", LongTexts::truncate}, {"skip", LongTexts::skip}},
             "Plain text longer than --max-length. split: make consecutive samples; truncate: keep the beginning; "
             "skip: omit the text"),
      choice("bad_rows", &S::bad_rows, kText, {{"skip", BadRows::skip}, {"stop", BadRows::stop}},
             "Malformed rows, and rows whose question and answer exceed --max-length. skip: report and skip them; "
             "stop: reject the data set"),
      real("max_bad_rows", &S::max_bad_rows, kText, "FRACTION", kUnitInterval,
           "Maximum fraction of the rows that may be skipped as bad; more bad rows are an error"),
  };
}

Setting max_steps() {
  Setting setting = integer("max_steps", &S::max_steps, kOptimization, "STEPS", {-1, kMaxCount},
                            "Total number of optimizer steps; replaces --epochs; 0 or -1: use --epochs");
  setting.set = [](S& s, const SettingValue& value) { s.max_steps = std::max<int64_t>(0, std::get<int64_t>(value)); };
  return setting;
}

Setting activation_checkpointing() {
  Setting setting{
      .name = "activation_checkpointing",
      .group = kOptimization,
      .type = SettingType::text,
      .unit = "none|block|N",
      .help =
          "Blocks that keep only their input, and compute their activations again in the backward pass: none, block "
          "(all blocks), or the first N blocks. More such blocks need less memory, but more time. The losses have the "
          "same bits",
      .get = [](const S& s) { return SettingValue(checkpointing_text(s.activation_checkpointing)); },
      .set =
          [](S& s, const SettingValue& value) {
            s.activation_checkpointing = parse_checkpointing(std::get<std::string>(value), "");
          }};
  setting.canonical = [](const std::string& text, const std::string& where) {
    return checkpointing_text(parse_checkpointing(text, where));
  };
  setting.takes_scalars = true;
  return setting;
}

std::vector<Setting> optimization_settings() {
  return {
      text("experiment", &S::experiment, kOptimization, "NAME", "A label of the run, stored in summary.json",
           {"run_name"}),
      integer("batch_size", &S::batch_size, brief(kOptimization, "samples per micro-batch and rank"), "SAMPLES", kCount,
              "Samples per micro-batch on each rank; 0: --batch-tokens decides", {"per_device_train_batch_size"}),
      integer("batch_tokens", &S::batch_tokens,
              brief(kOptimization, "or: maximum number of tokens per micro-batch and rank"), "TOKENS",
              {0, kMaxBatchTokens},
              "Fill a micro-batch with complete samples up to this number of tokens, instead of --batch-size; at least "
              "--max-length; 0: use --batch-size"),
      integer("grad_accum", &S::grad_accum, brief(kOptimization, "micro-batches per step"), "N", kPositive,
              "Micro-batches per optimizer step (gradient accumulation)", {"gradient_accumulation_steps"}),
      real("epochs", &S::epochs, brief(kOptimization, "passes over the data set"), "EPOCHS",
           {.min = 0, .max = 1e9, .open_min = true}, "Number of passes over the training data",
           {"num_train_epochs", "num_epochs"}),
      max_steps(),
      real("lr", &S::lr, brief(kOptimization, "highest learning rate"), "RATE", kNonNegativeReal, "Peak learning rate",
           {"learning_rate"}),
      real("weight_decay", &S::weight_decay, kOptimization, "RATE", kNonNegativeReal,
           "Decoupled weight decay (AdamW) of all parameters except biases and norms"),
      text("freeze", &S::freeze, kOptimization, "PATTERN,...",
           "Do not train the tensors with these names: patterns with * ? [...], such as 'word_embeddings*,h.0.*' "
           "(names as in the model's files). Frozen tensors have no gradients and no optimizer states"),
      real("beta1", &S::beta1, kOptimization, "X", kBelowOne, "AdamW: decay rate of the first moment", {"adam_beta1"}),
      real("beta2", &S::beta2, kOptimization, "X", kBelowOne, "AdamW: decay rate of the second moment", {"adam_beta2"}),
      real("adam_epsilon", &S::adam_epsilon, kOptimization, "X", {.min = 0, .open_min = true},
           "AdamW: constant added to the denominator"),
      real("max_grad_norm", &S::max_grad_norm, kOptimization, "NORM", kNonNegativeReal,
           "Clip gradients to this global norm; 0: no clipping"),
      integer("max_skipped_updates", &S::max_skipped_updates, kOptimization, "N", kCount,
              "Stop the run after this many consecutive updates with NaN or infinite loss or gradients; 0: never. "
              "Updates skipped by the search for fp16's loss scale do not count"),
      boolean("stop_on_divergence", &S::stop_on_divergence, kOptimization,
              "End the run with an error when its loss is hopeless: for many steps far above the first loss and the "
              "loss of random guesses. Otherwise, only print a warning"),
      choice(
          "optimizer_states", &S::optimizer_states, kOptimization,
          {{"fp32", S::OptimizerStates::fp32}, {"bf16", S::OptimizerStates::bf16}},
          "What AdamW keeps for each parameter. fp32: two fp32 moments and an fp32 master weight (12 bytes together); "
          "bf16, only with --precision bf16: two bf16 moments and the bf16 weight, without a master weight (6 bytes "
          "together). AdamW then rounds all three stochastically"),
      activation_checkpointing(),
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

std::vector<std::pair<const char*, S::Interval>> intervals() {
  return {{"no", S::Interval::no}, {"epoch", S::Interval::epoch}, {"steps", S::Interval::steps}};
}

// The Trainer's True and False, and Python's None, in any case: `auto` or `none`.
Setting resume() {
  Setting setting =
      text("resume", &S::resume, kCheckpoints, "auto|none|PATH",
           "auto or true: continue from the newest complete checkpoint in --output-dir; none or false: "
           "begin a new run; PATH: continue from this checkpoint, or from the newest checkpoint in this "
           "folder. If PATH is outside --output-dir, the run in --output-dir is a new run, and the run of "
           "PATH is not changed",
           {"resume_from_checkpoint"});
  setting.canonical = [](const std::string& given, const std::string& where) -> std::string {
    if (given.empty()) throw UsageError(where, "is empty", "Give a value, or leave it out: the default is \"auto\"");
    const std::string word = lower(given);
    return word == "auto" || word == "true" ? "auto" : word == "none" || word == "false" ? "none" : given;
  };
  setting.takes_scalars = true;
  return setting;
}

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
      resume(),
      boolean("overwrite", &S::overwrite, kCheckpoints,
              "Replace the run in --output-dir if the new run does not continue it", {"overwrite_output_dir"}),
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
      boolean("load_best_model_at_end", &S::load_best_model_at_end, kCheckpoints,
              "End with the best evaluated model instead of the last one"),
      with_words(
          choice("metric_for_best_model", &S::metric_for_best_model, kCheckpoints,
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
  };
}

std::vector<Setting> generation_settings() {
  return {
      integer("eval_batch_size", &S::eval_batch_size, kEvalBatch, "SAMPLES", kPositive,
              "Samples per evaluation batch on each rank, or prompts per batch of generation",
              {"per_device_eval_batch_size"}),
      boolean("eval_generation", &S::eval_generation, brief(kScoring, "generate answers for exact match and F1"),
              "Also generate answers and report exact match and F1", {"predict_with_generate"}),
      choice("scoring", &S::scoring, kScoring, {{"official", Scoring::official}, {"workshop", Scoring::workshop}},
             "Rules for exact match and F1. official: the rules of SQuAD 2.0, with the best score over all reference "
             "answers; "
             "workshop: the rules of the workshop of docs/workshop.md, with the first reference answer only"),
      integer("max_new_tokens", &S::max_new_tokens, brief(kGeneration, "longest generated text", kQuestion), "TOKENS",
              {1, 1 << 20}, "Maximum number of tokens to generate per answer or text"),
      boolean("do_sample", &S::do_sample, brief(kSampling, "draw tokens at random, not the likeliest"),
              "Draw each token at random, by its probability. --temperature, --top-k and --top-p also turn this on. "
              "Values that are not given come from the model's generation_config.json. By default, the most likely "
              "token is taken",
              {"sample"}),
      real("temperature", &S::temperature, kSampling, "T", {.min = 0, .max = 1e6},
           "Divide the logits by this number before a token is drawn; 0: take the most likely token"),
      integer("top_k", &S::top_k, kSampling, "K", kCount,
              "Draw from the K most likely tokens. Tokens that are as likely as the K-th one are also included. "
              "0: all tokens"),
      real("top_p", &S::top_p, kSampling, "P", kUnitInterval,
           "Draw from the most likely tokens whose probabilities sum to at least P, after --top-k; 1: all tokens"),
      boolean("special_tokens", &S::special_tokens, kSpecialTokens,
              "Show the tokens that the tokenizer puts before and after a text (BOS, EOS)", {"add_special_tokens"}),
      or_empty(text("prompt", &S::prompt, brief(kPrompt, "text to continue, used unchanged"), "TEXT",
                    "Text to continue; it is used unchanged")),
      text("question", &S::question, brief(kQuestion, "a question about the context"), "TEXT",
           "Question to answer; it is put into the prompt format of the training data"),
      text("context", &S::context, brief(kQuestion, "the passage that answers the question"), "TEXT",
           "Passage that contains the answer to --question; empty: a question without a context"),
      text("prompts", &S::prompts, brief(kPromptFile, "JSON lines of prompts or questions"), "FILE",
           "JSON lines of {\"prompt\"}, {\"question\"} or {\"question\", \"context\"}, with an optional \"id\". The "
           "results are JSON lines in the same order"),
      choice("stream", &S::stream, kPromptFile,
             {{"auto", S::Stream::automatic}, {"on", S::Stream::on}, {"off", S::Stream::off}},
             "Print the text of a single prompt token by token. auto: only on a terminal; on: always; off: never"),
  };
}

std::vector<Setting> rank_settings() {
  return {
      integer("nproc", &S::nproc, brief(kRanks, "ranks to start on this machine, or to plan for"), "N", {0, 1 << 20},
              "Number of ranks to start on this machine, or to plan for; 0: the ranks of mpirun or srun, otherwise 1",
              {"nproc_per_node", "num_processes"}),
      real("comm_timeout", &S::comm_timeout, kRanks, "SECONDS", {.min = 0, .max = 1e8, .open_min = true},
           "Seconds that a rank waits for another rank before the run fails", {"ddp_timeout"}),
      integer("max_restarts", &S::max_restarts, kRanks, "N", kCount,
              "With --nproc: maximum number of restarts from the last checkpoint after a failure"),
      real("restart_pause", &S::restart_pause, kRanks, "SECONDS", {.min = 0, .max = 86400},
           "Seconds before the first restart; each further restart waits twice as long, up to 300 s"),
  };
}

std::vector<Setting> machine_settings() {
  return {
      integer("threads", &S::threads, kMachine, "N", {0, 4096},
              "CPU threads of each rank; 0: OMP_NUM_THREADS, otherwise the cores divided among the ranks"),
      integer("seed", &S::seed, kMachine, "N", {0, kMaxSeed}, "Seed of all random numbers"),
      text("checkpoint", &S::checkpoint, brief(kCheckpoint, "folder checkpoint-<step>, or a run folder"), "PATH",
           "Checkpoint folder (checkpoint-<step>), or a folder of checkpoints, whose newest one is read; empty: "
           "--model names it"),
      text("output_dir", &S::output_dir, brief(kOutputDir, "folder for the results"), "PATH", "Folder for the results"),
      text("output", &S::output, kOutputFile, "FILE", "Write the result to this file; empty: standard output"),
      boolean("json", &S::json, brief(kPresentation, "print the result as JSON", kQuestion | kPlan),
              "Print the result as JSON"),
      choice("progress", &S::progress, kPresentation,
             {{"auto", S::Progress::automatic}, {"on", S::Progress::on}, {"off", S::Progress::off}},
             "Progress bar. auto: only on a terminal; on: always; off: never"),
      choice("log_format", &S::log_format, kLog,
             {{"auto", S::LogFormat::automatic}, {"trainer", S::LogFormat::trainer}, {"json", S::LogFormat::json}},
             "Lines with losses, scores and speeds. trainer: dicts as the Hugging Face Trainer prints them; json: the "
             "same records, each as one line of JSON; auto: like trainer, but with rounded values on a terminal"),
  };
}

std::vector<Setting> declare_all() {
  std::vector<Setting> all;
  for (auto* part :
       {model_settings, data_settings, optimization_settings, schedule_settings, checkpoint_settings,
        generation_settings, rank_settings, sharding_settings, nettest_settings, device_settings, machine_settings,
        memory_log_settings, report_settings, slurm_settings, sweep_settings, tracker_settings, trainer_settings}) {
    for (auto& setting : part()) all.push_back(std::move(setting));
  }
  // Settings of a group become adjacent. The groups are in the order of their first settings.
  std::vector<Group> order;
  for (const Setting& setting : all) {
    if (std::ranges::find(order, setting.group) == order.end()) order.push_back(setting.group);
  }
  std::ranges::stable_sort(all, {}, [&](const Setting& setting) { return std::ranges::find(order, setting.group); });
  return all;
}

}  // namespace

const char* title_of(Group group) {
  switch (group) {
    case kModel:
      return "Model";
    case kWeights:
      return "Initial weights";
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
    case kSpecialTokens:
      return "Tokens";
    case kSampling:
      return "Sampling";
    case kPromptFile:
      return "Prompts";
    case kEvalBatch:
      return "Batches without training";
    case kLog:
      return "Log";
    case kOutputFile:
      return "Output file";
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
    case kNettest:
      return "Network test";
    case kPreflight:
      return "Checks before the run";
    case kShared:
      return "Shared folders";
    case kMemoryLog:
      return "Memory over time";
    case kMemoryAnalysis:
      return "Logs";
    case kSlurm:
      return "Slurm job";
    case kSweep:
      return "Sweep";
    case kReport:
      return "Report";
    case kOutputDir:
      return "Output";
    case kPresentation:
      return "Presentation";
  }
  return "";
}

int64_t StepCount::of(int64_t all_steps) const {
  return fraction > 0 ? static_cast<int64_t>(std::ceil(static_cast<double>(all_steps) * fraction)) : steps;
}

std::string Settings::batch_words() const {
  return batch_tokens > 0
             ? fmt::format("up to {} x {} tokens", batch_tokens, grad_accum)
             : fmt::format("{} x {} {}", batch_size, grad_accum, noun_for(batch_size * grad_accum, "sample"));
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

const Setting* find_setting_with_choice(std::string_view word, Groups groups) {
  const Setting* found = nullptr;
  for (const Setting* setting : settings_of(groups)) {
    if (std::ranges::find(setting->choices, underscored(word)) == setting->choices.end()) continue;
    if (!found || (found->brief_for != kAllGroups && setting->brief_for == kAllGroups)) found = setting;
  }
  return found;
}

}  // namespace tessera
