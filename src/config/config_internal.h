/* config_internal.h: shared by the files of this folder only.
 *
 * A file goes through these stages:
 *
 *     text --config_yaml--> tree of nodes --config_admit--> canonical top-level keys
 *          --config_bind--> typed fields --config_resolve--> derived values and cross-checks
 */
#ifndef SNUG_CONFIG_CONFIG_INTERNAL_H
#define SNUG_CONFIG_CONFIG_INTERNAL_H

#include "base/pool.h"
#include "base/problems.h"
#include "config/config.h"

/* Limits that keep a hostile file cheap; no real config comes near them. */
enum {
    CONFIG_MAX_DEPTH = 16,
    CONFIG_MAX_NODES = 20000,
    CONFIG_MAX_MEMBERS = 2000,
    CONFIG_MAX_KEY = 128,
    CONFIG_MAX_BYTES = 1 << 20
};

/* ---- the tree (tree.c, yaml.c); nodes live in the config's pool ---- */

enum node_kind { NODE_SCALAR, NODE_MAP, NODE_LIST };

struct config_node {
    enum node_kind kind;
    int plain;           /* scalar without quotes: may mean null, a number, a boolean */
    const char *key;     /* in a mapping: the name; at the top, canonical once admitted */
    const char *written; /* the key as the user spelled it, for messages; NULL: as in key */
    const char *text;    /* scalar */
    const char *where;   /* "demo.yaml:12" or "command line" */
    struct config_node *first, *last, *next;
    size_t n; /* children */
};

/* The document's top node, or NULL for an empty one. `base_where`, when not NULL, replaces
 * "name:line" in the nodes and in messages. */
enum status config_yaml_parse(struct pool *pool, const char *text, size_t n_bytes, const char *name,
                              const char *base_where, struct config_node **out) MUST_CHECK;

enum status config_node_new(struct pool *pool, enum node_kind kind, const char *where,
                            struct config_node **out) MUST_CHECK;
void config_node_append(struct config_node *parent, struct config_node *child);
void config_node_remove(struct config_node *parent, struct config_node *child);
struct config_node *config_node_member(const struct config_node *map, const char *key);
struct config_node *config_node_at(const struct config_node *list, size_t i);
int config_node_is_null(const struct config_node *node); /* empty, ~, null */
/* "a mapping", "a list", "\"text\"": what was found, for messages. Lives in the buffer. */
enum { FOUND_TEXT = 64 };
const char *config_node_found(char out[FOUND_TEXT], const struct config_node *node);
/* Puts `value` at a dotted path below `node`, making mappings and lists on the way. */
enum status config_node_set_path(struct pool *pool, struct config_node *node, const char *path,
                                 struct config_node *value) MUST_CHECK;
/* By YAML's rules for plain scalars: null, booleans, integers, reals; else a string. */
enum status config_node_to_json(const struct config_node *node, json_t **out) MUST_CHECK;
enum status config_keep_text(struct pool *pool, const char *text, const char **out) MUST_CHECK;
int config_is_utf8(const char *text);

/* ---- the schema (schema.c) ---- */

enum config_type {
    TYPE_GROUP, /* a heading: no field */
    TYPE_BOOL,
    TYPE_TRISTATE,
    TYPE_INT,
    TYPE_AUTO_INT,
    TYPE_FLOAT,
    TYPE_DURATION,
    TYPE_BYTES,
    TYPE_STRING,
    TYPE_BLOCKS,
    TYPE_RESUME,
    TYPE_LIST,
    TYPE_NAMES,
    TYPE_TEXTS,
    TYPE_NUMBERS,
    TYPE_CHOICE,
    TYPE_MODEL,
    TYPE_DATASETS
};

struct config_key {
    const char *name; /* of a heading: its title */
    enum config_type type;
    size_t offset;
    enum config_resume resume;
    const char *preset, *rule, *aliases, *meaning; /* rule of a choice or list: its set */
};

struct config_choice {
    const char *name;
    int value;           /* first row with a value gives its canonical name */
    const char *nearest; /* not NULL: known, refused, and this is the nearest */
};

struct config_refusal {
    const char *name, *accepted, *hint; /* accepted NULL: ignored */
    bool of_model;                      /* it belongs below `model` */
};

extern const struct config_key config_keys[];
extern const size_t n_config_keys;
extern const struct config_refusal config_refusals[];
extern const size_t n_config_refusals;

/* NULL where there is none. `name` has `_` only (see config_normalise). */
const struct config_key *config_find_key(const char *name);
const struct config_refusal *config_find_refusal(const char *name);
/* An alias that says the opposite of its key. */
bool config_alias_negates(const struct config_key *key, const char *name);
int config_has_alias_below(const char *name); /* an alias or a refused key "name.x" exists */
const struct config_key *config_suggest_key(const char *name);
void config_normalise(char *name); /* '-' to '_' */
/* Rows until name == NULL. */
const struct config_choice *config_choices(const char *set);
/* "adamw, sgd": the canonical words of a set. */
void config_list_choices(struct str *out, const char *set);
/* The next word of a space-separated list into `word`, without what says that it is the opposite;
 * false at the end. */
