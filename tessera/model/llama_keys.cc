// The keys of config.json that Llama's family has, and what other programs call them.
#include "tessera/model/llama_config.h"

namespace tessera {
namespace {

using namespace key_words;
using Llama = LlamaType;

constexpr const char* kPlainPositions =
    "Tessera supports only the rotary positions that \"rope_parameters\", or \"rope_theta\" and \"rope_scaling\", "
    "describe";

constexpr ConfigKeys kLlamaKeys[] = {
    {KeyTopic::general,
     "intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim hidden_act rms_norm_eps",
     KeyUse::read},
    {KeyTopic::general, "attention_dropout initializer_range max_position_embeddings", KeyUse::read},
    {KeyTopic::general, "rope_parameters rope_theta rope_scaling original_max_position_embeddings", KeyUse::read},
    {KeyTopic::general, "layer_types", KeyUse::read},
    {KeyTopic::general, "sliding_window", KeyUse::read, "[]", "", Llama::kWindow},
    {KeyTopic::general, "use_sliding_window max_window_layers", KeyUse::read, "[]", "", Llama::kLayerWindows},
    {KeyTopic::general, "attention_bias", KeyUse::read, "[]", "", Llama::kAttentionBias},
    {KeyTopic::general, "mlp_bias", KeyUse::read, "[]", "", Llama::kMlpBias},
    {KeyTopic::general, "partial_rotary_factor", KeyUse::refused, "[1]",
     "Tessera supports only models that rotate all channels of a head"},
    {KeyTopic::qkv_bias, kQkvBiases, KeyUse::refused, "[true]", kOtherType, Llama::kQkvBiases},
    {KeyTopic::biases, kBiases, KeyUse::refused, "[false]", kOtherType},
    {KeyTopic::scales, kHeadNorms, KeyUse::refused, "[true]", kOtherType, Llama::kHeadNorms},
    {KeyTopic::position_type, kPositionTypes, KeyUse::refused, R"(["rope", "rotary"])", kOtherType},
    {KeyTopic::use_rope, "use_rope use_rotary*", KeyUse::refused, "[true]", kPlainPositions},
    {KeyTopic::rope, "no_rope_* use_mrope", KeyUse::refused, "[0, false]", kPlainPositions},
    {KeyTopic::rope, kRopeNames, KeyUse::refused, "[1, false, \"default\"]", kPlainPositions},

    {KeyTopic::noted, "attention_bias", KeyUse::noted, "[true]",
     "queries, keys and values of {} always have biases, and the output of attention never has one", Llama::kQkvBiases},
    {KeyTopic::noted, "attention_bias", KeyUse::noted, "[false]", "models of type {} have no biases", Llama::kNoBiases},
    {KeyTopic::noted, "mlp_bias", KeyUse::noted, "[false]", "only models of type llama can have these biases",
     Llama::kNoMlpBias},
    {KeyTopic::noted, "sliding_window", KeyUse::noted, "[]", "models of type {} have no windows", Llama::kNoWindow},
    {KeyTopic::noted, "use_sliding_window", KeyUse::noted, "[true]", "only \"sliding_window\" counts",
     Llama::kUniformWindow},
    {KeyTopic::unused, "use_sliding_window max_window_layers", KeyUse::unused, "[]",
     "models of this type have the same window in all layers, or none", Llama::kNoWindow | Llama::kUniformWindow},
    {KeyTopic::programs,
     "max_sequence_length seq_length model_max_length n_ctx tokenizer_model_max_length attention_softmax_in_fp32 "
     "is_llama_config transformers.js_config unsloth_version unsloth_fixed",
     KeyUse::unused, "[]", "of other programs"},

    {KeyTopic::epsilon, kEpsilons, KeyUse::renamed, "[]", "rms_norm_eps"},
    {KeyTopic::activation, kActivations, KeyUse::renamed, "[]", "hidden_act"},
    {KeyTopic::heads, "*head*dim* *dim*head* *head*size* *head*channels* *per_head* d_head d_k d_kv kv_channels",
     KeyUse::renamed, "[]", "head_dim"},
    {KeyTopic::heads,
     "*kv*head* *head*kv* *key*head* *value*head* *kv_group* *query_group* *key_value_group* gqa_* n_kv* num_kv* kv_n*",
     KeyUse::renamed, "[]", "num_key_value_heads"},
    {KeyTopic::heads,
     "n_head n_heads num_head num_heads heads *head_count* *attention_heads* *attn_heads* *q_heads* *query_heads*",
     KeyUse::renamed, "[]", "num_attention_heads"},
    {KeyTopic::num_layers,
     "n_layer n_layers num_layer num_layers hidden_layers n_blocks num_blocks *layer_count* *block_count*",
     KeyUse::renamed, "[]", "num_hidden_layers"},
    {KeyTopic::hidden_size,
     "n_embd n_embed d_model dim_model model_dim embed_dim emb_dim embedding_dim embedding_size embedding_length",
     KeyUse::renamed, "[]", "hidden_size"},
    {KeyTopic::ff_dim, "ff_dim", KeyUse::renamed, "[]", "intermediate_size"},
    {KeyTopic::ff_dim, kFfDims, KeyUse::renamed, "[]", "intermediate_size"},
    {KeyTopic::others, "*attn*bias* *attention*bias* *proj_bias*", KeyUse::renamed, "[false]", "attention_bias",
     Llama::kAttentionBias},
    {KeyTopic::others, "*mlp*bias* *ffn*bias* *ff_bias* *feed_forward*bias*", KeyUse::renamed, "[false]", "mlp_bias",
     Llama::kMlpBias},
    {KeyTopic::others, "theta *_theta *freq_base* *base_freq*", KeyUse::renamed, "[]", "rope_theta"},
    {KeyTopic::others, "layers_block_type layer_type *_layer_types attn_types attention_types", KeyUse::renamed, "[]",
     "layer_types"},
    {KeyTopic::others, "*window*", KeyUse::renamed, "[]", "sliding_window", Llama::kWindow},
    {KeyTopic::others,
     "n_positions seq_len max_len ctx_len *max*position* *max_seq* *max_context* *context_length* *context_size*",
     KeyUse::renamed, "[]", "max_position_embeddings"},
    {KeyTopic::others, kInitializers, KeyUse::renamed, "[]", "initializer_range"},
};

}  // namespace

std::span<const ConfigKeys> llama_keys() {
  return kLlamaKeys;
}

}  // namespace tessera
