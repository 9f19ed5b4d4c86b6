/* snug.h: Snug as a library: training neural networks inside a memory budget.
 *
 *     struct snug_config *config;
 *     struct snug_run *run;
 *     snug_config_load(&config, "demo.yaml", NULL, 0);
 *     snug_run_open(&run, config, NULL, SNUG_TRAIN);         plans; allocates nothing large
 *     snug_run_forecast(run, &forecast);                     what every byte is for
 *     snug_run_train(run, &(struct snug_train_options){0});  trains, saves checkpoints
 *     snug_run_close(run);
 *     snug_config_free(config);
 *
 * Every function that can fail returns enum snug_status; snug_error_message() then says what was
 * wrong, where, and what would help. Nothing here prints, except that snug_run_train writes
 * to stderr when it is asked to (options.terminal). Handles are opaque; a handle is used by one
 * thread at a time; different handles may be used by different threads. The library reads no
 * environment variables (OpenBLAS reads its own): what the program knows from its environment it
 * passes in struct snug_settings.
 *
 * Bytes are int64_t, times are seconds unless the name ends in _ms. Text that is handed out
 * (char **) is NUL-terminated UTF-8 and is freed with snug_free().
 */
#ifndef SNUG_H
#define SNUG_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SNUG_VERSION "0.1.0"

#if defined(__GNUC__) || defined(__clang__)
#define SNUG_MUST_CHECK __attribute__((warn_unused_result))
#else
#define SNUG_MUST_CHECK
#endif

/* ---- status ---------------------------------------------------------------------------------- */

enum snug_status {
    SNUG_OK = 0,
    SNUG_ERR_FAILED = 1,
    SNUG_ERR_INTERNAL = 2, /* a bug in Snug */
    SNUG_ERR_IO = 3,
    SNUG_ERR_MEMORY = 4, /* of the host, outside the plan */
    SNUG_ERR_SHAPE = 5,
    SNUG_ERR_PROGRAM = 6, /* a program failed its check: a bug in Snug */
    SNUG_ERR_NUMERIC = 7, /* a loss or gradient is not finite */
    SNUG_ERR_USAGE = 8,
    SNUG_ERR_CONFIG = 9,
    SNUG_ERR_UNSUPPORTED = 10,   /* this build or machine does not have it */
    SNUG_ERR_FIT = 11,           /* no way to run it inside the budget */
    SNUG_ERR_DEVICE_MEMORY = 12, /* the device ran out all the same: a bug in Snug */
    SNUG_ERR_DATA = 13,
    SNUG_ERR_CHECKPOINT = 14,
    SNUG_ERR_INTERRUPTED = 15, /* stopped on request, after saving */
    SNUG_ERR_TERMINATED = 16,  /* stopped by SIGTERM, after saving */
    SNUG_ERR_HANGUP = 17,      /* stopped by SIGHUP, after saving */
};

/* The exit code of a process that ends with this status: 0 done, 1 failure, 2 bad usage or config,
 * 3 does not fit, 4 the device ran out of memory, 5 bad data or checkpoint, 129/130/143
 * stopped by a signal, after saving. */
int snug_exit_code(enum snug_status status);
const char *snug_status_name(enum snug_status status); /* "ERR_CONFIG" */

/* The last error of this thread: what was wrong, and the place in Snug's source that noticed.
 * Never NULL; valid until the next call that fails. */
const char *snug_error_message(void);
const char *snug_error_place(void);
/* {"error": {"status": "ERR_CONFIG", "message": "...", "exit_code": 2}} */
enum snug_status snug_error_json(enum snug_status status, char **text) SNUG_MUST_CHECK;

const char *snug_version(void);
void snug_free(void *text); /* NULL is fine */

/* ---- what the program knows from its environment --------------------------------------------- */

/* Borrowed for as long as the handle that was opened with it. NULL in place of a pointer to one:
 * all unset. */
struct snug_settings {
    const char *hub_folder;   /* Hugging Face cache, for names such as ORG/NAME; NULL: none */
    const char *logging_dir;  /* TensorBoard events go here; NULL: where the config says */
    const char *cache_folder; /* what is measured about a device is kept here, and plans that were
                               * searched for; NULL: nowhere */
    bool replans;             /* they are searched for again all the same */
    int num_threads;          /* on the CPU, where the config does not say; 0: all processors */
    const char *gpu;          /* a GPU to plan for without having it (snug_gpu_name), whatever
                               * device the config names; nothing runs then. NULL: the config's */
};

