// The rows that all architectures share. Sources of these rows and of those of the architectures: the configuration
// classes and the modeling files of llama, mistral, qwen2, qwen3 and bloom in transformers 5.24, the files that they
// share (configuration_utils.py, modeling_rope_utils.py, masking_utils.py, modeling_utils.py), and the config.json
// files of published models.
#include "tessera/model/config_keys.h"

#include <algorithm>

#include "tessera/model/architecture.h"

namespace tessera {
namespace {

using namespace key_words;

constexpr const char* kDenseOnly = "Tessera supports only dense models, not mixtures of experts";
constexpr const char* kNotQuantized = "Use weights that are not quantized";
constexpr const char* kDecoderOnly = "Tessera supports only decoders, which predict the next token";

constexpr ConfigKeys kSharedKeys[] = {
    {KeyTopic::file, "model_type vocab_size hidden_size tie_word_embeddings", KeyUse::read},
    {KeyTopic::file, "bos_token_id eos_token_id pad_token_id unk_token_id", KeyUse::read},
    {KeyTopic::file, "quantization_config", KeyUse::read},

    // ---- refused, because transformers reads the key and Tessera does not implement it
    {KeyTopic::general, "per_layer_config", KeyUse::refused, "[]",
     "All layers of a model must have the same shape in Tessera"},
    {KeyTopic::general, "is_causal", KeyUse::refused, "[true]", kDecoderOnly},
    {KeyTopic::general, "is_encoder_decoder add_cross_attention", KeyUse::refused, "[false]", kDecoderOnly},
    {KeyTopic::general, "quantization compression_config *quant* load_in_4bit load_in_8bit bits awq* gptq* bnb_*",
     KeyUse::refused, "[false]", kNotQuantized},
    {KeyTopic::general, "transformers_weights", KeyUse::refused, "[\"model.safetensors\"]",
     "Rename the file to model.safetensors, and remove the key"},
    {KeyTopic::general, "pruned_heads", KeyUse::refused, "[]", "Tessera supports only models with all heads"},

    // ---- keys of other types
    {KeyTopic::general, "num_experts num_local_experts n_experts n_routed_experts n_shared_experts", KeyUse::refused,
     "[0, 1]", kDenseOnly},
    {KeyTopic::general, "moe moe_*", KeyUse::refused, "[0, 1, false]", kDenseOnly},
    {KeyTopic::general, "block_configs text_config vision_config audio_config", KeyUse::refused, "[]", kOtherType},
    {KeyTopic::general, "cross_attention_* q_lora_rank kv_lora_rank qk_*head_dim v_head_dim", KeyUse::refused, "[]",
     kOtherType},
    {KeyTopic::qkv_bias, kQkvBiases, KeyUse::refused, "[false]", kOtherType},
    {KeyTopic::biases, "lm_head_bias", KeyUse::refused, "[false]", kOtherType},
    {KeyTopic::scales, kHeadNorms, KeyUse::refused, "[false]", kOtherType},
    {KeyTopic::scales, "clip_qkv query_pre_attn_scalar scale_depth dim_model_base attention_multiplier",
     KeyUse::refused, "[]", kOtherType},
    {KeyTopic::scales,
     "residual_multiplier embedding_multiplier *_multiplier logits_scaling logit_scale scale_emb scale_embedding "
     "embedding_scale softmax_scale",
     KeyUse::refused, "[1, false]", kOtherType},
    {KeyTopic::scales, "*softcap* *soft_cap*", KeyUse::refused, "[]", kOtherType},
    {KeyTopic::scales, "use_mup mup_*", KeyUse::refused, "[1, false]", kOtherType},
    {KeyTopic::scales, "scale_attn_weights", KeyUse::refused, "[true]", kOtherType},
    {KeyTopic::scales, "scale_attn_by_inverse_layer_idx", KeyUse::refused, "[false]", kOtherType},
    {KeyTopic::scales, "attn_temperature_tuning", KeyUse::refused, "[0, false]", kOtherType},
    {KeyTopic::scales, "attention_chunk_size interleaved_sliding_window sliding_window_pattern", KeyUse::refused, "[]",
     kOtherType},
    {KeyTopic::scales, "use_bidirectional_attention bidirectional", KeyUse::refused, "[false]", kDecoderOnly},
    {KeyTopic::alibi, kAlibi, KeyUse::refused, "[false]", kOtherType},
    {KeyTopic::use_rope, "parallel_attn parallel_residual use_parallel_residual new_decoder_architecture multi_query",
     KeyUse::refused, "[false]", kOtherType},
    {KeyTopic::blocks, "num_nextn_predict_layers num_mtp_layers", KeyUse::refused, "[0]",
     "Tessera does not train layers that predict several tokens"},
    {KeyTopic::blocks, "untie*", KeyUse::refused, "[]",
     "Models of this type have the key \"tie_word_embeddings\", which means the opposite: use it instead"},

    // ---- keys that have no effect, in transformers and in Tessera
    {KeyTopic::noted, "auto_map", KeyUse::noted, "[]",
     "it names Python code; Tessera computes what transformers computes without this code"},
    {KeyTopic::noted, "dual_chunk_attention_config", KeyUse::noted, "[]", "attention is exact, as in transformers"},
    {KeyTopic::unused, "pretraining_tp slow_but_exact", KeyUse::unused, "[]",
     "they only change the order of sums, and therefore the rounding"},
    {KeyTopic::programs, "architectures transformers_version torch_dtype dtype use_cache name_or_path _*",
     KeyUse::unused, "[]", "about the file, or about how transformers runs"},
    {KeyTopic::programs,
     "attn_implementation experts_implementation torchscript use_bfloat16 tf_legacy_loss gradient_checkpointing "
     "chunk_size_feed_forward return_dict use_return_dict output_attentions output_hidden_states output_scores "
     "return_dict_in_generate tie_encoder_decoder tie_last_hidden_states is_decoder use_flash_attn",
     KeyUse::unused, "[]", "how transformers runs"},
    {KeyTopic::programs,
     "id2label label2id num_labels problem_type finetuning_task task_specific_params prefix tokenizer_class "
     "sep_token_id cls_token_id mask_token_id decoder_start_token_id classifier_dropout token_classification_bias "
     "custom_pipelines",
     KeyUse::unused, "[]", "other tasks"},
    {KeyTopic::programs,
     "max_length max_new_tokens min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty "
     "temperature top_k top_p typical_p repetition_penalty length_penalty no_repeat_ngram_size "
     "encoder_no_repeat_ngram_size bad_words_ids num_return_sequences exponential_decay_length_penalty "
     "suppress_tokens begin_suppress_tokens forced_bos_token_id forced_eos_token_id remove_invalid_values",
     KeyUse::unused, "[]", "generation: only generation_config.json counts, as in transformers"},

    // ---- names that other types and programs give to a key
    {KeyTopic::attention_dropout, "attn_drop* attn_pdrop attention_drop* attention_probs_dropout*", KeyUse::renamed,
     "[0]", "attention_dropout"},
    {KeyTopic::dropout, "*dropout* *_pdrop *_drop *_drop_* drop_* layerdrop", KeyUse::refused, "[0]", kOtherType},
    {KeyTopic::embeddings, "n_vocab vocabulary_size padded_vocab_size", KeyUse::renamed, "[]", "vocab_size"},
    {KeyTopic::embeddings, "*tie*emb* *tied* *share*emb* tie_weights *tying* *tie*head*", KeyUse::renamed, "[]",
     "tie_word_embeddings"},
    {KeyTopic::others, "eos *eos*id* eos_token eod_id eod_token* end_token*", KeyUse::renamed, "[]", "eos_token_id"},
};

constexpr RopeKeys kRopeKeys[] = {
    {"rope_type type rope_theta", "*", "[]"},
    {"factor", "linear llama3 yarn", "[1]"},
    {"original_max_position_embeddings", "llama3 yarn", nullptr},
    {"low_freq_factor high_freq_factor", "llama3", "[]"},
    {"attention_factor", "yarn", "[1]"},
    {"beta_fast", "yarn", "[32]"},
    {"beta_slow", "yarn", "[1]"},
    {"mscale mscale_all_dim", "yarn", "[0, 1]"},
    {"truncate", "yarn", "[true]"},
    {"partial_rotary_factor attn_factor extrapolation_factor", "", "[1]"},
    {"mrope_interleaved", "", "[false]"},
    {"short_factor long_factor mrope_section", "", "[]"},
    {"finetuned", "", nullptr},  // in Yarn-Llama-2: says that the model was trained with this scaling
};

}  // namespace

std::span<const ConfigKeys> shared_keys() {
  return kSharedKeys;
}

std::vector<const ConfigKeys*> keys_of(const Architecture& architecture) {
  std::vector<const ConfigKeys*> rows;
  const auto family = architecture.family_keys ? architecture.family_keys() : std::span<const ConfigKeys>();
  for (const auto& table : {architecture.own_keys, family, shared_keys()}) {
    for (const ConfigKeys& row : table) {
      if (row.traits == 0 || row.traits & architecture.key_traits) rows.push_back(&row);
    }
  }
  std::ranges::stable_sort(rows, {}, &ConfigKeys::topic);
  return rows;
}

std::span<const RopeKeys> rope_keys() {
  return kRopeKeys;
}

}  // namespace tessera
