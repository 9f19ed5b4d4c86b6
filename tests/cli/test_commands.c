/* Every command as a user runs it: what it prints, what it leaves behind, its JSON. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "base/file.h"
#include "device/gpu.h"
#include "program/program.h"
#include "support/process.h"

#define SYNTHETIC "datasets:\n  - type: synthetic\n    n_tokens: 20000\n"

static char config[SCRATCH_PATH]; /* of the test that is running */
static struct scratch scratch;

static int make_scratch(void **state)
{
    (void)state;
    scratch_init(&scratch);
    write_tiny_config(&scratch, "tiny.yaml", SYNTHETIC "max_steps: 4\nsave_steps: 2\n", config);
    return 0;
}

static int drop_scratch(void **state)
{
    (void)state;
    scratch_release(&scratch);
    return 0;
}

static const char *in_scratch(const char *name)
{
    static char paths[8][SCRATCH_PATH];
    static int next;
    return scratch_path(&scratch, name, paths[next++ % 8]);
}

static void expect_plan_keys(const json_t *j)
{
    static const char *const bytes[] = {
        "predicted.arena_bytes", "predicted.device_bytes", "predicted.host_bytes",
        "predicted.disk_bytes",  "breakdown.weights",      "breakdown.masters",
        "breakdown.gradients",   "breakdown.optimizer",    "breakdown.activations",
        "breakdown.recompute",   "breakdown.logits",       "breakdown.workspace",
        "breakdown.staging",     "breakdown.context",      "host_breakdown.optimizer",
        "decisions.ring_bytes",
    };
    for (size_t i = 0; i < ARRAY_LEN(bytes); i++)
        assert_true(json_int_at(j, bytes[i]) >= 0);
    assert_true(json_bool_at(j, "fits"));
    assert_string_equal(json_text_at(j, "binding"), "device");
    assert_true(json_int_at(j, "params") > 20000);
    assert_true(json_number_at(j, "predicted.step_ms") > 0);
    assert_non_null(json_text_at(j, "predicted.step_ms_source"));
    assert_true(json_int_at(j, "predicted.device_bytes") >=
                json_int_at(j, "predicted.arena_bytes") + json_int_at(j, "predicted.host_bytes") +
                    json_int_at(j, "breakdown.context"));
    assert_true(json_int_at(j, "budget.device_room.free_bytes") > 0);
    assert_true(json_int_at(j, "budget.host_needs") >= json_int_at(j, "breakdown.context"));
}

/* Long options with dashes are keys of the config, in the spelling of the document. */
static void the_command_line_of_a_document_is_taken_as_it_stands(void **state)
{
    struct process p;
    (void)state;
    PROCESS_RUN(&p, &scratch, "plan", "--config", "configs/tasks.yml", "--use-fp16",
                "--checkpoint-every-layer", "--grad-accum-steps", "4", "--optimizer", "adamw8bit",
                "--zero-stage", "2", "--max-gpu-mem", "1GiB", "--cpu-mem", "2GiB",
                "--offload-folder", in_scratch("offload"), "--device-map", "auto", "--synthetic",
                "device=cpu", "model.frames=4", "model.image_height=16", "model.image_width=16",
                "model.width_divisor=16", "--json");
    expect_exit(&p, 0);
    expect_stderr(&p, "f16 with f32 masters and loss scaling");
    expect_stderr(&p, "2 samples x 4 accumulated");
    expect_stderr(&p, "zero-stage (one device has nothing to share");
    expect_stderr(&p, "device-map (where tensors live is planned");
    expect_stderr(&p, "disk   memory  0 B of");
    json_t *j = expect_json(&p);
    assert_int_equal(json_int_at(j, "budget.device_bytes"), INT64_C(1) << 30);
    json_decref(j);
    process_release(&p);
}

static void a_switch_needs_no_value_and_a_key_does(void **state)
{
    struct process p;
    (void)state;
    PROCESS_RUN(&p, &scratch, "plan", "--bf16", config, "--tf32", "false");
    expect_exit(&p, 0);
    expect_stderr(&p, "bf16 with f32 masters");
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "plan", config, "--learning-rate", "--bf16");
    expect_exit(&p, 2);
    expect_stderr(&p, "--learning-rate needs a value");
    process_release(&p);
}

