// Declarations of the data, and of how rows become samples.
#include "tessera/data/row_formats.h"
#include "tessera/settings/declarations/declaring.h"

namespace tessera::declaring {

std::vector<Setting> data_settings() {
  return {
      list("dataset", &S::dataset,
           determines(kTheSamples, brief(kDataset, "files: SQuAD JSON, rows as JSON or JSONL, .txt")), "PATH...",
           "Data files, read in this order: SQuAD JSON, rows (questions, prompts with completions, conversations, or "
           "plain texts) as JSON or JSONL, or plain text (.txt). With shares, as in a.jsonl:2 b.jsonl:1, an epoch has "
           "the rows of the files in these proportions: files are repeated until every row is used"),
      integer("train_size", &S::train_size, determines(kTheSamples, kTrainData), "ROWS", kCount,
              "Number of training rows to use, chosen by --subset; 0: all", {"max_train_samples"}),
      for_others(integer("train_size_per_rank", &S::train_size_per_rank, kTrainData, "ROWS", kCount,
                         "Training rows per rank: sets --train-size to this number times the number of ranks")),
      choice("subset", &S::subset, determines(kTheSamples, kText),
             {{"auto", std::nullopt},
              {"random", RowOrder::random},
              {"first", RowOrder::first},
              {"datasets", RowOrder::datasets}},
             "Which rows --train-size and --eval-size take. random: rows drawn with --seed; first: the first rows; "
             "datasets: the rows that shuffle(seed).select(range(N)) of Hugging Face datasets takes; auto: random, but "
             "with --no-shuffle the first rows of the training data"),
      boolean("shuffle", &S::shuffle, recorded(Resume::never, kTrainData),
              "Draw a new order of the samples for every epoch"),
      takes_scalars(
          parsed("eval_fraction", &S::eval_fraction, determines(kTheSamples, kTrainData), "FRACTION|none",
                 "Hold out this fraction of the training rows, drawn with --seed, and evaluate on them. It replaces "
                 "--eval-dataset. The rows are held out before --train-size and --eval-size choose rows",
                 parse_eval_fraction, eval_fraction_text)),
      text(
          "data_cache", &S::data_cache, kTrainData, "auto|off|DIR",
          "Tokenize the --dataset once into files below this folder, and read each sample from there when a step needs "
          "it, so that the data need little memory. auto: if the files have 1 GiB or more, below "
          "$XDG_CACHE_HOME/tessera/data or ~/.cache/tessera/data; off: keep the samples in memory. Not with "
          "--eval-fraction"),
      list("eval_dataset", &S::eval_dataset, determines(kTheEvaluation, brief(kEvalData, "files to evaluate on")),
           "PATH...", "Evaluation data: files in the same formats as the training data"),
      integer("eval_size", &S::eval_size, determines(kTheEvaluation, kEvalData), "ROWS", kCount,
              "Number of evaluation rows to use, chosen by --subset; 0: all", {"max_eval_samples"}),
      choice("objective", &S::objective,
             recorded(Resume::never, brief(kText, "completion: answers; causal_lm: all", kOptimization)),
             {{"completion", Objective::completion},
              {"causal_lm", Objective::causal_lm},
              {"separate", Objective::separate},
              {"prompt", Objective::prompt}},
             "Which tokens carry loss. completion: the answer; causal_lm: all; separate: the last prompt positions, "
             "with the answer as labels; prompt: the prompt, without the answer. separate and prompt give poor "
             "results; they reproduce the tables of a workshop"),
      boolean("append_eos", &S::append_eos, determines(kTheSamples, kText),
              "End each sample with the end-of-sequence token (not with --objective separate)"),
      may_be_empty(text(
          "unanswerable_text", &S::unanswerable_text, recorded(Resume::never, kText), "TEXT",
          "What the model learns to answer to a question without an answer; empty: only the end-of-sequence token. A "
          "generated answer with the same words counts as no answer, and predictions.json has an empty text for it")),
      integer("max_length", &S::max_length, recorded(Resume::never, brief(kText, "longest sample")), "TOKENS",
              {2, kMaxCount}, "Maximum length of a sample in tokens", {"max_seq_length", "model_max_length"}),
      with_flag(
          "format",
          choice("dataset_format", &S::dataset_format, determines(kTheSamples, kRows), row_kinds(),
                 "Format of the rows; a row of another format is a bad row. messages: {messages: [{role, content}]}; "
                 "sharegpt: {conversations: [{from, value}]}; alpaca: {instruction, input, output}; completion: "
                 "{prompt, completion}; text: {text}; question: {question, context, answers}; auto: the keys of each "
                 "row decide")),
      parsed("fields", &S::fields, determines(kTheSamples, kRows), "FIELD=KEY[,...]",
             "Keys of the rows that differ from the names of their fields, as in messages=dialog,role=speaker",
             parse_fields, [](const FieldNames& fields) { return fields.text(); }),
      choice("txt_rows", &S::txt_rows, determines(kTheSamples, kText),
             {{"file", TextRows::file}, {"line", TextRows::line}},
             "What is a text in a .txt file. file: the complete file; line: each line that is not blank"),
      choice("truncation", &S::truncation, recorded(Resume::never, kText),
             {{"context", Truncation::context}, {"right", Truncation::right}},
             "How to shorten a sample that is too long. context: shorten its context (training keeps the part around "
             "the answer, evaluation keeps the beginning); right: cut the end of the sample"),
      choice("long_texts", &S::long_texts, determines(kTheSamples, kText),
             {{"split", LongTexts::split}, {"truncate", LongTexts::truncate}, {"skip", LongTexts::skip}},
             "Plain text longer than --max-length. split: make consecutive samples; truncate: keep the beginning; "
             "skip: omit the text"),
      choice("bad_rows", &S::bad_rows, determines(kTheSamples, kText),
             {{"skip", BadRows::skip}, {"stop", BadRows::stop}},
             "Malformed rows, and rows whose question and answer exceed --max-length. skip: report and skip them; "
             "stop: reject the data set"),
      real("max_bad_rows", &S::max_bad_rows, kText, "FRACTION", kUnitInterval,
           "Maximum fraction of the rows that may be skipped as bad; more bad rows are an error"),
  };
}

}  // namespace tessera::declaring
