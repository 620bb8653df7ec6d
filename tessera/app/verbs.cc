#include "tessera/app/verbs.h"

namespace tessera {

// Settings of a model. A model is read from a folder or made from flags.
static constexpr Groups kAnyModel = kModel | kWeights | kTokenizer | kVocabulary | kShape | kMachine;
// Settings that change what a training run computes. `tessera plan` also takes these settings.
static constexpr Groups kTraining = kAnyModel | kText | kDataset | kTrainData | kEvalData | kOptimization |
                                    kTrainEvaluation | kEvalBatch | kScoring | kGeneration | kSharding | kGradients |
                                    kLog;
static constexpr Groups kTrainVerb =
    kTraining | kRanks | kCheckpoints | kSavedModel | kPreflight | kOutputDir | kMemoryLog | kPresentation;

const std::vector<Verb>& all_verbs() {
  static const std::vector<Verb> verbs = {
      {.name = "train",
       .help = "Fine-tune a model, with evaluations and checkpoints",
       .groups = kTrainVerb,
       .example = "tessera train --model models/bloom-560m --dataset train.json --eval-dataset dev.json"
                  " --epochs 3 --output-dir runs/mine",
       .required = {"model", "dataset", "output_dir"},
       .run = run_train,
       .runs_as_ranks = true,
       .stops_on_signals = true},
      {.name = "eval",
       .help = "Measure a model on a data set: loss, exact match, F1",
       .groups = kAnyModel | kText | kEvalData | kEvalBatch | kScoring | kGeneration | kRanks | kSharding | kOutputDir |
                 kLog | kPresentation,
       .example = "tessera eval --model runs/mine --eval-dataset dev.json --eval-generation",
       .required = {"model", "eval_dataset"},
       .run = run_eval,
       .runs_as_ranks = true},
      {.name = "generate",
       .help = "Answer a question, or continue prompts",
       .groups = kAnyModel | kGeneration | kSampling | kQuestion | kPrompt | kPromptFile | kEvalBatch | kRanks |
                 kSharding | kOutputFile | kPresentation,
       .example = "tessera generate --model runs/mine --question \"Where does Ada live?\""
                  " --context \"Ada lives in Oslo.\"",
       .required = {"model"},
       .one_of = {"prompt", "question", "prompts"},
       .run = run_generate,
       .runs_as_ranks = true},
      {.name = "plan",
       .help = "Show the memory of a run; find the fastest run that fits",
       .groups = kTraining | kRanks | kCheckpoints | kSavedModel | kPreflight | kOutputDir | kPlan | kPresentation,
       .example = "tessera plan --model bloom-7b1 --nproc 8 --strategy full_shard --precision bf16",
       .required = {"model"},
       .run = run_plan},
      {.name = "memory",
       .help = "Show peak, mean and mode of logged memory",
       .groups = kMemoryAnalysis,
       .example = "tessera memory runs/mine/memory",
       .required = {},
       .operands = "FOLDER",
       .run = run_memory},
      {.name = "slurm",
       .help = "Write the job files of a training run or a sweep for Slurm",
       .groups = kSlurm,
       .example = "tessera slurm --nodes 2 --gpus-per-node 8 --cpus-per-task 8 --time 24:00:00 run.toml",
       .required = {},
       .run = run_slurm,
       .takes_command = true},
      {.name = "sweep",
       .help = "Start many runs: a matrix of settings, or a folder of recipes",
       .groups = kSweep | kPresentation,
       .example = "tessera sweep sweep.toml --dry-run",
       .required = {},
       .run = run_sweep_verb,
       .own_file = "sweep.toml|FOLDER",
       .run_groups = kTrainVerb},
      {.name = "report",
       .help = "Compare runs in tables and on a page with charts",
       .groups = kReport | kOutputFile,
       .example = "tessera report runs/ --html report.html",
       .required = {},
       .operands = "RUN...",
       .run = run_report},
      {.name = "tokenize",
       .help = "Show token ids of a prompt, or of each line of standard input",
       .groups = kModel | kTokenizer | kSpecialTokens | kPrompt | kPresentation,
       .example = "tessera tokenize --tokenizer models/bloom-560m --prompt \"Ada lives in Oslo.\"",
       .required = {},
       .one_of = {"tokenizer", "model"},
       .run = run_tokenize},
      {.name = "tokenizer train",
       .help = "Make a new vocabulary from the texts of a data set",
       .groups = kDataset | kVocabulary | kOutputDir,
       .example = "tessera tokenizer train --dataset train.json --vocab-size 8000 --output-dir tokenizer",
       .required = {"dataset", "vocab_size", "output_dir"},
       .run = run_tokenizer_train},
      {.name = "export",
       .help = "Make a Hugging Face folder from a training checkpoint",
       .groups = kAnyModel | kCheckpoint | kSavedModel | kOutputDir,
       .example = "tessera export --checkpoint runs/mine/checkpoint-60 --output-dir exported",
       .required = {"output_dir"},
       .one_of = {"checkpoint", "model"},
       .run = run_export},
      {.name = "config",
       .help = "Print the settings of a verb, and where each value comes from",
       .groups = kAllGroups,
       .example = "tessera config train run.toml --lr 1e-4",
       .required = {},
       .run = run_config,
       .about_verb = true},
      {.name = "doctor",
       .help = "Show what this machine has; with ranks, compare nodes",
       .groups = kOutputDir | kRanks | kShared | kPresentation,
       .example = "tessera doctor --nproc 2 --output-dir runs/mine",
       .required = {},
       .run = run_doctor,
       .runs_as_ranks = true,
       .accepts_differences = true},
      {.name = "nettest",
       .help = "Measure the bandwidth between ranks, and check the data",
       .groups = kNettest | kMachine | kRanks | kOutputDir | kPresentation,
       .example = "tessera nettest --nproc 4 --collective all --sizes 8K,1M,64M --min-busbw 1",
       .required = {},
       .run = run_nettest,
       .runs_as_ranks = true},
  };
  return verbs;
}

}  // namespace tessera