static void a_micro_batch_that_is_left_open_without_a_choice_is_said(void **state)
{
    struct process p;
    (void)state;
    PROCESS_RUN(&p, &scratch, "plan", config, "micro_batch_size=auto", "train_batch_size=8",
                "gradient_accumulation_steps=4");
    expect_exit(&p, 0);
    expect_stderr(&p, "it is 2; gradient_accumulation_steps=auto leaves the choice");
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "plan", config, "micro_batch_size=auto", "train_batch_size=8",
                "gradient_accumulation_steps=auto");
    expect_exit(&p, 0);
    expect_stderr(&p, "the best of ");
    assert_null(strstr(p.err, "nothing to choose"));
    process_release(&p);
}

static void plan_says_what_every_byte_is_for(void **state)
{
    (void)state;
    struct process p;
    PROCESS_RUN(&p, &scratch, "plan", config, "--json");
    expect_exit(&p, 0);
    expect_stderr(&p, "parameters");
    expect_stderr(&p, "above the lower bound");
    expect_stderr(&p, "tokens per step");
    json_t *j = expect_json(&p);
    expect_plan_keys(j);
    int64_t sum = json_int_at(j, "breakdown.fragmentation");
    static const char *const classes[] = {"weights",   "masters",     "gradients",
                                          "optimizer", "activations", "recompute",
                                          "logits",    "workspace",   "staging"};
    for (size_t i = 0; i < ARRAY_LEN(classes); i++)
        sum += json_int_at(json_object_get(j, "breakdown"), classes[i]);
    assert_int_equal(sum, json_int_at(j, "predicted.arena_bytes"));
    assert_false(file_exists(in_scratch("out"))); /* it leaves nothing behind */
    json_decref(j);
    process_release(&p);
}

/* What was decided to keep a budget, in words and in JSON; and what the host's memory is for. */
static void plan_says_what_has_left_the_device(void **state)
{
    (void)state;
    struct process p;
    char budget[64];
    PROCESS_RUN(&p, &scratch, "plan", config, "--json");
    json_t *j = expect_json(&p);
    assert_int_equal(json_int_at(j, "decisions.optimizer_on_host"), 0);
    assert_null(strstr(p.err, "to fit the budgets"));
    (void)snprintf(budget, sizeof(budget), "device_memory=%lld",
                   (long long)json_int_at(j, "predicted.arena_bytes") / 2);
    json_decref(j);
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "plan", config, budget, "offload_optimizer=true",
                "gradient_checkpointing=false", "--json");
    expect_exit(&p, 0);
    expect_stderr(&p, "to fit the budgets: ");
    expect_stderr(&p, "optimizer states of all blocks, embedding and head on the host");
    expect_stderr(&p, "what has left the device, inputs, outputs");
    expect_stderr(&p, "- optimizer ");
    j = expect_json(&p);
    assert_int_equal(json_int_at(j, "decisions.optimizer_on_host"),
                     json_int_at(j, "decisions.blocks") + 1);
    assert_int_equal(json_int_at(j, "decisions.recomputed"), 0);
    assert_true(json_int_at(j, "host_breakdown.optimizer") > 0);
    assert_int_equal(json_int_at(j, "breakdown.masters"), 0);
    json_decref(j);
    process_release(&p);
}

static void plan_draws_into_a_file(void **state)
{
    (void)state;
    struct process p;
    char *text;
    size_t n;
    const char *svg = in_scratch("memory.svg");
    PROCESS_RUN(&p, &scratch, "plan", config, "--svg", svg);
    expect_exit(&p, 0);
    assert_string_equal(p.out, "");
    assert_int_equal(file_read(svg, &text, &n), OK);
    assert_non_null(strstr(text, "<svg"));
    mem_free(text);
    process_release(&p);
}

