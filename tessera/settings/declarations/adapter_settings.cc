// Declarations of adapters.
#include "tessera/settings/declarations/declaring.h"

namespace tessera::declaring {

std::vector<Setting> adapter_settings() {
  const Role role = determines(kTheModel, kAdapter);
  return {
      choice(
          "adapter", &S::adapter, determines(kTheModel, brief(kAdapter, "train an adapter: lora")),
          {{"none", S::Adapter::none}, {"lora", S::Adapter::lora}},
          "lora: keep the weights of the model, and train low-rank factors beside its linear layers. The saved model "
          "is a folder for PEFT. none: train the model itself"),
      with_flag("adapter",
                list("init_adapter", &S::init_adapter,
                     determines(kTheModel, brief(kInitAdapter, "an adapter to apply to the model", kSampling | kMerge)),
                     "FOLDER",
                     "An adapter in PEFT's format, or the output folder of a run that trained one. Training "
                     "with --adapter lora continues it. eval and generate apply several adapters one after the other")),
      choice("base_dtype", &S::base_dtype, determines(kTheModel, kInitAdapter),
             {{"auto", S::BaseDtype::automatic}, {"nf4", S::BaseDtype::nf4}},
             "nf4: keep the linear layers of the blocks in 4 bits, and quantize them while the model is read (QLoRA). "
             "auto: keep them as the model's folder has them, in 4 bits or in the type of --precision"),
      integer("lora_r", &S::lora_r, role, "R", {1, kMaxAdapterRank},
              "Rank of the factors: A is [R, inputs] and B is [outputs, R]", {"lora_rank"}),
      real("lora_alpha", &S::lora_alpha, role, "ALPHA", {.min = 0, .max = 1e6},
           "The product B A is multiplied by ALPHA / R"),
      real("lora_dropout", &S::lora_dropout, role, "P", kBelowOne, "Dropout probability of the inputs of A"),
      boolean("use_rslora", &S::use_rslora, role, "Multiply B A by ALPHA / √R instead (rank-stabilized LoRA)"),
      list("lora_target_modules", &S::lora_target_modules, role, "NAME...",
           "Layers with an adapter: names such as q_proj, or regular expressions that match a path or its end after a "
           "dot. all-linear, the default: all linear layers except the head"),
      list("lora_exclude_modules", &S::lora_exclude_modules, role, "NAME...",
           "Layers without an adapter, although --lora-target-modules names them"),
      list("lora_layers", &S::lora_layers, role, "N...",
           "Only blocks with these numbers get adapters, such as 0 1 2 or 24-31; empty: all blocks"),
      list("lora_rank_pattern", &S::lora_rank_pattern, role, "NAME=R...",
           "Ranks of single layers, such as down_proj=64. If several names match, the first one in "
           "alphabetical order counts"),
      list("lora_alpha_pattern", &S::lora_alpha_pattern, role, "NAME=ALPHA...",
           "Values of --lora-alpha for single layers, such as down_proj=128"),
      list("modules_to_save", &S::modules_to_save, role, "NAME...",
           "Modules that are trained whole and saved with the adapter, such as embed_tokens lm_head"),
      choice("lora_bias", &S::lora_bias, role,
             {{"none", AdaptedBiases::none}, {"all", AdaptedBiases::all}, {"lora_only", AdaptedBiases::lora_only}},
             "Biases of the model that are trained with the adapter: none, all, or those of adapted layers"),
      boolean("merge", &S::merge, kMerge,
              "Add the adapter to the weights of the model, and write a complete model folder"),
  };
}

}  // namespace tessera::declaring