/* Names of the GPUs that can be planned for. NULL when i is past the last. */
const char *snug_gpu_name(size_t i);

/* ---- configs --------------------------------------------------------------------------------- */

struct snug_config;

/* Reads a YAML file, applies overrides ("key=value", "model.n_layer=2") in order and resolves what
 * was left open. When `path` is a model folder in Hugging Face layout (a checkpoint, say), the
 * config is that model with defaults; when it is the output_dir of a run, that run's config. `path`
 * may be NULL: overrides only. */
enum snug_status snug_config_load(struct snug_config **out, const char *path,
                                  const char *const *overrides, size_t n_overrides) SNUG_MUST_CHECK;
void snug_config_free(struct snug_config *config); /* NULL is fine */
/* As YAML that loads back to the same config, and as one JSON object. */
enum snug_status snug_config_yaml(const struct snug_config *config, char **text) SNUG_MUST_CHECK;
enum snug_status snug_config_json(const struct snug_config *config, char **text) SNUG_MUST_CHECK;
/* True when the user gave the key (in the file or as an override). */
bool snug_config_is_set(const struct snug_config *config, const char *key);
const char *snug_config_output_dir(const struct snug_config *config);
/* What the config says of how much the terminal shows: "passive" (nothing), "debug", "info",
 * "warning" or "error". The library does not act on it: its program does. */
const char *snug_config_log_level(const struct snug_config *config);
/* Names of all keys, for command lines. NULL when i is past the last. */
const char *snug_config_key(size_t i);
/* What a name is as an option of a command line: of a key, of another spelling of one, or of a key
 * that is known and not acted on. `-` and `_` are the same. A switch may be given without a value,
 * which is then true; of a maybe, only what cannot be an option of its own is its value. */
enum snug_key_kind { SNUG_KEY_NONE, SNUG_KEY_VALUE, SNUG_KEY_SWITCH, SNUG_KEY_MAYBE };
enum snug_key_kind snug_config_key_kind(const char *name);
/* All of them for people and for completion: a line `key=default  word, word`, then the meaning. */
enum snug_status snug_config_keys_text(char **text) SNUG_MUST_CHECK;

/* ---- runs: a model planned on this machine --------------------------------------------------- */

struct snug_run;

enum snug_purpose { SNUG_TRAIN = 1, SNUG_EVALUATE = 2 };

/* What bytes are for, in the order of the reports. */
enum snug_memory {
    SNUG_MEMORY_WEIGHTS,
    SNUG_MEMORY_FROZEN, /* weights that are not trained */
    SNUG_MEMORY_MASTERS,
    SNUG_MEMORY_GRADIENTS,
    SNUG_MEMORY_OPTIMIZER,
    SNUG_MEMORY_ACTIVATIONS,
    SNUG_MEMORY_RECOMPUTE,
    SNUG_MEMORY_LOGITS,
    SNUG_MEMORY_WORKSPACE,
    SNUG_MEMORY_STAGING,
    SNUG_MEMORY_COUNT
};
const char *snug_memory_name(enum snug_memory m); /* "weights" */

/* What leaves the device, as a number of blocks whose part of it does; what belongs to no block
 * (embedding, head) counts as one more. */
enum snug_extent {
    SNUG_EXTENT_ACTIVATIONS, /* what is saved for the backward pass is kept on the host */
    SNUG_EXTENT_RECOMPUTED,  /* or made again */
    SNUG_EXTENT_OPTIMIZER,   /* states and f32 masters are kept on the host */
    SNUG_EXTENT_GRADIENTS,   /* and gradients that wait for the update */
    SNUG_EXTENT_WEIGHTS,
    SNUG_EXTENT_COUNT
};
const char *snug_extent_name(enum snug_extent e); /* "weights_on_host" */

#define SNUG_NO_BUDGET INT64_MAX

/* A memory as the system or the driver sees it. SNUG_NO_BUDGET: not known. */
struct snug_room {
    const char *whose; /* "the machine", "cgroup /jobs/17", "the GPU" */
    int64_t total_bytes, free_bytes;
};