/* What --dump prints is the program that runs: it reads back over the graph, and is whole. */
static void plan_prints_its_graph_and_program(void **state)
{
    (void)state;
    struct process graph_text, program_text;
    struct graph *g;
    struct program *program;
    struct device cpu;
    PROCESS_RUN(&graph_text, &scratch, "plan", config, "--dump", "graph", "device=cpu");
    PROCESS_RUN(&program_text, &scratch, "plan", config, "--dump", "program", "device=cpu");
    expect_exit(&graph_text, 0);
    expect_exit(&program_text, 0);
    assert_int_equal(device_open_cpu(&cpu, 1), OK);
    assert_int_equal(graph_parse(&g, graph_text.out), OK);
    assert_int_equal(program_parse(&program, program_text.out, g, &cpu), OK);
    assert_true(program->instrs.n > g->nodes.n);
    program_free(program);
    graph_free(g);
    device_close(&cpu);
    process_release(&graph_text);
    process_release(&program_text);
    PROCESS_RUN(&graph_text, &scratch, "plan", config, "--dump", "picture");
    expect_exit(&graph_text, 2);
    expect_stderr(&graph_text, "graph or program");
    process_release(&graph_text);
    PROCESS_RUN(&graph_text, &scratch, "plan", config, "--dump", "graph", "--json");
    expect_exit(&graph_text, 2);
    process_release(&graph_text);
}

static void a_budget_that_holds_is_reported(void **state)
{
    (void)state;
    struct process p;
    PROCESS_RUN(&p, &scratch, "plan", config, "--device-memory", "2GiB", "--json");
    expect_exit(&p, 0);
    expect_stderr(&p, "to spare");
    json_t *j = expect_json(&p);
    assert_int_equal(json_int_at(j, "budget.device_bytes"), INT64_C(2) << 30);
    json_decref(j);
    process_release(&p);
}

static void expect_metrics(const char *path, int n_steps)
{
    char *text, *rest;
    size_t n;
    int n_seen[6] = {0};
    static const char *const kinds[] = {"config", "plan", "step", "save", "eval", "end"};
    assert_int_equal(file_read(path, &text, &n), OK);
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        json_t *j = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(j);
        assert_true(json_number_at(j, "t") > 1e9);
        for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
            n_seen[i] += strcmp(json_text_at(j, "kind"), kinds[i]) == 0;
        if (strcmp(json_text_at(j, "kind"), "step") == 0) {
            static const char *const numbers[] = {"epoch", "loss",    "grad_norm", "lr",
                                                  "tok_s", "step_ms", "mfu"};
            for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
                (void)json_number_at(j, numbers[i]);
            assert_int_equal(json_int_at(j, "mem.arena"), json_int_at(j, "mem.arena_pred"));
            assert_true(json_int_at(j, "tokens") > 0);
        }
        json_decref(j);
    }
    assert_int_equal(n_seen[0], 1);
    assert_int_equal(n_seen[1], 1);
    assert_int_equal(n_seen[2], n_steps);
    assert_true(n_seen[3] >= 1);
    assert_int_equal(n_seen[5], 1);
    mem_free(text);
}

static void expect_trace(const char *path)
{
    char *text;
    size_t n;
    assert_int_equal(file_read(path, &text, &n), OK);
    json_t *j = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(j);
    assert_true(json_array_size(json_object_get(j, "traceEvents")) > 100);
    json_decref(j);
    mem_free(text);
}

static void a_profile_goes_where_it_is_told(void **state)
{
    (void)state;
    struct process p;
    PROCESS_RUN(&p, &scratch, "train", config, "max_steps=5", "--profile", "--profile-steps", "2");
    expect_exit(&p, 0);
    expect_stderr(&p, "predicted ms");
    expect_stderr(&p, "whole step, unwatched");
    expect_trace(in_scratch("out/profile.json"));
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "train", config, "max_steps=4", "--profile-steps=1", "--profile",
                in_scratch("a.json"));
    expect_exit(&p, 0);
    expect_trace(in_scratch("a.json"));
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "train", config, "max_steps=5", "--profile");
    expect_exit(&p, 2);
    expect_stderr(&p, "raise max_steps to at least 6");
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "train", config, "--profile-steps", "2");
    expect_exit(&p, 2);
    expect_stderr(&p, "--profile or --html");
    process_release(&p);
}

