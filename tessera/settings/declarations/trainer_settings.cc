// Declares the arguments of the Hugging Face Trainer that set other settings (trainer_words.cc), or are only checked.
// If an argument has the same meaning and the same values as one of Tessera's settings, it is not declared here: it is
// an alias in the declaration of this setting.
#include "tessera/settings/declarations/declaring.h"

namespace tessera::declaring {

std::vector<Setting> trainer_settings() {
  const char* const eight_bits = "The optimizer is AdamW. --optimizer-states 8bit keeps its moments in 8 bits";
  Setting optim =
      with_words(choice("optim", &S::optim, kOptimization, {{"adamw_torch", std::string("adamw_torch")}},
                        "The Trainer's name of the optimizer, which is always AdamW"),
                 {{"adamw_torch_fused", "adamw_torch"},
                  {"adamw_apex_fused", "adamw_torch"},
                  {"adamw_hf", "adamw_torch"},
                  {"adamw", "adamw_torch"}},
                 {{"adamw_8bit", eight_bits},
                  {"adamw_bnb_8bit", eight_bits},
                  {"paged_adamw_8bit",
                   "The optimizer is AdamW. --optimizer-states 8bit keeps its moments in 8 bits, and --offload "
                   "optimizer keeps them in host memory"},
                  {"paged_adamw_32bit", "The optimizer is AdamW. --offload optimizer keeps its states in host memory"},
                  {"paged_adamw", "The optimizer is AdamW. --offload optimizer keeps its states in host memory"}});
  std::vector<Setting> all{
      std::move(optim),
      boolean("gradient_checkpointing", &S::gradient_checkpointing, kOptimization,
              "The Trainer's name for --activation-checkpointing block"),
      text("report_to", &S::report_to, kOptimization, "NAMES", "The Trainer's name for --tracker"),
      text("fsdp_config", &S::fsdp_config, kSharding, "PATH",
           "JSON file of the Trainer's option --fsdp_config. A TOML file may have a table [fsdp_config] instead"),
      text("lr_scheduler_kwargs", &S::lr_scheduler_kwargs, kOptimization, "JSON",
           "The Trainer's parameters of --lr-schedule as a JSON object, such as {\"min_lr\": 1e-6}; the same as "
           "--min-lr, "
           "--min-lr-rate, --lr-num-cycles, --lr-power, --lr-timescale, --num-decay-steps and --decay-type"),
      boolean("fp16", &S::fp16, kMachine, "The Trainer's name for --precision fp16"),
      boolean("bf16", &S::bf16, kMachine, "The Trainer's name for --precision bf16"),
  };
  for (Setting& setting : all) setting.stands_for_others = true;
  return all;
}

}  // namespace tessera::declaring