/* Everything that is known before the first step. Text is owned by the run. */
struct snug_forecast {
    bool fits;
    const char
        *binding; /* tier that is over its budget, or the fullest: "device", "host", "disk" */

    const char *model;                                   /* architecture: "llama" */
    int64_t n_params, n_trainable, n_layers, vocab_size; /* vocab_size 0: it reads no text */
    int64_t n_active; /* parameters that one token meets: fewer than all where there are experts */
    const char *precision; /* "f32", "bf16 with f32 masters" */
    const char *device;    /* "cpu, 2 threads, Haswell" */
    const char *weights;   /* folder they come from; NULL: initialised from the seed */
    const char *output_dir;

    const char
        *unit; /* what steps are counted in: "tokens"; "samples" where a network reads none */
    int64_t micro_batch, n_micro, n_ranks, seq_len; /* seq_len 1: samples have no length */
    int64_t tokens_per_step;                        /* of the unit, here and in rates */

    int64_t arena_bytes, host_bytes, disk_bytes; /* one allocation per tier, to the byte */
    int64_t context_bytes;  /* of the device's memory: the process outside its arenas */
    int64_t beside_bytes;   /* of the host's memory: likewise; on the CPU the context */
    int64_t data_bytes;     /* of the host's memory, while data is read, before there are arenas */
    int64_t device_bytes;   /* the most of the device that the system will show for the process */
    int64_t resident_bytes; /* the most of the host's memory that it will show for the process */
    int64_t arena_lower_bound; /* no layout of this program can be smaller */
    const char *layout_method;
    int64_t device_budget, host_budget, disk_budget; /* SNUG_NO_BUDGET: none */
    const char *disk_folder;                         /* of what is on disk; NULL: there is none */
    int64_t disk_read, disk_written;                 /* bytes from and to disk in a step */
    double disk_read_rate, disk_write_rate;          /* bytes per second, as measured */
    double disk_read_in_turns, disk_write_in_turns;  /* likewise, where the two alternate */
    double step_read_rate, step_write_rate;          /* what a step is predicted to see; 0: none */
    bool device_budget_given, host_budget_given, disk_budget_given; /* else what is free */
    int64_t device_needs;  /* what counts against device_budget: on a GPU the context too */
    int64_t host_needs;    /* what counts against host_budget: all but the arena of the device */
    bool memory_is_shared; /* the device's memory is the host's: one room for both */
    struct snug_room device_room, host_room;
    int64_t breakdown[SNUG_MEMORY_COUNT];      /* of the arena, at its fullest instant */
    int64_t fragmentation;                     /* of the arena, at that instant */
    int64_t host_breakdown[SNUG_MEMORY_COUNT]; /* of the host's arena, at its own fullest instant */
    int64_t disk_breakdown[SNUG_MEMORY_COUNT]; /* of what is on disk, likewise */
    const char *fullest; /* which part of the step that is: "backward, block 3, attention_grad" */

    double step_s, tokens_per_s; /* 0 when nothing is trained */
    bool is_estimate;            /* of a GPU that is not here */
    /* What it took to have the plan: the device and the model's files opened, graphs built, the
     * plan chosen, kernels timed that had not been. */
    double opening_s, building_s, choosing_s, timing_s;
    bool was_kept;            /* it was not searched for: an earlier plan for the same was */
    const char *step_source;  /* of what: "measured kernels", "rates" or "an estimate" */
    int n_kernels, n_by_rate; /* distinct calls of kernels; those whose time comes from rates */
    double step_flops;        /* useful ones: what is computed twice counts once */
    double recompute_flops;   /* what is computed twice, per step */
    int n_blocks, n_blocks_recomputed;
    int extents[SNUG_EXTENT_COUNT]; /* as asked for, and as the budgets need */
    int64_t ring_bytes;             /* that are fetched from the host ahead of their use */
    int defers_updates;             /* those of a step run in the next one's forward pass */
    int micro_batch_group;          /* micro-batches that run together, block by block; 1: one */
};

/* Builds, plans and checks. A plan that is over its budget is not an error here: the forecast says,
 * and snug_run_require_fit. `purposes` are snug_purpose bits; SNUG_EVALUATE is added to SNUG_TRAIN
 * when the config asks for evaluations. The config must outlive the run. */