int config_next_alias(const char **list, char *word, size_t size);

struct config_interval_rule {
    double low, high;
    int open_low, open_high;
};
int config_parse_rule(const char *rule, struct config_interval_rule *out);
int config_in_rule(const struct config_interval_rule *r, double x);
const char *config_rule_words(char *out, size_t size, const struct config_interval_rule *r);

/* ---- a config under construction ---- */

/* WRONG: what the user gave could not be taken; the field holds its default, so that the rest can
 * be looked at. */
enum config_state {
    STATE_DEFAULT,
    STATE_SET,
    STATE_DERIVED, /* follows from other keys */
    STATE_IDLE,    /* of something this run has not: neither shown nor written down */
    STATE_WRONG
};

struct config_source {
    struct pool pool;
    struct config_node *root; /* mapping of canonical keys */
    unsigned char *state;     /* enum config_state, one per row of config_keys */
    struct problems problems; /* what is wrong so far */
    struct str remarks;       /* lines for the log once the config is accepted */
};

/* Keeps a mistake and goes on (OK); hands back any other failure. */
enum status config_note(struct config *cfg, enum status s) MUST_CHECK;
void config_remark(struct config *cfg, const char *fmt, ...) PRINTF_LIKE(2, 3);
void config_mark_wrong(struct config *cfg, const struct config_key *key);

/* The member of root that holds a row's value, or NULL; its name as the user wrote it. */
struct config_node *config_node_of(const struct config *cfg, const struct config_key *key);
const char *config_node_name(const struct config_node *node);

/* *top = the mapping that `deepspeed` is or names, without what says "auto" (deepspeed.c). */
enum status config_deepspeed(struct config *cfg, struct config_node *node,
                             struct config_node **top) MUST_CHECK;

/* *settings = the mapping that `optim_args` is or stands for, with the keys that its names mean for
 * the optimizer that root names (optim_args.c). */
enum status config_optim_args(struct config *cfg, struct config_node *node,
                              struct config_node **settings) MUST_CHECK;

/* Takes the members of a parsed mapping into root under canonical names; notes what is wrong
 * (admit.c). */
enum status config_admit(struct config *cfg, struct config_node *top) MUST_CHECK;
enum status config_override(struct config *cfg, const char *text) MUST_CHECK;

/* Fills every field from root, or from its default; notes what is wrong (bind.c). */
enum status config_bind(struct config *cfg) MUST_CHECK;
/* One word of a choice set; `what` names the key in messages. */
enum status config_bind_choice(const struct config_node *node, const char *what, const char *set,
                               int *value) MUST_CHECK;

/* One scalar into a field of the row's type, or the field's unset value (values.c). */
enum status config_take_value(struct pool *pool, const struct config_key *key,
                              const struct config_node *node, void *field) MUST_CHECK;
void config_take_unset(const struct config_key *key, void *field);
enum status config_wrong_type(const struct config_key *key,
                              const struct config_node *node) MUST_CHECK;
const char *config_type_word(enum config_type type);

/* datasets.c */
enum status config_bind_datasets(struct config *cfg, const struct config_key *key,
                                 const struct config_node *node,
                                 struct config_datasets *out) MUST_CHECK;

/* What an entry says about records, beyond the defaults, into a JSON object. */
void config_add_fields(const struct config_dataset *d, json_t *out);

/* The checks of config_resolve, noting what is wrong; those about keys that are wrong already are
 * left out (resolve.c). */
enum status config_resolve_all(struct config *cfg, int64_t n_ranks) MUST_CHECK;

/* What the keys of the schedule come to (resolve_schedule.c). */
enum status config_resolve_warmup(struct config *cfg) MUST_CHECK;
enum status config_resolve_min_lr(struct config *cfg) MUST_CHECK;
enum status config_resolve_schedule(struct config *cfg) MUST_CHECK;

/* Refuses keys of an inline model that are wrong or unknown to its architecture (model.c).
 */
enum status config_check_model(const struct config *cfg, int *reads_text) MUST_CHECK;

enum config_state config_state_of(const struct config *cfg, const void *field);
/* The key whose value a field of the config is. */
const char *config_name_of(const struct config *cfg, const void *field);
void config_mark_derived(struct config *cfg, const void *field);
void config_mark_idle(struct config *cfg, const void *field);

/* quantization.c: steps of config_resolve_all. */
enum status config_resolve_quantization(struct config *cfg) MUST_CHECK;
/* preferences.c */
enum status config_resolve_adapting(struct config *cfg) MUST_CHECK;
enum status config_resolve_preferences(struct config *cfg) MUST_CHECK;
enum status config_resolve_phases(struct config *cfg) MUST_CHECK;
enum status config_resolve_prediction(struct config *cfg) MUST_CHECK;
enum status config_resolve_compute_dtype(struct config *cfg) MUST_CHECK;

/* Value text, shared by printing and docs (print.c). */
void config_add_double(struct str *out, double x);
void config_add_json(struct str *out, const json_t *value); /* on one line */
/* "name:" and the items of an array that config_json made, as the reader takes them. */
void config_add_datasets(struct str *out, const char *name, const json_t *array);

#endif