static void outputs_that_cannot_be_written_are_told_before_the_first_step(void **state)
{
    (void)state;
    static const char *const options[] = {"--html", "--profile"};
    for (size_t i = 0; i < ARRAY_LEN(options); i++) {
        struct process p;
        char option[SCRATCH_PATH + 32];
        (void)snprintf(option, sizeof(option), "%s=%s", options[i], in_scratch("none/page"));
        PROCESS_RUN(&p, &scratch, "train", config, "max_steps=6", option);
        expect_exit(&p, 1);
        expect_stderr(&p, "cannot open for writing");
        assert_null(strstr(p.err, "step 1/6"));
        process_release(&p);
    }
}

static void counts_of_steps_begin_at_one(void **state)
{
    (void)state;
    static const char *const options[] = {"--fast-dev-run=0", "--fast-dev-run=-1",
                                          "--profile-steps=0"};
    for (size_t i = 0; i < ARRAY_LEN(options); i++) {
        struct process p;
        PROCESS_RUN(&p, &scratch, "train", config, "--profile", options[i]);
        expect_exit(&p, 2);
        expect_stderr(&p, "it must be at least 1");
        process_release(&p);
    }
}

static void train_measures_what_was_predicted(void **state)
{
    (void)state;
    struct process p;
    PROCESS_RUN(&p, &scratch, "train", config, "--json");
    expect_exit(&p, 0);
    expect_stderr(&p, "step 4/4  loss ");
    expect_stderr(&p, " tok/s  MFU ");
    expect_stderr(&p, ": equal");
    json_t *j = expect_json(&p);
    expect_plan_keys(j);
    assert_int_equal(json_int_at(j, "measured.arena_bytes"),
                     json_int_at(j, "predicted.arena_bytes"));
    assert_true(json_int_at(j, "measured.device_bytes") > json_int_at(j, "measured.arena_bytes"));
    assert_true(json_number_at(j, "measured.step_ms") > 0);
    assert_true(json_number_at(j, "tokens_per_s") > 0);
    assert_true(json_number_at(j, "samples_per_s") > 0);
    assert_true(json_number_at(j, "mfu") > 0);
    assert_int_equal(json_int_at(j, "steps"), 4);
    assert_int_equal(json_array_size(json_object_get(j, "losses")), 4);
    assert_true(json_is_real(json_array_get(json_object_get(j, "losses"), 0)));
    assert_string_equal(json_text_at(j, "last_checkpoint"), in_scratch("out/checkpoint-4"));
    assert_null(json_at(j, "error"));
    assert_true(file_exists(in_scratch("out/checkpoint-2/model.safetensors")));
    assert_true(file_exists(in_scratch("out/config.yaml")));
    assert_true(file_is_folder(in_scratch("out/runs")));
    expect_metrics(in_scratch("out/metrics.jsonl"), 4);
    json_decref(j);
    process_release(&p);
}

static void the_saved_config_gives_the_same_run(void **state)
{
    (void)state;
    struct process p, q;
    PROCESS_RUN(&p, &scratch, "train", config, "--json", "-q");
    expect_exit(&p, 0);
    PROCESS_RUN(&q, &scratch, "train", in_scratch("out/config.yaml"), "--json",
                "output_dir=/tmp/elsewhere", "save_strategy=no", "report_to=none", "--dry-run");
    expect_exit(&q, 0);
    process_release(&q);
    char again[SCRATCH_PATH + 16];
    (void)snprintf(again, sizeof(again), "output_dir=%s", in_scratch("again"));
    PROCESS_RUN(&q, &scratch, "train", in_scratch("out/config.yaml"), "--json", again);
    expect_exit(&q, 0);
    json_t *a = expect_json(&p), *b = expect_json(&q);
    assert_true(json_equal(json_object_get(a, "losses"), json_object_get(b, "losses")));
    json_decref(a);
    json_decref(b);
    process_release(&p);
    process_release(&q);
}

static void quiet_prints_nothing_and_no_color_no_escapes(void **state)
{
    (void)state;
    struct process p;
    PROCESS_RUN(&p, &scratch, "train", config, "--quiet", "max_steps=1");
    expect_exit(&p, 0);
    assert_string_equal(p.out, "");
    assert_string_equal(p.err, "");
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "train", config, "--no-color", "max_steps=1");
    expect_exit(&p, 0);
    assert_null(strchr(p.err, '\033'));
    process_release(&p);
}