enum snug_status snug_run_open(struct snug_run **out, const struct snug_config *config,
                               const struct snug_settings *settings,
                               unsigned purposes) SNUG_MUST_CHECK;
void snug_run_close(struct snug_run *run); /* NULL is fine */

void snug_run_forecast(const struct snug_run *run, struct snug_forecast *out);
/* SNUG_ERR_FIT with the binding constraint in bytes and the nearest change that would fit. */
enum snug_status snug_run_require_fit(const struct snug_run *run) SNUG_MUST_CHECK;
/* What was decided without being asked for, one line each. */
enum snug_status snug_run_decisions(const struct snug_run *run, char **text) SNUG_MUST_CHECK;
/* What binds a plan to train that fits, and what more memory or other settings would make of it,
 * one line each. Each of them is planned: that takes as long as the plan did, several times. */
enum snug_status snug_run_prospects(const struct snug_run *run, char **text) SNUG_MUST_CHECK;
/* Memory over the instructions of a step: characters for a terminal, or an SVG document. */
enum snug_status snug_run_timeline(const struct snug_run *run, int n_columns, int n_rows,
                                   bool colour, char **text) SNUG_MUST_CHECK;
enum snug_status snug_run_timeline_svg(const struct snug_run *run, char **text) SNUG_MUST_CHECK;
/* The plan as a page for a browser, one file that needs nothing else: memory over the step, every
 * buffer at its address, what each queue does when; after a training that timed some steps, what
 * was measured beside what was predicted. `status`: see snug_run_json. */
enum snug_status snug_run_page(const struct snug_run *run, enum snug_status status,
                               char **text) SNUG_MUST_CHECK;
/* The plan as a memory snapshot of PyTorch, pickled: pytorch.org/memory_viz shows it. Not a text.
 */
enum snug_status snug_run_snapshot(const struct snug_run *run, char **bytes,
                                   size_t *n_bytes) SNUG_MUST_CHECK;
/* The training step (or the evaluation, where nothing is trained) in text form: its graph, or the
 * program planned for it, with every address. Both can be read back; see docs/ARCHITECTURE.md. */
enum snug_dump { SNUG_DUMP_GRAPH, SNUG_DUMP_PROGRAM };
enum snug_status snug_run_dump(const struct snug_run *run, enum snug_dump what,
                               char **text) SNUG_MUST_CHECK;
/* One JSON object: the forecast and, once there is one, the result of training. `status` is how
 * the last call ended: anything but SNUG_OK adds "error". */
enum snug_status snug_run_json(const struct snug_run *run, enum snug_status status,
                               char **text) SNUG_MUST_CHECK;

/* ---- training -------------------------------------------------------------------------------- */

/* One optimizer step, as it was. */
struct snug_step {
    int64_t step, n_steps; /* 1-based; of how many */
    double epoch, loss, grad_norm, learning_rate;
    double loss_scale;                /* of the next step; 0: the loss is not scaled */
    bool skipped;                     /* scaled gradients overflowed: nothing was updated */
    int64_t n_tokens, n_tokens_total; /* that counted in the loss */
    double seconds, tokens_per_s, mfu, eta_s;
    int64_t arena_bytes, arena_predicted;   /* high-water mark so far */
    int64_t device_bytes, device_predicted; /* as the system sees the process */
    int64_t host_bytes;
};

/* A number beside the loss: perplexity; or one of the losses, where there are several. */
struct snug_metric {
    const char *name; /* static */
    double value;
};
enum { SNUG_METRICS_MOST = 24 };

struct snug_evaluation {
    int64_t step; /* after which; 0 outside training */
    double loss, seconds;
    struct snug_metric metrics[SNUG_METRICS_MOST];
    int n_metrics;
    int64_t n_tokens, n_batches;
    const char *unit; /* what n_tokens counts: "tokens", "samples"; NULL: nothing was evaluated */
    const char *weights; /* folder they came from; NULL: not loaded. Owned by the run */
    const char *data;    /* "eval_datasets", "val_set_size", "datasets" */
    int64_t resident_bytes, resident_predicted; /* of the host's memory; outside training */
};

/* Called between steps; any may be NULL. Anything but SNUG_OK ends the run with that status. */
/* What the model wrote after one of the sample_prompts, while it was trained; the texts are valid
 * during the call. */
