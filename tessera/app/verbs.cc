#include "tessera/app/verbs.h"

namespace tessera {

// A model to compute with, whether read from a folder or made from flags.
static constexpr Groups kAnyModel = kModel | kTokenizer | kVocabulary | kShape | kMachine;
// All that a training run depends on, and so its plan.
static constexpr Groups kTraining = kAnyModel | kText | kDataset | kTrainData | kEvalData | kOptimization |
                                    kTrainEvaluation | kScoring | kGeneration | kSharding | kGradients | kLabel;

const std::vector<Verb>& all_verbs() {
  static const std::vector<Verb> verbs = {
      {.name = "train",
       .help = "Fine-tune a model, with evaluations and checkpoints",
       .groups = kTraining | kRanks | kCheckpoints | kSavedModel | kOutputDir | kPresentation,
       .required = {"model", "dataset", "output_dir"},
       .run = run_train,
       .runs_as_ranks = true,
       .stops_on_signals = true},
      {.name = "eval",
       .help = "Measure a model on a data set: loss, exact match, F1",
       .groups =
           kAnyModel | kText | kEvalData | kScoring | kGeneration | kRanks | kSharding | kOutputDir | kPresentation,
       .required = {"model", "eval_dataset"},
       .run = run_eval,
       .runs_as_ranks = true},
      {.name = "generate",
       .help = "Answer a question, or continue a prompt",
       .groups = kAnyModel | kGeneration | kQuestion | kPrompt | kSharding | kPresentation,
       .required = {"model"},
       .run = run_generate},
      {.name = "plan",
       .help = "Show the memory of a training run before it starts, or find the fastest one that fits",
       .groups = kTraining | kRanks | kCheckpoints | kSavedModel | kOutputDir | kPlan | kPresentation,
       .required = {"model"},
       .run = run_plan},
      {.name = "report",
       .help = "Compare runs: tables, speed-up, efficiency, memory, and a page with charts",
       .groups = kReport,
       .required = {},
       .operands = "RUN...",
       .run = run_report},
      {.name = "tokenize",
       .help = "Show the token ids of a prompt, or of each line of standard input",
       .groups = kTokenizer | kPrompt | kPresentation,
       .required = {"tokenizer"},
       .run = run_tokenize},
      {.name = "tokenizer train",
       .help = "Make a new vocabulary from the texts of a data set",
       .groups = kDataset | kVocabulary | kOutputDir,
       .required = {"dataset", "vocab_size", "output_dir"},
       .run = run_tokenizer_train},
      {.name = "export",
       .help = "Make a Hugging Face folder from a training checkpoint",
       .groups = kAnyModel | kCheckpoint | kSavedModel | kOutputDir,
       .required = {"model", "checkpoint", "output_dir"},
       .run = run_export},
      {.name = "config",
       .help = "Print the settings of a verb, with where each comes from",
       .groups = kAllGroups,
       .required = {},
       .run = run_config,
       .about_verb = true},
      {.name = "doctor",
       .help = "Show what this machine offers: cores, memory, BLAS, MPI, CUDA, versions",
       .groups = kOutputDir | kPresentation,
       .required = {},
       .run = run_doctor},
  };
  return verbs;
}

}  // namespace tessera