static void logging_steps_and_log_format_decide_what_is_shown(void **state)
{
    (void)state;
    struct process p;
    PROCESS_RUN(&p, &scratch, "train", config, "logging_steps=3", "max_steps=7");
    expect_exit(&p, 0);
    expect_stderr(&p, "step 1/7 ");
    expect_stderr(&p, "step 3/7 ");
    expect_stderr(&p, "step 7/7 ");
    assert_null(strstr(p.err, "step 4/7 "));
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "train", config, "log_format=json");
    expect_exit(&p, 0);
    expect_stderr(&p, "\"kind\":\"step\",\"step\":4,");
    process_release(&p);
}

/* The loss that the line of a step shows. */
static double loss_shown(const struct process *p, const char *step)
{
    const char *line = strstr(p->err, step);
    const char *loss = line ? strstr(line, "loss ") : NULL;
    if (!loss)
        fail_msg("no line of %s: %s", step, p->err);
    return strtod(loss + 5, NULL);
}

static void a_line_shows_the_mean_loss_since_the_one_before(void **state)
{
    (void)state;
    struct process p;
    PROCESS_RUN(&p, &scratch, "train", config, "logging_steps=3", "max_steps=6", "--json");
    expect_exit(&p, 0);
    json_t *j = expect_json(&p);
    double x[6];
    for (size_t i = 0; i < 6; i++)
        x[i] = json_real_value(json_array_get(json_object_get(j, "losses"), i));
    assert_true(fabs(loss_shown(&p, "step 1/6 ") - x[0]) < 1e-4);
    assert_true(fabs(loss_shown(&p, "step 3/6 ") - (x[1] + x[2]) / 2) < 1e-4);
    assert_true(fabs(loss_shown(&p, "step 6/6 ") - (x[3] + x[4] + x[5]) / 3) < 1e-4);
    assert_true(fabs(x[5] - (x[3] + x[4] + x[5]) / 3) > 2e-4); /* it is not the last one's */
    json_decref(j);
    process_release(&p);
}

static void tensorboard_events_go_where_the_environment_says(void **state)
{
    (void)state;
    struct process p;
    struct process_options o = {.variable = "TENSORBOARD_LOGGING_DIR",
                                .setting = in_scratch("board")};
    process_run(&p, &scratch, &o, (const char *const[]){"train", config, "max_steps=1", NULL});
    expect_exit(&p, 0);
    assert_true(file_is_folder(in_scratch("board")));
    assert_false(file_exists(in_scratch("out/runs")));
    process_release(&p);
}

static void expect_threads(const char *setting, const char *key, const char *said)
{
    struct process p;
    struct process_options o = {.variable = "OMP_NUM_THREADS", .setting = setting};
    process_run(&p, &scratch, &o, (const char *const[]){"plan", config, "device=cpu", key, NULL});
    expect_exit(&p, 0);
    if (!strstr(p.out, said) && !strstr(p.err, said))
        fail_msg("no '%s' in: %s%s", said, p.out, p.err);
    process_release(&p);
}

static void threads_are_those_of_the_config_or_else_of_the_environment(void **state)
{
    (void)state;
    expect_threads("3", "num_threads=0", "3 threads");
    expect_threads("3,1", "num_threads=0", "3 threads");
    expect_threads("3", "num_threads=5", "5 threads");
}

static void a_rehearsal_evaluates_saves_and_reads_back(void **state)
{
    (void)state;
    struct process p;
    PROCESS_RUN(&p, &scratch, "train", config, "--fast-dev-run", "2", "val_set_size=8", "--json");
    expect_exit(&p, 0);
    expect_stderr(&p, "eval  step 2");
    expect_stderr(&p, "  perplexity ");
    expect_stderr(&p, "reads back whole");
    json_t *j = expect_json(&p);
    assert_int_equal(json_int_at(j, "steps"), 2);
    assert_false(file_exists(in_scratch("out/checkpoint-2")));
    json_decref(j);
    process_release(&p);
}

static void dry_run_plans_only(void **state)
{
    (void)state;
    struct process p;
    PROCESS_RUN(&p, &scratch, "train", config, "--dry_run", "--json");
    expect_exit(&p, 0);
    json_t *j = expect_json(&p);
    expect_plan_keys(j);
    assert_null(json_at(j, "losses"));
    assert_false(file_exists(in_scratch("out")));
    json_decref(j);
    process_release(&p);
}