struct snug_sample {
    int64_t step;
    int index; /* of the prompt */
    const char *prompt, *text;
    int64_t n_tokens; /* of the text */
    bool ended;       /* by the model's end of text */
    double seconds;
};

struct snug_observer {
    void *user;
    enum snug_status (*on_step)(void *user, const struct snug_step *step);
    enum snug_status (*on_eval)(void *user, const struct snug_evaluation *evaluation);
    enum snug_status (*on_save)(void *user, int64_t step, const char *path, double seconds);
    enum snug_status (*on_sample)(void *user, const struct snug_sample *sample);
};

struct snug_train_options {
    const struct snug_observer *observer; /* NULL: none */
    volatile sig_atomic_t *stop; /* set it to a signal's number: finish the step, save, return */
    bool terminal;               /* log lines and a progress bar on stderr, as the config says */
    const char *profile;         /* a trace of some steps is written to this file; NULL: none is */
    int64_t profile_steps;       /* how many are timed, from the fourth of the run on; 0: 3 for a
                                    trace, and none without one */
};

/* What predictive phases came to, those of before a resume included. */
struct snug_phases {
    bool has_phases;
    int64_t n_accepted, n_rejected, n_withheld, n_undone; /* jumps */
    double n_jumped;       /* steps that the accepted ones were worth */
    double seconds, share; /* of this run: snapshots, jumps and probes; of its time */
};

/* What predicted gradients came to, those of before a resume included. */
struct snug_control {
    bool has_control;
    int64_t n_measured, n_paid; /* measurements, and those that found that it pays */
    int64_t n_predicted;        /* steps */
    double variance_ratio;      /* mean of the measurements: of a step, beside a plain one */
    double cost_ratio;          /* in FLOPs, likewise */
    double time_ratio;          /* of this run's steps, measured; 0: not of both kinds */
    double seconds, share;      /* of this run: measuring; of its time */
};

struct snug_train_result {
    int64_t n_steps, last_step;                    /* run in this call; number of the last */
    int64_t n_kept;                                /* of these: the last 65536 at most */
    const double *losses;                          /* [n_kept] */
    const double *step_s;                          /* [n_kept] */
    int64_t n_skipped;                             /* of these, by loss scaling */
    double loss_scale;                             /* in the end; 0: the loss is not scaled */
    double median_step_s, seconds;                 /* of one step; of all of them */
    double tokens_per_s, samples_per_s, mfu;       /* by the median step */
    int64_t arena_bytes, host_bytes, device_bytes; /* measured */
    int64_t resident_bytes, disk_bytes;            /* likewise */
    double disk_read_rate, disk_write_rate;        /* bytes per second while it ran; 0: none */
    double disk_busy;                              /* share of the time of its steps */
    const char *last_checkpoint;                   /* NULL: none was saved */
    const char *profile; /* where the profiled steps' time went, as a table; NULL: no profile */
    struct snug_phases phases;
    struct snug_control control;
};

/* Trains from where the config says (fresh, or resume_from_checkpoint) to the end. metrics.jsonl
 * and TensorBoard events are written as the config says. SNUG_ERR_INTERRUPTED,
 * SNUG_ERR_TERMINATED or SNUG_ERR_HANGUP after saving, when *stop was set. Once per run. */
enum snug_status snug_run_train(struct snug_run *run,
                                const struct snug_train_options *options) SNUG_MUST_CHECK;
/* Of the last snug_run_train, also of one that failed; owned by the run. */
void snug_run_result(const struct snug_run *run, struct snug_train_result *out);

/* Mean loss over the evaluation data. `checkpoint`: see snug_generator_open. Once per run. */
enum snug_status snug_run_evaluate(struct snug_run *run, const char *checkpoint,
                                   struct snug_evaluation *out) SNUG_MUST_CHECK;
enum snug_status snug_evaluation_json(const struct snug_evaluation *evaluation,
                                      char **text) SNUG_MUST_CHECK;

/* Other budgets ("device_memory=9GiB", "host_memory=auto") for the run that is at work in a folder:
 * it changes over between two steps, and its losses stay the same to the bit. Waits for its answer;
 * *answer (freed with snug_free) says in words what came of it. SNUG_ERR_FIT: nothing fits, and the
 * run goes on as it was. *stop (NULL: never) ends the waiting. */
