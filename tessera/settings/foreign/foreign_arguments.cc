#include "tessera/settings/foreign/foreign_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "tessera/base/error.h"
#include "tessera/settings/setting.h"
#include "tessera/settings/setting_words.h"

namespace tessera {

namespace {

constexpr const char* kLora = "Write --adapter lora";
constexpr const char* kNf4 = "Write --base-dtype nf4, which has double quantization, with --adapter lora";
constexpr const char* kNoInt8 = "Write --base-dtype nf4 to keep the model in 4 bits. 8 bits are not supported";
constexpr const char* kComputes = "Remove it: --precision is the type of the computation";
constexpr const char* kNoHub = "Tessera writes only to --output-dir. hf upload sends the folder model there to the Hub";
constexpr const char* kCompiled = "Tessera has fused kernels and CUDA graphs, and needs no compiler at run time";
constexpr const char* kFlash = "Attention always runs in blocks without a score matrix, as in FlashAttention";
constexpr const char* kPacked = "Remove it: a micro-batch always has its samples one after the other, without padding";
constexpr const char* kOneLog = "Tessera has one log. See --logging-steps and --progress";
constexpr const char* kReads = "Tessera reads and tokenizes all data before the first step, with --threads";
constexpr const char* kDdp = "Tessera has its own data parallelism. See --strategy";
constexpr const char* kHubFolder =
    "Tessera reads local folders. Download first: hf download ORG/NAME --local-dir FOLDER";

// The arguments of transformers.TrainingArguments come first, in its order, then older names, then other programs.
constexpr ForeignArgument kArguments[] = {
    {"optim_args", false, "", "The optimizer is AdamW. See --beta1, --beta2 and --adam-epsilon"},
    {"optim_target_modules", false, "", "GaLore and APOLLO are not supported. --freeze trains only some tensors"},
    {"average_tokens_across_devices", true, "true", "The loss is always the mean over the targets of all ranks"},
    {"label_smoothing_factor", false, "0 0.0", "Label smoothing is not supported. Remove the argument"},
    {"bf16_full_eval", true, "false", "Evaluation computes in --precision"},
    {"fp16_full_eval", true, "false", "Evaluation computes in --precision"},
    {"tf32", true, "false", "Write --precision tf32, or only --precision bf16: its products use no fp32"},
    {"activation_checkpointing_kwargs", false, "*", "See --activation-checkpointing"},
    {"gradient_checkpointing_kwargs", false, "*", "See --activation-checkpointing"},
    {"torch_compile", true, "false", kCompiled},
    {"torch_compile_backend", false, "", kCompiled},
    {"torch_compile_mode", false, "", kCompiled},
    {"use_liger_kernel", true, "false", kCompiled},
    {"liger_kernel_config", false, "", kCompiled},
    {"use_cache", true, "*", "Only generation has a cache"},
    {"neftune_noise_alpha", false, "none 0", "NEFTune is not supported. Remove the argument"},
    {"torch_empty_cache_steps", false, "*", "All memory is planned before the run. See tessera plan"},
    {"auto_find_batch_size", true, "false", "tessera plan --fit finds the batch size that fits"},
    {"logging_strategy", false, "steps",
     "Write --logging-steps with a number or a fraction of all steps, or 0 for no log"},
    {"logging_first_step", true, "false", "Write --logging-steps 1, which logs every step"},
    {"log_on_each_node", true, "*", "Only the first rank prints"},
    {"logging_nan_inf_filter", true, "*", "Means of losses leave out NaN and infinity"},
    {"include_num_input_tokens_seen", false, "*", "metrics.jsonl has the number of tokens of each step"},
    {"log_level", false, "*", kOneLog},
    {"log_level_replica", false, "*", kOneLog},
    {"disable_tqdm", true, "", "Write --progress off or --progress on"},
    {"project", false, "*", "See --tracker"},
    {"trackio_space_id", false, "none", "Trackio is not supported. See --tracker"},
    {"trackio_bucket_id", false, "none", "Trackio is not supported. See --tracker"},
    {"trackio_static_space_id", false, "none false", "Trackio is not supported. See --tracker"},
    {"eval_delay", false, "0 0.0", "Evaluations begin with the first interval. See --eval-strategy"},
    {"prediction_loss_only", true, "*", "Evaluation computes the loss, and answers with --eval-generation"},
    {"eval_do_concat_batches", true, "*", "Evaluation keeps only sums"},
    {"eval_use_gather_object", true, "*", "Evaluation keeps only sums"},
    {"eval_accumulation_steps", false, "*", "Evaluation keeps only sums"},
    {"include_for_metrics", false, "*", "The metrics are the loss, and with --eval-generation exact match and F1"},
    {"batch_eval_metrics", true, "*", "Evaluation keeps only sums"},
    {"save_only_model", true, "false",
     "Checkpoints always have the optimizer. With --save-strategy no, only the model is saved"},
    {"save_on_each_node", true, "false", "All ranks write to one --output-dir"},
    {"enable_jit_checkpoint", true, "*", "A signal always makes the run save a checkpoint and stop"},
    {"push_to_hub", true, "false", kNoHub},
    {"hub_token", false, "*", kNoHub},
    {"hub_private_repo", true, "*", kNoHub},
    {"hub_model_id", false, "*", kNoHub},
    {"hub_strategy", false, "*", kNoHub},
    {"hub_always_push", true, "false", kNoHub},
    {"hub_revision", false, "*", kNoHub},
    {"greater_is_better", true, "", "Remove it: a lower eval_loss is better, and a higher exact_match or f1"},
    {"ignore_data_skip", true, "false", "A resumed run continues with the next sample, and reads no sample twice"},
    {"restore_callback_states_from_checkpoint", true, "*", "A checkpoint has the complete state of the run"},
    {"full_determinism", true, "*", "Results are always deterministic"},
    {"data_seed", false, "", "Write --seed, the seed of all random numbers"},
    {"use_cpu", true, "false", "Write --device cpu"},
    {"accelerator_config", false, "*", "Every rank has its own samples of a step, and none is dropped or repeated"},
    {"parallelism_config", false, "", "Tessera shards data and states. See --strategy"},
    {"dataloader_drop_last", true, "false", "No sample is dropped"},
    {"dataloader_num_workers", false, "*", kReads},
    {"dataloader_pin_memory", true, "*", kReads},
    {"dataloader_persistent_workers", true, "*", kReads},
    {"dataloader_prefetch_factor", false, "*", kReads},
    {"dataloader_multiprocessing_context", false, "*", kReads},
    {"dataloader_in_order", true, "*", kReads},
    {"remove_unused_columns", true, "*", "Tessera reads only the columns that it knows"},
    {"label_names", false, "", "--objective decides which tokens have a loss"},
    {"train_sampling_strategy", false, "random",
     "Samples come in random order, or with --no-shuffle in the order of the file"},
    {"length_column_name", false, "*", kPacked},
    {"ddp_find_unused_parameters", true, "*", kDdp},
    {"ddp_bucket_cap_mb", false, "", "Write --reduce-bucket-size, for example 25MiB"},
    {"ddp_broadcast_buffers", true, "*", "The models have no buffers"},
    {"ddp_static_graph", true, "*", kDdp},
    {"ddp_backend", false, "nccl mpi", "GPUs use NCCL, and CPU ranks use MPI"},
    {"debug", false, "[]", "--max-skipped-updates ends a run with NaN or infinite gradients"},
    {"skip_memory_metrics", true, "*", "summary.json has the memory of the run. See also --memory-log"},
    {"do_train", true, "true", "tessera train trains, and tessera eval evaluates"},
    {"do_eval", true, "*", "--eval-dataset and --eval-strategy decide when training evaluates"},
    {"do_predict", true, "false", "Write tessera eval --eval-generation"},
    {"local_rank", false, "-1", "Start several ranks with --nproc, torchrun, mpirun or srun"},
    // older names of transformers
    {"no_cuda", true, "false", "Write --device cpu"},
    {"use_mps_device", true, "false", "Tessera computes on CPUs and NVIDIA GPUs. See --device"},
    {"save_safetensors", true, "true", "Weights are always saved as safetensors"},
    {"group_by_length", true, "false", kPacked},
    {"half_precision_backend", false, "*", "See --precision"},
    {"fp16_backend", false, "*", "See --precision"},
    {"fp16_opt_level", false, "*", "See --precision"},
    {"jit_mode_eval", true, "false", kCompiled},
    {"use_ipex", true, "false", kCompiled},
    {"torchdynamo", false, "", kCompiled},
    {"past_index", false, "-1", "The models have no past state in training"},
    {"mp_parameters", false, "", kDdp},
    {"ray_scope", false, "*", "tessera sweep starts many runs"},
    {"include_inputs_for_metrics", true, "*", "Evaluation keeps only sums"},
    {"include_tokens_per_second", true, "*", "metrics.jsonl and summary.json have the speed"},
    {"split_batches", true, "false", "--batch-size counts the samples of one rank"},
    {"fsdp_transformer_layer_cls_to_wrap", false, "*", "Every block is a unit"},
    {"fsdp_min_num_params", false, "*", "Every block is a unit"},
    {"push_to_hub_model_id", false, "", kNoHub},
    {"push_to_hub_organization", false, "", kNoHub},
    {"push_to_hub_token", false, "", kNoHub},
    // the model's arguments of scripts
    {"torch_dtype", false, "auto", "Write --precision. AdamW keeps fp32 masters, also with bf16"},
    {"dtype", false, "auto", "Write --precision. AdamW keeps fp32 masters, also with bf16"},
    {"attn_implementation", false, "", kFlash},
    {"flash_attn", true, "", kFlash},
    {"flash_attention", true, "", kFlash},
    {"use_flash_attn", true, "", kFlash},
    {"use_flash_attention_2", true, "", kFlash},
    {"config_name", false, "", "Write --model with the config.json, and --init random"},
    {"tokenizer_name", false, "", "Write --tokenizer"},
    {"tokenizer_name_or_path", false, "", "Write --tokenizer"},
    {"use_fast_tokenizer", true, "true", "Tessera reads tokenizer.json, the fast tokenizer"},
    {"model_revision", false, "main", kHubFolder},
    {"cache_dir", false, "", kHubFolder},
    {"token", false, "", kHubFolder},
    {"use_auth_token", true, "false", kHubFolder},
    {"trust_remote_code", true, "*", "Tessera runs no code of a model's folder"},
    {"low_cpu_mem_usage", true, "*", "No rank reads more than it needs"},
    // the data's arguments of scripts
    {"dataset_name", false, "", "Write --dataset with a local file"},
    {"dataset_config_name", false, "", "Write --dataset with a local file"},
    {"train_file", false, "", "Write --dataset"},
    {"validation_file", false, "", "Write --eval-dataset"},
    {"streaming", true, "false", kReads},
    {"block_size", false, "", "Write --max-length"},
    {"preprocessing_num_workers", false, "*", kReads},
    {"dataset_num_proc", false, "*", kReads},
    {"overwrite_cache", true, "*", "Tessera keeps no cache of the data"},
    {"dataset_text_field", false, "text", "Write --fields text=KEY"},
    {"dataset_kwargs", false, "", "See --dataset and --objective"},
    {"completion_only_loss", true, "", "Write --objective completion or --objective causal_lm"},
    {"train_on_inputs", true, "", "Write --objective completion or --objective causal_lm"},
    {"packing", true, "false", kPacked},
    {"eval_packing", true, "false", kPacked},
    {"packing_strategy", false, "*", kPacked},
    {"padding_free", true, "*", kPacked},
    {"sample_packing", true, "false", kPacked},
    {"pad_to_multiple_of", false, "*", kPacked},
    {"pad_to_max_length", true, "false", kPacked},
    // PEFT and quantization
    {"use_peft", true, "false", kLora},
    {"use_lora", true, "false", kLora},
    {"lora_target", false, "", "Write --lora-target-modules"},
    {"lora_modules_to_save", false, "", "Write --modules-to-save"},
    {"lora_task_type", false, "causal_lm", "All models are causal language models"},
    {"target_modules", false, "", "Write --lora-target-modules"},
    {"use_dora", true, "false", "DoRA is not supported. --use-rslora scales adapters of high rank"},
    {"peft_config", false, "", "Write the options as flags: --adapter lora --lora-r 16"},
    {"adapter_name_or_path", false, "", "Write --init-adapter"},
    {"finetuning_type", false, "full", kLora},
    {"load_in_4bit", true, "false", kNf4},
    {"load_in_8bit", true, "false", kNoInt8},
    {"bnb_4bit_quant_type", false, "nf4", kNf4},
    {"bnb_4bit_compute_dtype", false, "*", kComputes},
    {"use_bnb_nested_quant", true, "true false", kNf4},
    {"bits", false, "16 32", kNf4},
    {"quantization_bit", false, "", kNf4},
    {"quantization", false, "none", kNf4},
};

bool accepts(const ForeignArgument& argument, std::string_view value) {
  const std::string_view words = argument.accepted;
  if (words == "*") return true;
  for (size_t begin = 0; begin < words.size();) {
    const size_t end = std::min(words.find(' ', begin), words.size());
    if (words.substr(begin, end - begin) == value) return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace

const ForeignArgument* find_foreign_argument(std::string_view word) {
  const std::string name = underscored(word);
  const auto* found =
      std::ranges::find_if(kArguments, [&](const ForeignArgument& known) { return name == known.name; });
  return found == std::end(kArguments) ? nullptr : found;
}

std::string note_of_foreign(const ForeignArgument& argument, std::string_view value, const std::string& where) {
  if (accepts(argument, lower(value))) return fmt::format("{}: has no effect. {}", where, argument.answer);
  throw UsageError(where, "is not a setting of Tessera", argument.answer);
}

}  // namespace tessera