static void eval_uses_the_newest_checkpoint_or_the_one_named(void **state)
{
    (void)state;
    struct process p;
    PROCESS_RUN(&p, &scratch, "eval", config, "val_set_size=8", "--json");
    expect_exit(&p, 0);
    json_t *fresh = expect_json(&p);
    assert_true(json_is_null(json_at(fresh, "weights")));
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "train", config, "-q", "max_steps=30", "learning_rate=1e-2",
                "val_set_size=8", "save_steps=15");
    expect_exit(&p, 0);
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "eval", config, "val_set_size=8", "--json");
    expect_exit(&p, 0);
    json_t *trained = expect_json(&p);
    assert_string_equal(json_text_at(trained, "weights"), in_scratch("out/checkpoint-30"));
    assert_string_equal(json_text_at(trained, "data"), "val_set_size");
    assert_true(json_number_at(trained, "eval_loss") < json_number_at(fresh, "eval_loss") - 0.1);
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "eval", config, "val_set_size=8", "--checkpoint", "none", "--json");
    json_t *none = expect_json(&p);
    assert_true(json_number_at(none, "eval_loss") == json_number_at(fresh, "eval_loss"));
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "eval", config, "val_set_size=8", "-c", "checkpoint-15", "--json");
    json_t *middle = expect_json(&p);
    assert_string_equal(json_text_at(middle, "weights"), in_scratch("out/checkpoint-15"));
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "eval", config, "val_set_size=8", "-c", "best");
    expect_exit(&p, 0);
    expect_stderr(&p, "no evaluation says which checkpoint is the best");
    process_release(&p);
    json_decref(fresh);
    json_decref(trained);
    json_decref(none);
    json_decref(middle);
}

static void generate_repeats_itself_with_the_same_seed(void **state)
{
    (void)state;
    struct process p, q;
    PROCESS_RUN(&p, &scratch, "generate", config, "--prompt", "abc", "--max-new-tokens=12",
                "--seed", "5", "--top-k", "40", "--top_p", "0.95", "--json");
    expect_exit(&p, 0);
    expect_stderr(&p, "untrained");
    PROCESS_RUN(&q, &scratch, "generate", config, "-p", "abc", "-n", "12", "--seed=5", "--top-k=40",
                "--top-p=0.95", "--json");
    json_t *a = expect_json(&p), *b = expect_json(&q);
    assert_true(json_equal(json_object_get(a, "tokens"), json_object_get(b, "tokens")));
    assert_string_equal(json_text_at(a, "prompt"), "abc");
    (void)json_text_at(a, "text");
    assert_int_equal(json_int_at(a, "measured.arena_bytes"),
                     json_int_at(a, "predicted.arena_bytes"));
    json_decref(a);
    json_decref(b);
    process_release(&p);
    process_release(&q);
    PROCESS_RUN(&p, &scratch, "generate", config, "-p", "abc", "-n", "3", "-t", "0");
    expect_exit(&p, 0);
    assert_int_equal(strncmp(p.out, "abc", 3), 0);
    process_release(&p);
}

static void tokenized_text_can_be_trained_on(void **state)
{
    (void)state;
    struct process p;
    scratch_write_text(&scratch, "a.txt", "the quick brown fox jumps over the lazy dog. ");
    scratch_write_text(&scratch, "b.jsonl", "{\"text\": \"pack my box with five dozen jugs\"}\n");
    PROCESS_RUN(&p, &scratch, "tokenize", "configs/mlp.yaml", in_scratch("a.txt"), "-o",
                in_scratch("t.bin"));
    expect_exit(&p, 2);
    expect_stderr(&p, "it reads no tokens");
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "tokenize", config, in_scratch("a.txt"), in_scratch("b.jsonl"), "-o",
                in_scratch("t.bin"), "--json");
    expect_exit(&p, 0);
    json_t *j = expect_json(&p);
    assert_int_equal(json_int_at(j, "tokens"), 45 + 1 + 32 + 1);
    assert_int_equal(json_int_at(j, "bytes"), 1024 + 2 * 79);
    json_decref(j);
    process_release(&p);
    char data[SCRATCH_PATH + 32];
    (void)snprintf(data, sizeof(data), "datasets=[{type: tokens, path: %s}]", in_scratch("t.bin"));
    PROCESS_RUN(&p, &scratch, "train", config, data, "max_seq_length=16", "max_steps=2");
    expect_exit(&p, 0);
    process_release(&p);
}