enum snug_status snug_budget(const char *output_dir, const char *const *settings, size_t n_settings,
                             volatile sig_atomic_t *stop, char **answer) SNUG_MUST_CHECK;

/* ---- watching a run -------------------------------------------------------------------------- */

/* A run in another process, by what it leaves in its output_dir while it trains: the last step, the
 * instruction it is at, the memory planned for that; what others hold; how it stands. */
struct snug_monitor;

/* thresholds: "balanced", "aggressive", "conservative"; NULL: balanced. SNUG_ERR_IO where no run
 * has trained. The settings are borrowed until it is closed. */
enum snug_status snug_monitor_open(struct snug_monitor **out, const char *output_dir,
                                   const struct snug_settings *settings,
                                   const char *thresholds) SNUG_MUST_CHECK;
void snug_monitor_close(struct snug_monitor *m); /* NULL is fine */
/* Looks again. Growth is told from twenty looks. */
enum snug_status snug_monitor_look(struct snug_monitor *m) SNUG_MUST_CHECK;
/* Plans what the run could be resumed with in less memory, for seconds or minutes; in the text and
 * the object from then on. */
enum snug_status snug_monitor_advise(struct snug_monitor *m) SNUG_MUST_CHECK;
/* What was seen last: one JSON object, or a drawing in characters. */
enum snug_status snug_monitor_json(const struct snug_monitor *m, char **text) SNUG_MUST_CHECK;
enum snug_status snug_monitor_text(const struct snug_monitor *m, int n_columns, int n_rows,
                                   bool colour, char **text) SNUG_MUST_CHECK;
/* On the terminal of stdin and stdout until q is pressed or *stop is set. SNUG_ERR_UNSUPPORTED
 * without ncurses. */
enum snug_status snug_monitor_screen(struct snug_monitor *m, bool colour,
                                     const volatile sig_atomic_t *stop) SNUG_MUST_CHECK;

/* The page of a run, for a browser. It listens on 127.0.0.1 unless told otherwise, and shows to
 * whoever asks; what changes the run (save, pause, stop) takes the token, which is in the address.
 */
struct snug_server;

/* address: "PORT" (0: any), "HOST:PORT"; NULL or "": 127.0.0.1:7007. The run need not have begun.
 * SNUG_ERR_UNSUPPORTED without libmicrohttpd. The settings are borrowed until it is closed. */
enum snug_status snug_server_open(struct snug_server **out, const char *output_dir,
                                  const char *address, const struct snug_settings *settings,
                                  const char *thresholds) SNUG_MUST_CHECK;
const char *snug_server_url(const struct snug_server *s); /* with the token; owned by the server */
/* Serves until *stop is set. */
enum snug_status snug_server_run(struct snug_server *s,
                                 const volatile sig_atomic_t *stop) SNUG_MUST_CHECK;
/* Serves the run that this process will train, in a process of its own: no client can slow it. To
 * be called before anything is opened; ended by snug_server_close. */
enum snug_status snug_server_start(struct snug_server *s) SNUG_MUST_CHECK;
void snug_server_close(struct snug_server *s); /* NULL is fine */

/* Reads every byte of a checkpoint and checks it: sizes, checksums, tensors. */
enum snug_status snug_checkpoint_verify(const char *path) SNUG_MUST_CHECK;

/* ---- generation ------------------------------------------------------------------------------ */

struct snug_generator;

struct snug_generate_request {
    const char *prompt; /* "" or NULL: begin from the model's first token */
    int64_t max_new_tokens;
    double temperature; /* 0: always the likeliest token */
    int64_t top_k;      /* 0: all tokens */
    double top_p;       /* 1: all tokens */
    uint64_t seed;
    const char *stop; /* text that ends what is made, and is no part of it; NULL: none */
};

struct snug_generation {
    int64_t n_prompt_tokens, n_new_tokens;
    const int32_t *tokens; /* [n_new_tokens], without the end-of-text token */
    const char *text;      /* of the new tokens; bytes that are no UTF-8 became U+FFFD */
    bool ended;            /* by the model's end of text; false: max_new_tokens or context full */
    double prefill_s, decode_s;
    int64_t arena_bytes, arena_predicted, host_bytes; /* measured and predicted */
    int64_t resident_bytes, resident_predicted;       /* likewise, of the host's memory */
    const char *weights; /* folder they came from; NULL: initialised from the seed */
};

