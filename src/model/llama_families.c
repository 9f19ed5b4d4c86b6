/* llama_families.c: the traits of each family. The order of rows, model types and architectures is
 * the same. */
#include <string.h>

#include "base/compiler.h"
#include "model/llama.h"

static const struct block_norms norms_before = {
    .before_attention = "input_layernorm",
    .before_feed_forward = "post_attention_layernorm",
};

static const struct block_norms norms_before_each = {
    .before_attention = "input_layernorm",
    .before_feed_forward = "post_attention_layernorm",
    .before_out = "self_attn.attn_sub_norm",
    .before_down = "mlp.ffn_sub_norm",
};

static const struct block_norms norms_after = {
    .after_attention = "post_attention_layernorm",
    .after_feed_forward = "post_feedforward_layernorm",
};

static const struct block_norms norms_around = {
    .before_attention = "input_layernorm",
    .after_attention = "post_attention_layernorm",
    .before_feed_forward = "pre_feedforward_layernorm",
    .after_feed_forward = "post_feedforward_layernorm",
};

static const struct gate_kind silu = {OP_silu_gate, "hidden_act", {"silu", "swish"}};
static const struct gate_kind gelu = {
    OP_gelu_gate, "hidden_activation", {"gelu_pytorch_tanh", "gelu_new"}};

static const struct gate_kind relu2 = {OP_relu2_gate, "hidden_act", {"relu2"}};

static const struct expert_traits mixtral_experts = {
    .names = {.router = "block_sparse_moe.gate",
              .experts = "block_sparse_moe.experts",
              .gate = "w1",
              .up = "w3",
              .down = "w2",
              .may_be_stacked = true},
    .width_key = "intermediate_size",
    .config_key = "num_local_experts",
    .per_token = 2,
    .balance = 0.001,
    .always_normalized = true,
};

#define MLP_EXPERTS                                                                           \
    {                                                                                         \
        .router = "mlp.gate", .experts = "mlp.experts", .gate = "gate_proj", .up = "up_proj", \
        .down = "down_proj", .may_be_stacked = true                                           \
    }

static const struct expert_traits qwen2_experts = {
    .names = MLP_EXPERTS,
    .width_key = "moe_intermediate_size",
    .config_key = "num_experts",
    .per_token = 4,
    .balance = 0.001,
    .has_shared = true,
    .by_layer = true,
};

static const struct expert_traits qwen3_experts = {
    .names = MLP_EXPERTS,
    .width_key = "moe_intermediate_size",
    .config_key = "num_experts",
    .per_token = 8,
    .balance = 0.001,
    .by_layer = true,
};

static const struct expert_traits olmoe_experts = {
    .names = MLP_EXPERTS,
    .width_key = "intermediate_size",
    .config_key = "num_experts",
    .per_token = 8,
    .balance = 0.01,
};