static void an_export_is_a_model_folder(void **state)
{
    (void)state;
    struct process p;
    PROCESS_RUN(&p, &scratch, "export", config, "-c", "none", "-o", in_scratch("a.gguf"), "--dtype",
                "q9");
    expect_exit(&p, 2);
    expect_stderr(&p, "q4_k_m, tq2_0");
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "train", config, "-q");
    expect_exit(&p, 0);
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "export", config, "--checkpoint", "last", "-o", in_scratch("model"),
                "--json");
    expect_exit(&p, 0);
    json_t *j = expect_json(&p);
    assert_string_equal(json_text_at(j, "dtype"), "f32");
    assert_string_equal(json_text_at(j, "weights"), in_scratch("out/checkpoint-4"));
    json_decref(j);
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "eval", config, "--json");
    json_t *here = expect_json(&p);
    process_release(&p);
    char model[SCRATCH_PATH + 32];
    (void)snprintf(model, sizeof(model), "%s", in_scratch("model"));
    PROCESS_RUN(&p, &scratch, "eval", model, "max_seq_length=32", "per_device_train_batch_size=2",
                "datasets=[{type: synthetic, n_tokens: 20000}]", "seed=7", "num_threads=1",
                "--json");
    expect_exit(&p, 0);
    json_t *there = expect_json(&p);
    assert_true(json_number_at(here, "eval_loss") == json_number_at(there, "eval_loss"));
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "generate", model, "tokenizer=bytes", "-p", "x", "-n", "2");
    expect_exit(&p, 0);
    json_decref(here);
    json_decref(there);
    process_release(&p);
}

static void env_lists_the_build_the_machine_and_the_ops(void **state)
{
    (void)state;
    struct process p;
    PROCESS_RUN(&p, &scratch, "env", "--ops", "--json");
    expect_exit(&p, 0);
    json_t *j = expect_json(&p);
    assert_true(json_number_at(j, "rates.matmul_flops") > 0);
    assert_false(json_bool_at(j, "features.mpi"));
    assert_true(json_int_at(j, "cores") > 0);
    /* A GPU is usable, or there is a reason. */
    assert_true(json_bool_at(j, "gpu.usable") == (*json_text_at(j, "gpu.problem") == '\0'));
    assert_true(json_bool_at(j, "gpu.built") == json_bool_at(j, "features.cuda"));
    (void)json_text_at(j, "version");
    (void)json_text_at(j, "compiler");
    assert_true(json_array_size(json_object_get(j, "ops")) > 40);
    json_decref(j);
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "env");
    expect_exit(&p, 0);
    assert_non_null(strstr(p.out, "processor"));
    assert_non_null(strstr(p.out, "\ngpu "));
    process_release(&p);
}

static void without_a_gpu_env_can_be_made_to_fail(void **state)
{
    (void)state;
    struct process p;
    struct gpu_facts f;
    gpu_look(&f, 0);
    PROCESS_RUN(&p, &scratch, "env", "--require-gpu");
    if (f.n_gpus == 0) {
        expect_exit(&p, 2);
        expect_stderr(&p, f.built ? "no NVIDIA" : "this build has no CUDA");
    }
    assert_non_null(strstr(p.out, "processor"));
    process_release(&p);
}

static void every_command_has_help_of_its_own(void **state)
{
    (void)state;
    static const char *const names[] = {"plan",     "train",  "eval", "generate",
                                        "tokenize", "export", "env",  "help"};
    struct process p;
    PROCESS_RUN(&p, &scratch, "help");
    expect_exit(&p, 0);
    char *overview = p.out;
    p.out = NULL;
    process_release(&p);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        char usage[64];
        (void)snprintf(usage, sizeof(usage), "usage: snug %s", names[i]);
        assert_non_null(strstr(overview, names[i]));
        PROCESS_RUN(&p, &scratch, names[i], "--help");
        expect_exit(&p, 0);
        assert_int_equal(strncmp(p.out, usage, strlen(usage)), 0);
        assert_non_null(strstr(p.out, "--help"));
        process_release(&p);
    }
    mem_free(overview);
    PROCESS_RUN(&p, &scratch, "--version");
    expect_exit(&p, 0);
    assert_int_equal(strncmp(p.out, "snug ", 5), 0);
    process_release(&p);
}