/* Plans a prefill and a decode program inside device_memory, and loads weights.
 * `checkpoint` says which: a folder (a checkpoint, or any model folder), "last" (the newest
 * complete one in output_dir), "best" (the one after its best evaluation), "none" (the model as
 * configured), or NULL: the newest complete one if there is one (the best one with
 * load_best_model_at_end), else the model as configured. The request's prompt and max_new_tokens
 * size the key/value cache. */
enum snug_status snug_generator_open(struct snug_generator **out, const struct snug_config *config,
                                     const struct snug_settings *settings, const char *checkpoint,
                                     const struct snug_generate_request *request) SNUG_MUST_CHECK;
void snug_generator_close(struct snug_generator *g); /* NULL is fine */

/* Called with whole UTF-8 characters as they come; not NUL-terminated. */
typedef enum snug_status (*snug_text_callback)(void *user, const char *text, size_t n_bytes);

/* Generates for the request it was opened with. on_text may be NULL. *stop (may be NULL), set to a
 * signal's number, ends it between two tokens: SNUG_ERR_INTERRUPTED or SNUG_ERR_TERMINATED, with
 * what there is in *out. The result is owned by the generator. */
enum snug_status snug_generate(struct snug_generator *g, snug_text_callback on_text, void *user,
                               const volatile sig_atomic_t *stop,
                               struct snug_generation *out) SNUG_MUST_CHECK;
enum snug_status snug_generation_json(const struct snug_generate_request *request,
                                      const struct snug_generation *generation,
                                      char **text) SNUG_MUST_CHECK;

/* A conversation in the tokenizer's chat template, or the config's. The request's prompt is not
 * read; `system` is a message (NULL: none, or the template's own); `context` limits the tokens of
 * the conversation (0: the model does). */
struct snug_chat;

enum snug_status snug_chat_open(struct snug_chat **out, const struct snug_config *config,
                                const struct snug_settings *settings, const char *checkpoint,
                                const struct snug_generate_request *request, const char *system,
                                int64_t context) SNUG_MUST_CHECK;
void snug_chat_close(struct snug_chat *c); /* NULL is fine */

/* The user says `text`; the assistant's answer is generated as by snug_generate. Where it fails,
 * the conversation is as before. */
enum snug_status snug_chat_say(struct snug_chat *c, const char *text, snug_text_callback on_text,
                               void *user, const volatile sig_atomic_t *stop,
                               struct snug_generation *out) SNUG_MUST_CHECK;
void snug_chat_reset(struct snug_chat *c); /* begins anew, with the same system message */

/* ---- files ----------------------------------------------------------------------------------- */

struct snug_tokenized {
    int64_t n_tokens, vocab_size;
    int64_t n_bytes;      /* of the file */
    int64_t n_unlabelled; /* tokens that the input marked as no label: the file cannot say so */
};

/* Text, JSONL or token files into one llm.c token file, with the config's tokenizer. out_path must
 * not be one of them. */
enum snug_status snug_tokenize(const struct snug_config *config,
                               const struct snug_settings *settings, const char *const *inputs,
                               size_t n_inputs, const char *out_path,
                               struct snug_tokenized *out) SNUG_MUST_CHECK;
enum snug_status snug_tokenized_json(const struct snug_tokenized *t, const char *out_path,
                                     char **text) SNUG_MUST_CHECK;

/* The data of a config as training sees it: examples of their own (records), or sequences cut out
 * of one stream. */
struct snug_data;

enum { SNUG_DATA_BINS = 16 };

struct snug_data_summary {
    const char *noun;      /* "examples" or "sequences" */
    const char *templates; /* the chat template's family; NULL: none is known */
    int64_t n_samples, n_tokens;
    int64_t n_labels; /* tokens that are learnt, of n_looked_at */
    int64_t n_looked_at;
    int64_t n_read, n_truncated, n_dropped, n_unlabelled; /* records; the others are left out */
    int64_t shortest, longest;
    int64_t bin_tokens; /* of the histogram: samples of 1 to bin_tokens are in the first, */
    int64_t bins[SNUG_DATA_BINS]; /* and so on */
    int64_t n_rows;     /* that they are packed into (packing: true); 0: each has its own */
    int64_t row_tokens; /* of a row: max_seq_length */
};

