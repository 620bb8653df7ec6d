// Declarations of evaluation, scoring and generation.
#include "tessera/settings/declarations/declaring.h"

namespace tessera::declaring {

namespace {

Setting show_loss() {
  Setting setting = integer("show_loss", &S::show_loss,
                            brief(kSpecialTokens, "show samples of --dataset, and their loss"), "SAMPLES", kCount,
                            "Show the first samples of --dataset as training would read them, and mark the tokens that "
                            "carry loss. Without a number: 1");
  setting.bare_value = "1";
  return setting;
}

}  // namespace

std::vector<Setting> generation_settings() {
  return {
      integer("eval_batch_size", &S::eval_batch_size, kEvalBatch, "SAMPLES", kPositive,
              "Samples per evaluation batch on each rank, or prompts per batch of generation",
              {"per_device_eval_batch_size"}),
      boolean("eval_generation", &S::eval_generation,
              determines(kTheEvaluation, brief(kScoring, "generate answers for exact match and F1")),
              "Also generate answers and report exact match and F1", {"predict_with_generate"}),
      choice("scoring", &S::scoring, determines(kTheEvaluation, kScoring),
             {{"official", Scoring::official}, {"workshop", Scoring::workshop}},
             "Rules for exact match and F1. official: the rules of SQuAD 2.0, with the best score over all reference "
             "answers; "
             "workshop: the rules of the workshop of docs/workshop.md, with the first reference answer only"),
      integer("max_new_tokens", &S::max_new_tokens,
              determines(kTheEvaluation, brief(kGeneration, "longest generated text", kQuestion)), "TOKENS",
              {1, 1 << 20}, "Maximum number of tokens to generate per answer or text. The default of chat is 1024"),
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
      list("stop", &S::stop, kSampling, "TEXT...",
           "Strings that end a text. The text is cut before the string, and no part of the string is printed"),
      boolean("special_tokens", &S::special_tokens, kSpecialTokens,
              "Show the tokens that the tokenizer puts before and after a text (BOS, EOS)", {"add_special_tokens"}),
      show_loss(),
      may_be_empty(text("prompt", &S::prompt, brief(kPrompt, "text to continue, used unchanged"), "TEXT",
                        "Text to continue; it is used unchanged")),
      text("question", &S::question, brief(kQuestion, "a question about the context"), "TEXT",
           "Question to answer; it is put into the prompt format of the training data"),
      text("context", &S::context, brief(kQuestion, "the passage that answers the question"), "TEXT",
           "Passage that contains the answer to --question; empty: a question without a context"),
      text("prompts", &S::prompts, brief(kPromptFile, "JSON lines of prompts or questions"), "FILE",
           "JSON lines of {\"prompt\"}, {\"question\"}, {\"question\", \"context\"} or conversations in any format of "
           "--format, with an optional \"id\". The results are JSON lines in the same order"),
      choice("stream", &S::stream, kPromptFile,
             {{"auto", S::Stream::automatic}, {"on", S::Stream::on}, {"off", S::Stream::off}},
             "Print the text of a single prompt token by token. auto: only on a terminal; on: always; off: never"),
  };
}

}  // namespace tessera::declaring