static const struct llama_traits families[] = {
    {
        .model_type = "llama",
        .norms = &norms_before,
        .norm_epsilon = 1e-6,
        .gate = &silu,
        .rope = {.theta = 10000},
        .has_attention_bias = true,
        .has_mlp_bias = true,
    },
    {
        .model_type = "mistral",
        .norms = &norms_before,
        .norm_epsilon = 1e-6,
        .gate = &silu,
        .rope = {.theta = 10000},
        .kv_heads_required = true,
        .window = WINDOW_EVERYWHERE,
        .window_preset = 4096,
    },
    {
        .model_type = "qwen2",
        .norms = &norms_before,
        .norm_epsilon = 1e-6,
        .gate = &silu,
        .rope = {.theta = 10000},
        .qkv_bias = true,
        .kv_heads_required = true,
        .window = WINDOW_SWITCHED,
        .window_preset = 4096,
    },
    {
        .model_type = "qwen3",
        .norms = &norms_before,
        .norm_epsilon = 1e-6,
        .query_norm = QUERY_NORM_HEAD,
        .gate = &silu,
        .rope = {.theta = 10000},
        .has_attention_bias = true,
        .kv_heads_required = true,
        .head_dim = 128,
        .window = WINDOW_SWITCHED,
        .window_preset = 4096,
    },
    {
        .model_type = "olmo2",
        .norms = &norms_after,
        .norm_epsilon = 1e-5,
        .query_norm = QUERY_NORM_WHOLE,
        .gate = &silu,
        .rope = {.theta = 10000},
        .has_attention_bias = true,
    },
    {
        .model_type = "smollm3",
        .norms = &norms_before,
        .norm_epsilon = 1e-6,
        .gate = &silu,
        .rope = {.theta = 2e6},
        .skips_rope = true,
        .has_attention_bias = true,
        .has_mlp_bias = true,
        .kv_heads_required = true,
        .window = WINDOW_UNROTATED,
        .tied = true,
    },
    {
        .model_type = "phi3",
        .norms = &norms_before,
        .norm_epsilon = 1e-5,
        .gate = &silu,
        .packed = true,
        .rope = {.theta = 10000, .partial = true, .unscaled = true},
        .has_residual_dropout = true,
        .window = WINDOW_EVERYWHERE,
    },
    {
        .model_type = "mixtral",
        .norms = &norms_before,
        .norm_epsilon = 1e-5,
        .gate = &silu,
        .experts = &mixtral_experts,
        .rope = {.theta = 1e6},
        .kv_heads_required = true,
        .window = WINDOW_EVERYWHERE,
    },
    {
        .model_type = "qwen2_moe",
        .norms = &norms_before,
        .norm_epsilon = 1e-6,
        .gate = &silu,
        .experts = &qwen2_experts,
        .rope = {.theta = 10000},
        .has_qkv_bias = true,
        .kv_heads_required = true,
        .window = WINDOW_ALTERNATING,
        .window_preset = 4096,
    },
    {
        .model_type = "qwen3_moe",
        .norms = &norms_before,
        .norm_epsilon = 1e-6,
        .query_norm = QUERY_NORM_HEAD,
        .gate = &silu,
        .experts = &qwen3_experts,
        .rope = {.theta = 10000},
        .has_attention_bias = true,
        .kv_heads_required = true,
        .window = WINDOW_ALL_SWITCHED,
        .window_preset = 4096,
    },
    {
        .model_type = "olmoe",
        .norms = &norms_before,
        .norm_epsilon = 1e-5,
        .query_norm = QUERY_NORM_WHOLE,
        .gate = &silu,
        .experts = &olmoe_experts,
        .rope = {.theta = 10000},
        .has_attention_bias = true,
        .has_qkv_clip = true,
    },
    {
        .model_type = "gemma2",
        .norms = &norms_around,
        .norm_epsilon = 1e-6,
        .norm_offset = 1,
        .gate = &gelu,
        .embedding_grows = true,
        .rope = {.theta = 10000},
        .has_attention_bias = true,
        .kv_heads_required = true,
        .head_dim = 256,
        .has_query_scalar = true,
        .has_attention_cap = true,
        .attention_cap = 50,
        .has_logit_cap = true,
        .logit_cap = 30,
        .window = WINDOW_PATTERN,
        .window_preset = 4096,
        .window_pattern = 2,
        .tied = true,
    },
    {
        .model_type = "gemma3_text",
        .norms = &norms_around,
        .norm_epsilon = 1e-6,
        .norm_offset = 1,
        .query_norm = QUERY_NORM_HEAD,
        .gate = &gelu,
        .embedding_grows = true,
        .rope = {.theta = 1e6},
        .has_local_rope = true,
        .local_theta = 10000,
        .has_attention_bias = true,
        .kv_heads_required = true,
        .head_dim = 256,
        .has_query_scalar = true,
        .has_logit_cap = true,
        .window = WINDOW_PATTERN,
        .window_preset = 4096,
        .window_pattern = 6,
        .has_window_pattern = true,
        .tied = true,
    },
    {
        .model_type = "bitnet",
        .norms = &norms_before_each,
        .norm_epsilon = 1e-5,
        .gate = &relu2,
        .other_gate = &silu,
        .rope = {.theta = 500000},
        .has_attention_bias = true,
    },
};

const char *const llama_model_types[] = {
    "llama",     "mistral",   "qwen2", "qwen3",  "olmo2",       "smollm3", "phi3", "mixtral",
    "qwen2_moe", "qwen3_moe", "olmoe", "gemma2", "gemma3_text", "bitnet",  NULL};
const char *const llama_architectures[] = {
    "LlamaForCausalLM",    "MistralForCausalLM", "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",    "Olmo2ForCausalLM",   "SmolLM3ForCausalLM",
    "Phi3ForCausalLM",     "MixtralForCausalLM", "Qwen2MoeForCausalLM",
    "Qwen3MoeForCausalLM", "OlmoeForCausalLM",   "Gemma2ForCausalLM",
    "Gemma3ForCausalLM",   "BitNetForCausalLM",  NULL};

const struct llama_traits *llama_traits_of(const char *model_type)
{
    for (size_t i = 0; i < ARRAY_LEN(families); i++) {
        if (strcmp(families[i].model_type, model_type) == 0)
            return &families[i];
    }
    return NULL;
}
