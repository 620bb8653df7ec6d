// Declarations of the model: which one, its shape and its tokenizer.
#include "tessera/base/text.h"
#include "tessera/model/architecture.h"
#include "tessera/settings/declarations/declaring.h"

namespace tessera::declaring {

std::vector<Setting> model_settings() {
  return {
      text("model", &S::model, determines(kTheModel, brief(kModel, "a Hugging Face folder, run folder or shape")),
           "PATH|NAME",
           "Hugging Face folder, output folder of a finished run, checkpoint of a run, or the name of a model in the "
           "cache of the Hugging Face hub (ORG/NAME). With --init random also a config.json or one of: " +
               joined(shape_names(), ", "),
           {"model_name_or_path"}),
      choice("init", &S::init, kWeights, {{"pretrained", S::Init::pretrained}, {"random", S::Init::random}},
             "pretrained: read the model's weights; random: initialize new weights from --seed"),
      boolean("resize_embeddings", &S::resize_embeddings, determines(kTheModel, kWeights),
              "Add rows to the embedding and an untied head if the tokenizer has more tokens than the model. New rows "
              "get the mean of the model's rows",
              {"resize_token_embeddings", "resize_vocab"}),
      text("eos_token", &S::eos_token, recorded(Resume::never, kModel), "TOKEN",
           "The token that ends a text: the text of an added token, or a number, which is always an id; empty: the "
           "token that the files of the model name"),
      text("tokenizer", &S::tokenizer, determines(kTheSamples, kTokenizer), "PATH",
           "tokenizer.json, its folder, or a model as for --model; empty: the model's tokenizer"),
      integer("vocab_size", &S::vocab_size, determines(kTheModel, kVocabulary), "TOKENS", kCount,
              "Size of the vocabulary in tokens; 0: the size of the tokenizer's vocabulary"),
      integer("hidden_size", &S::hidden_size, determines(kTheModel, kShape), "N", kPositive,
              "Width of the hidden states; must be divisible by --num-heads"),
      integer("num_layers", &S::num_layers, determines(kTheModel, kShape), "N", kPositive,
              "Number of transformer blocks"),
      integer("num_heads", &S::num_heads, determines(kTheModel, kShape), "N", kPositive,
              "Number of attention heads in each block"),
      integer("ff_dim", &S::ff_dim, determines(kTheModel, kShape), "N", kPositive,
              "Width of the feed-forward layer in each block"),
      real("dropout", &S::dropout, determines(kTheDropout, kShape, Resume::new_folder), "P", kBelowOne,
           "Dropout probability of hidden activations and attention weights"),
      boolean("tie_word_embeddings", &S::tie_word_embeddings, determines(kTheModel, kShape),
              "Use the embedding as the weight of the head; otherwise the head has its own weight"),
  };
}

}  // namespace tessera::declaring
