/* experts.h: a feed-forward half of experts: a router chooses k of E for each token; the losses of
 * routing.
 *
 * All experts of a layer are one parameter per projection, [E, out, in]; a checkpoint has a tensor
 * for each expert. Rows go through them in the order of their experts (ops/expert_support.h), so
 * that shapes do not depend on the routing.
 *
 * The balance loss pulls the router towards an equal load. Of a micro-batch's tokens, f_e is the
 * share of slots that expert e has and P_e its mean probability. As in transformers, shares and
 * probabilities are means over all layers: E k sum_e f_e P_e; with `balance_by_layer`, a mean over
 * layers of E sum_e f_e P_e. Over micro-steps it is averaged by tokens with a label.
 */
#ifndef SNUG_MODEL_EXPERTS_H
#define SNUG_MODEL_EXPERTS_H

#include "model/config_keys.h"
#include "model/parts.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How a checkpoint names the tensors of a layer, without ".weight". */
struct expert_names {
    const char *router, *experts; /* "mlp.gate", "mlp.experts" */
    const char *gate, *up, *down; /* after "<experts>.<number>."; gate NULL: there is none */
    /* Checkpoints may also have all experts of a projection in one tensor, by the names of
     * transformers 5: "mlp.experts.gate_up_proj", "mlp.experts.down_proj", "mlp.gate.weight". */
    bool may_be_stacked;
};

/* What sets the mixtures of one family apart from those of another: names, keys, presets. */
struct expert_traits {
    struct expert_names names;
    const char *width_key;  /* an expert's width */
    const char *config_key; /* of the number of experts: num_experts or num_local_experts */
    int64_t per_token;      /* preset of num_experts_per_tok */
    double balance;         /* preset of router_aux_loss_coef */
    bool always_normalized; /* else norm_topk_prob decides */
    bool has_shared;        /* shared_expert_intermediate_size */
    bool by_layer;          /* decoder_sparse_step, mlp_only_layers: some layers have no experts */
};

/* What a config says. */
struct experts {
    const struct expert_names *names;
    int64_t n, per_token;
    int64_t width;          /* of an expert */
    int64_t shared_width;   /* of the expert that every token goes to as well; 0: none */
    bool normalize;         /* weights of a token's experts sum to 1 */
    double epsilon;         /* added to what they are divided by */
    bool bias;              /* of the router and of the experts */
    double dropout;         /* inside experts */
    double std;             /* of the initial weights */
    double balance, z_loss; /* factors of the losses; 0: none */
    /* Rows that an expert takes, times what an even load would be; later tokens go without it. 0:
     * as many as come. */
    double capacity;
    bool balance_by_layer;
    bool *in_layer; /* [n_layers]: this layer has experts */
    int64_t n_layers_with;
};

/* The keys of a config; `in_layer` goes into the model's pool. The balance loss is wanted where
 * output_router_logits is true, as in transformers. */
enum status experts_parse(struct experts *e, struct model *m, const struct expert_traits *t,
                          struct keys *k) MUST_CHECK;
/* Sets the same keys; nonzero: out of memory. */
int experts_export(const struct experts *e, const struct model *m, const struct expert_traits *t,
                   json_t *config);

/* Sums over the layers so far; VALUE_NONE before the first. */
struct routing {
    value_id probabilities, loads, balance, z_loss;
    value_id evenness; /* of loads: what is reported, and no loss */
};
struct routing routing_none(void);

/* x [B, T, C] -> [B, T, C]. */
value_id experts_build(struct parts *p, const struct experts *e, value_id x, struct routing *r);
/* After the head: the losses that are wanted, where there are losses. */
void experts_losses(struct parts *p, const struct experts *e, const struct routing *r);

#ifdef __cplusplus
}
#endif
#endif
