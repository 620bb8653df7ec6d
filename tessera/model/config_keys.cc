// The tables of keys. Sources: the configuration classes and the modeling files of llama, mistral, qwen2, qwen3 and
// bloom in transformers 5.24, the files that they share (configuration_utils.py, modeling_rope_utils.py,
// masking_utils.py, modeling_utils.py), and the config.json files of published models.
#include "tessera/model/config_keys.h"

namespace tessera {
namespace {

constexpr uint32_t kBloomOrGpt = kBloomType | kGptType;

constexpr const char* kOtherType =
    "Models of this type do not have it: remove the key, or use the model type that the weights need";
constexpr const char* kDenseOnly = "Tessera supports only dense models, not mixtures of experts";
constexpr const char* kPlainPositions =
    "Tessera supports only the rotary positions that \"rope_parameters\", or \"rope_theta\" and \"rope_scaling\", "
    "describe";
constexpr const char* kAllChannels = "Tessera supports only models that rotate all channels of a head";
constexpr const char* kNotQuantized = "Use weights that are not quantized";
constexpr const char* kDecoderOnly = "Tessera supports only decoders, which predict the next token";

constexpr const char* kOtherActivations =
    "activation *_activation *activation_f* *activation_type *act_fn* *act_func* hidden_act_* nonlinearity";
constexpr const char* kPositionTypes =
    "position_embedding_type position_embedding position_embeddings pos_emb* pos_enc* position_enc* positional_e*";
constexpr const char* kOtherFfDims =
    "n_inner inner_dim d_ff *ffn*size* *ffn*dim* *mlp_dim* *mlp_size* *mlp_hidden* dim_feedforward "
    "*feed_forward_length*";
constexpr const char* kBloomActivations = R"(["gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh"])";
constexpr const char* kBloomActivation = "BLOOM always uses GELU with tanh";
constexpr const char* kGptActivation = "Models of type gpt always use ReLU";

constexpr ConfigKeys kKeys[] = {
    // ---- what Tessera reads
    {"model_type vocab_size hidden_size tie_word_embeddings", kAnyType, KeyUse::read, "[]", ""},
    {"bos_token_id eos_token_id pad_token_id unk_token_id", kAnyType, KeyUse::read, "[]", ""},
    {"intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim hidden_act rms_norm_eps",
     kLlamaLike, KeyUse::read, "[]", ""},
    {"attention_dropout initializer_range max_position_embeddings", kLlamaLike, KeyUse::read, "[]", ""},
    {"rope_parameters rope_theta rope_scaling original_max_position_embeddings", kLlamaLike, KeyUse::read, "[]", ""},
    {"layer_types", kLlamaLike, KeyUse::read, "[]", ""},
    {"sliding_window", kMistralType | kQwen2Type | kQwen3Type, KeyUse::read, "[]", ""},
    {"use_sliding_window max_window_layers", kQwen2Type | kQwen3Type, KeyUse::read, "[]", ""},
    {"attention_bias", kLlamaType | kQwen3Type, KeyUse::read, "[]", ""},
    {"mlp_bias", kLlamaType, KeyUse::read, "[]", ""},
    {"n_embed n_embd n_layer num_hidden_layers num_layers n_head num_attention_heads num_heads ff_dim", kBloomOrGpt,
     KeyUse::read, "[]", ""},
    {"layer_norm_epsilon hidden_dropout attention_dropout", kBloomOrGpt, KeyUse::read, "[]", ""},
    {"apply_residual_connection_post_layernorm initializer_range", kBloomType, KeyUse::read, "[]", ""},
    {"dropout", kGptType, KeyUse::read, "[]", ""},

    // ---- refused, because transformers reads the key and Tessera does not implement it
    {"partial_rotary_factor", kLlamaLike, KeyUse::refused, "[1]", kAllChannels},
    {"per_layer_config", kAnyType, KeyUse::refused, "[]", "All layers of a model must have the same shape in Tessera"},
    {"is_causal", kAnyType, KeyUse::refused, "[true]", kDecoderOnly},
    {"is_encoder_decoder add_cross_attention", kAnyType, KeyUse::refused, "[false]", kDecoderOnly},
    {"quantization_config quantization compression_config *quant* load_in_4bit load_in_8bit bits awq* gptq* bnb_*",
     kAnyType, KeyUse::refused, "[false]", kNotQuantized},
    {"transformers_weights", kAnyType, KeyUse::refused, "[\"model.safetensors\"]",
     "Rename the file to model.safetensors, and remove the key"},
    {"pruned_heads", kAnyType, KeyUse::refused, "[]", "Tessera supports only models with all heads"},

    // ---- keys of other types
    {"num_experts num_local_experts n_experts n_routed_experts n_shared_experts", kAnyType, KeyUse::refused, "[0, 1]",
     kDenseOnly},
    {"moe moe_*", kAnyType, KeyUse::refused, "[0, 1, false]", kDenseOnly},
    {"block_configs text_config vision_config audio_config", kAnyType, KeyUse::refused, "[]", kOtherType},
    {"cross_attention_* q_lora_rank kv_lora_rank qk_*head_dim v_head_dim", kAnyType, KeyUse::refused, "[]", kOtherType},
    {"qkv_bias add_qkv_bias use_qkv_bias", kQwen2Type | kBloomType, KeyUse::refused, "[true]", kOtherType},
    {"qkv_bias add_qkv_bias use_qkv_bias", kAnyType, KeyUse::refused, "[false]", kOtherType},
    {"bias use_bias add_bias_linear", kLlamaLike, KeyUse::refused, "[false]", kOtherType},
    {"bias use_bias add_bias_linear", kBloomOrGpt, KeyUse::refused, "[true]", kOtherType},
    {"lm_head_bias", kAnyType, KeyUse::refused, "[false]", kOtherType},
    {"qk_norm use_qk_norm qk_layernorm use_qk_layernorm", kQwen3Type, KeyUse::refused, "[true]", kOtherType},
    {"qk_norm use_qk_norm qk_layernorm use_qk_layernorm", kAnyType, KeyUse::refused, "[false]", kOtherType},
    {"clip_qkv query_pre_attn_scalar scale_depth dim_model_base attention_multiplier", kAnyType, KeyUse::refused, "[]",
     kOtherType},
    {"residual_multiplier embedding_multiplier *_multiplier logits_scaling logit_scale scale_emb scale_embedding "
     "embedding_scale softmax_scale",
     kAnyType, KeyUse::refused, "[1, false]", kOtherType},
    {"*softcap* *soft_cap*", kAnyType, KeyUse::refused, "[]", kOtherType},
    {"use_mup mup_*", kAnyType, KeyUse::refused, "[1, false]", kOtherType},
    {"scale_attn_weights", kAnyType, KeyUse::refused, "[true]", kOtherType},
    {"scale_attn_by_inverse_layer_idx", kAnyType, KeyUse::refused, "[false]", kOtherType},
    {"attn_temperature_tuning", kAnyType, KeyUse::refused, "[0, false]", kOtherType},
    {"attention_chunk_size interleaved_sliding_window sliding_window_pattern", kAnyType, KeyUse::refused, "[]",
     kOtherType},
    {"use_bidirectional_attention bidirectional", kAnyType, KeyUse::refused, "[false]", kDecoderOnly},
    {"alibi use_alibi", kBloomType, KeyUse::refused, "[true]", kOtherType},
    {"alibi use_alibi", kAnyType, KeyUse::refused, "[false]", kOtherType},
    {kPositionTypes, kLlamaLike, KeyUse::refused, R"(["rope", "rotary"])", kOtherType},
    {kPositionTypes, kBloomType, KeyUse::refused, R"(["alibi"])", kOtherType},
    {"use_rope use_rotary*", kLlamaLike, KeyUse::refused, "[true]", kPlainPositions},
    {"parallel_attn parallel_residual use_parallel_residual new_decoder_architecture multi_query", kAnyType,
     KeyUse::refused, "[false]", kOtherType},
    {"no_rope_* use_mrope", kLlamaLike, KeyUse::refused, "[0, false]", kPlainPositions},
    {"rope* rotary*", kLlamaLike, KeyUse::refused, "[1, false, \"default\"]", kPlainPositions},
    {"rope* rotary*", kBloomOrGpt, KeyUse::refused, "[false]", "Models of this type have no rotary positions"},
    {"n_inner", kBloomType, KeyUse::refused, "[]", kOtherType},
    {"hidden_act", kBloomType, KeyUse::refused, kBloomActivations, kBloomActivation},
    {kOtherActivations, kBloomType, KeyUse::refused, kBloomActivations, kBloomActivation},
    {"hidden_act", kGptType, KeyUse::refused, R"(["relu"])", kGptActivation},
    {kOtherActivations, kGptType, KeyUse::refused, R"(["relu"])", kGptActivation},
    {"apply_residual_connection_post_layernorm", kGptType, KeyUse::refused, "[false]", kOtherType},
    {"num_nextn_predict_layers num_mtp_layers", kAnyType, KeyUse::refused, "[0]",
     "Tessera does not train layers that predict several tokens"},
    {"untie*", kAnyType, KeyUse::refused, "[]",
     "Models of this type have the key \"tie_word_embeddings\", which means the opposite: use it instead"},

    // ---- keys that models of the type ignore, in transformers and in Tessera
    {"attention_bias", kQwen2Type, KeyUse::noted, "[true]",
     "queries, keys and values of qwen2 always have biases, and the output of attention never has one"},
    {"attention_bias", kMistralType, KeyUse::noted, "[false]", "models of type mistral have no biases"},
    {"mlp_bias", kMistralType | kQwen2Type | kQwen3Type, KeyUse::noted, "[false]",
     "only models of type llama can have these biases"},
    {"sliding_window", kLlamaType, KeyUse::noted, "[]", "models of type llama have no windows"},
    {"use_sliding_window", kMistralType, KeyUse::noted, "[true]", "only \"sliding_window\" counts"},
    {"intermediate_size", kBloomType, KeyUse::noted, "[]", "other keys define the shape of models of this type"},
    {"num_key_value_heads head_dim", kBloomOrGpt, KeyUse::noted, "[]",
     "other keys define the shape of models of this type"},
    {"auto_map", kAnyType, KeyUse::noted, "[]",
     "it names Python code; Tessera computes what transformers computes without this code"},
    {"dual_chunk_attention_config", kAnyType, KeyUse::noted, "[]", "attention is exact, as in transformers"},
    {"use_sliding_window max_window_layers", kLlamaType | kMistralType, KeyUse::unused, "[]",
     "models of this type have the same window in all layers, or none"},
    {"pretraining_tp slow_but_exact", kAnyType, KeyUse::unused, "[]",
     "they only change the order of sums, and therefore the rounding"},
    {"initializer_range", kGptType, KeyUse::unused, "[]", "gpt initializes weights as torch.nn.TransformerEncoder"},
    {"max_position_embeddings seq_length n_positions offset_alibi skip_bias_add skip_bias_add_qkv bias_dropout_fusion "
     "masked_softmax_fusion attention_softmax_in_fp32",
     kBloomOrGpt, KeyUse::unused, "[]", "of the program that trained BLOOM"},
    {"max_sequence_length seq_length model_max_length n_ctx tokenizer_model_max_length attention_softmax_in_fp32 "
     "is_llama_config transformers.js_config unsloth_version unsloth_fixed",
     kLlamaLike, KeyUse::unused, "[]", "of other programs"},
    {"architectures transformers_version torch_dtype dtype use_cache name_or_path _*", kAnyType, KeyUse::unused, "[]",
     "about the file, or about how transformers runs"},
    {"attn_implementation experts_implementation torchscript use_bfloat16 tf_legacy_loss gradient_checkpointing "
     "chunk_size_feed_forward return_dict use_return_dict output_attentions output_hidden_states output_scores "
     "return_dict_in_generate tie_encoder_decoder tie_last_hidden_states is_decoder use_flash_attn",
     kAnyType, KeyUse::unused, "[]", "how transformers runs"},
    {"id2label label2id num_labels problem_type finetuning_task task_specific_params prefix tokenizer_class "
     "sep_token_id cls_token_id mask_token_id decoder_start_token_id classifier_dropout token_classification_bias "
     "custom_pipelines",
     kAnyType, KeyUse::unused, "[]", "other tasks"},
    {"max_length max_new_tokens min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty "
     "temperature top_k top_p typical_p repetition_penalty length_penalty no_repeat_ngram_size "
     "encoder_no_repeat_ngram_size bad_words_ids num_return_sequences exponential_decay_length_penalty "
     "suppress_tokens begin_suppress_tokens forced_bos_token_id forced_eos_token_id remove_invalid_values",
     kAnyType, KeyUse::unused, "[]", "generation: only generation_config.json counts, as in transformers"},

    // ---- names that other types and programs give to a key of this type. Special names come before general ones
    {"attn_drop* attn_pdrop attention_drop* attention_probs_dropout*", kAnyType, KeyUse::renamed, "[0]",
     "attention_dropout"},
    {"resid_drop* resid_pdrop residual_drop* hidden_drop*", kBloomOrGpt, KeyUse::renamed, "[0]", "hidden_dropout"},
    {"dropout_p dropout_prob* dropout_rate", kGptType, KeyUse::renamed, "[0]", "dropout"},
    {"*dropout* *_pdrop *_drop *_drop_* drop_* layerdrop", kAnyType, KeyUse::refused, "[0]", kOtherType},
    {"eps *_eps *epsilon* *norm*eps* *rms*eps*", kLlamaLike, KeyUse::renamed, "[]", "rms_norm_eps"},
    {"eps *_eps *epsilon* *norm*eps* *rms*eps*", kBloomOrGpt, KeyUse::renamed, "[]", "layer_norm_epsilon"},
    {kOtherActivations, kLlamaLike, KeyUse::renamed, "[]", "hidden_act"},
    {"*head*dim* *dim*head* *head*size* *head*channels* *per_head* d_head d_k d_kv kv_channels", kLlamaLike,
     KeyUse::renamed, "[]", "head_dim"},
    {"*kv*head* *head*kv* *key*head* *value*head* *kv_group* *query_group* *key_value_group* gqa_* n_kv* num_kv* kv_n*",
     kLlamaLike, KeyUse::renamed, "[]", "num_key_value_heads"},
    {"n_head n_heads num_head num_heads heads *head_count* *attention_heads* *attn_heads* *q_heads* *query_heads*",
     kLlamaLike, KeyUse::renamed, "[]", "num_attention_heads"},
    {"n_heads num_head heads *head_count* *attention_heads* *attn_heads* *q_heads* *query_heads*", kBloomOrGpt,
     KeyUse::renamed, "[]", "n_head num_attention_heads num_heads"},
    {"n_layer n_layers num_layer num_layers hidden_layers n_blocks num_blocks *layer_count* *block_count*", kLlamaLike,
     KeyUse::renamed, "[]", "num_hidden_layers"},
    {"n_layers num_layer hidden_layers n_blocks num_blocks *layer_count* *block_count*", kBloomOrGpt, KeyUse::renamed,
     "[]", "n_layer num_hidden_layers num_layers"},
    {"n_embd n_embed d_model dim_model model_dim embed_dim emb_dim embedding_dim embedding_size embedding_length",
     kLlamaLike, KeyUse::renamed, "[]", "hidden_size"},
    {"d_model dim_model model_dim embed_dim emb_dim embedding_dim embedding_size embedding_length", kBloomOrGpt,
     KeyUse::renamed, "[]", "hidden_size n_embed n_embd"},
    {"ff_dim", kLlamaLike, KeyUse::renamed, "[]", "intermediate_size"},
    {kOtherFfDims, kLlamaLike, KeyUse::renamed, "[]", "intermediate_size"},
    {"intermediate_size", kGptType, KeyUse::renamed, "[]", "ff_dim"},
    {kOtherFfDims, kGptType, KeyUse::renamed, "[]", "ff_dim"},
    {"n_vocab vocabulary_size padded_vocab_size", kAnyType, KeyUse::renamed, "[]", "vocab_size"},
    {"*tie*emb* *tied* *share*emb* tie_weights *tying* *tie*head*", kAnyType, KeyUse::renamed, "[]",
     "tie_word_embeddings"},
    {"*attn*bias* *attention*bias* *proj_bias*", kLlamaType | kQwen3Type, KeyUse::renamed, "[false]", "attention_bias"},
    {"*mlp*bias* *ffn*bias* *ff_bias* *feed_forward*bias*", kLlamaType, KeyUse::renamed, "[false]", "mlp_bias"},
    {"theta *_theta *freq_base* *base_freq*", kLlamaLike, KeyUse::renamed, "[]", "rope_theta"},
    {"layers_block_type layer_type *_layer_types attn_types attention_types", kLlamaLike, KeyUse::renamed, "[]",
     "layer_types"},
    {"*window*", kMistralType | kQwen2Type | kQwen3Type, KeyUse::renamed, "[]", "sliding_window"},
    {"n_positions seq_len max_len ctx_len *max*position* *max_seq* *max_context* *context_length* *context_size*",
     kLlamaLike, KeyUse::renamed, "[]", "max_position_embeddings"},
    {"*init*std* *init*range* init_scale initializer_scale", kLlamaLike | kBloomType, KeyUse::renamed, "[]",
     "initializer_range"},
    {"eos *eos*id* eos_token eod_id eod_token* end_token*", kAnyType, KeyUse::renamed, "[]", "eos_token_id"},
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

std::span<const ConfigKeys> config_keys() {
  return kKeys;
}

std::span<const RopeKeys> rope_keys() {
  return kRopeKeys;
}

}  // namespace tessera