static json_t *read_json(const char *path)
{
    json_t *j = json_load_file(path, 0, NULL);
    if (!j)
        fail_msg("%s is no JSON file", path);
    return j;
}

/* A folder as Hugging Face writes it by default, with dropout inside attention. */
static void keys_under_model_change_a_folders_config(void **state)
{
    (void)state;
    struct process p;
    char folder[SCRATCH_PATH], out[SCRATCH_PATH], path[SCRATCH_PATH], setting[SCRATCH_PATH + 16];
    json_t *j = read_json("tests/golden/gpt2/config.json");
    (void)json_object_set_new(j, "attn_pdrop", json_real(0.1));
    char *data, *text = json_dumps(j, 0);
    size_t n;
    scratch_write_text(&scratch, "gpt2/config.json", text);
    free(text);
    json_decref(j);
    assert_int_equal(file_read("tests/golden/gpt2/model.safetensors", &data, &n), OK);
    scratch_write(&scratch, "gpt2/model.safetensors", data, n);
    mem_free(data);
    scratch_path(&scratch, "gpt2", folder);
    scratch_path(&scratch, "gpt2-out", out);
    (void)snprintf(setting, sizeof(setting), "output_dir=%s", out);
    PROCESS_RUN(&p, &scratch, "train", folder, "max_seq_length=16", "max_steps=1",
                "datasets=synthetic", "model.attn_pdrop=0", setting);
    expect_exit(&p, 0);
    expect_stderr(&p, "command line: model.attn_pdrop is 0 instead of 0.1 in ");
    process_release(&p);
    j = read_json(scratch_path(&scratch, "gpt2-out/checkpoint-1/config.json", path));
    assert_true(json_is_number(json_object_get(j, "attn_pdrop")));
    assert_true(json_number_value(json_object_get(j, "attn_pdrop")) < 1e-9);
    json_decref(j);
    /* what was resolved loads back, and goes on from the checkpoint */
    PROCESS_RUN(&p, &scratch, "train", scratch_path(&scratch, "gpt2-out/config.yaml", path),
                "max_steps=2", "--resume");
    expect_exit(&p, 0);
    process_release(&p);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_scratch, drop_scratch)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_command_line_of_a_document_is_taken_as_it_stands),
        TEST(a_switch_needs_no_value_and_a_key_does),
        TEST(a_micro_batch_that_is_left_open_without_a_choice_is_said),
        TEST(plan_says_what_every_byte_is_for),
        TEST(plan_says_what_has_left_the_device),
        TEST(plan_draws_into_a_file),
        TEST(plan_prints_its_graph_and_program),
        TEST(a_budget_that_holds_is_reported),
        TEST(train_measures_what_was_predicted),
        TEST(outputs_that_cannot_be_written_are_told_before_the_first_step),
        TEST(counts_of_steps_begin_at_one),
        TEST(a_profile_goes_where_it_is_told),
        TEST(the_saved_config_gives_the_same_run),
        TEST(quiet_prints_nothing_and_no_color_no_escapes),
        TEST(logging_steps_and_log_format_decide_what_is_shown),
        TEST(a_line_shows_the_mean_loss_since_the_one_before),
        TEST(tensorboard_events_go_where_the_environment_says),
        TEST(threads_are_those_of_the_config_or_else_of_the_environment),
        TEST(a_rehearsal_evaluates_saves_and_reads_back),
        TEST(dry_run_plans_only),
        TEST(eval_uses_the_newest_checkpoint_or_the_one_named),
        TEST(generate_repeats_itself_with_the_same_seed),
        TEST(tokenized_text_can_be_trained_on),
        TEST(an_export_is_a_model_folder),
        TEST(env_lists_the_build_the_machine_and_the_ops),
        TEST(without_a_gpu_env_can_be_made_to_fail),
        TEST(every_command_has_help_of_its_own),
        TEST(keys_under_model_change_a_folders_config),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