/* Reads, tokenises and keeps the data as training does. */
enum snug_status snug_data_open(struct snug_data **out, const struct snug_config *config,
                                const struct snug_settings *settings) SNUG_MUST_CHECK;
void snug_data_close(struct snug_data *d); /* NULL is fine */
void snug_data_summarise(const struct snug_data *d, struct snug_data_summary *out);

/* Tokens in a row that are learnt, or that are not, and their text (UTF-8). */
struct snug_data_piece {
    const char *text;
    size_t n_bytes;
    int64_t n_tokens;
    bool is_learnt;
};
typedef enum snug_status (*snug_piece_callback)(void *user, const struct snug_data_piece *piece);

/* The pieces of sample i, one after the other. */
enum snug_status snug_data_sample(const struct snug_data *d, int64_t i,
                                  snug_piece_callback on_piece, void *user) SNUG_MUST_CHECK;
/* The summary, and the first n samples with their ids. */
enum snug_status snug_data_json(const struct snug_data *d, int64_t n_samples,
                                char **text) SNUG_MUST_CHECK;

struct snug_export_options {
    const char *checkpoint; /* see snug_generator_open */
    const char *out_dir;    /* the folder, or the GGUF file */
    const char *format;     /* "hf", "gguf"; NULL: GGUF where out_dir ends in .gguf */
    /* "f32", "bf16", "f16", of GGUF also "q8_0", "q4_0", "q4_k_m"; NULL: f32, or bf16 when the
     * config says bf16 */
    const char *dtype;
    bool force; /* replace a folder that is not empty, or a file */
    bool merge; /* an adapter is added to the weights, instead of written by itself */
};

struct snug_exported {
    int64_t n_params, n_tensors;
    const char *dtype;
    char *weights;  /* folder they came from (freed with snug_free); NULL: initialised */
    bool is_gguf;   /* and then: */
    bool is_merged; /* there was an adapter, which is in it */
    bool has_tokenizer;
    int64_t n_bytes; /* of the weights in the file */
    int64_t n_wider; /* tensors whose rows are no whole blocks of the type: they have a wider one */
};

/* Writes a Hugging Face model folder; of a model with an adapter, unless that is merged, the
 * adapter alone in PEFT's format. Or a GGUF file, which always is a whole model. */
enum snug_status snug_export(const struct snug_config *config, const struct snug_settings *settings,
                             const struct snug_export_options *options,
                             struct snug_exported *out) SNUG_MUST_CHECK;
enum snug_status snug_exported_json(const struct snug_exported *e, const char *out_dir,
                                    char **text) SNUG_MUST_CHECK;

/* ---- starting -------------------------------------------------------------------------------- */

/* What a config to start from is for; NULL: not said. */
struct snug_init {
    const char *preset; /* of snug_preset_name or snug_gpu_name */
    const char *model;  /* "gpt2-124m" ..., a folder, ORG/NAME */
    const char *data;   /* a file or folder */
    const char *card;   /* of snug_gpu_name, or "cpu" */
    const char *goal;   /* "pretrain", "finetune", "lora", "qlora" */
    const char *output_dir;
};
/* A commented config, as YAML. */
enum snug_status snug_init_config(const struct snug_init *in, char **text) SNUG_MUST_CHECK;
/* Presets and what they are; NULL when i is past the last. */
const char *snug_preset_name(size_t i);
const char *snug_preset_text(size_t i);

/* ---- the machine and this build -------------------------------------------------------------- */

struct snug_env_options {
    bool ops;                 /* with the op table */
    bool measure;             /* products, memory, links, disk: for a few seconds, and keeps it */
    const char *cache_folder; /* what was measured is kept there; NULL: nowhere */
};

/* Version, compiler, features, processor, memory, GPU, rates and how old they are. */
enum snug_status snug_env_text(const struct snug_env_options *o, char **text) SNUG_MUST_CHECK;
enum snug_status snug_env_json(const struct snug_env_options *o, char **text) SNUG_MUST_CHECK;
/* SNUG_OK when there is a GPU that this build can use; else the reason. */
enum snug_status snug_env_require_gpu(void) SNUG_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
