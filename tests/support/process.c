#include "support/process.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "base/file.h"

/* What hangs ends; what is slow beside other work does not. */
enum {
    RUN_LIMIT_S = SNUG_ASAN || SNUG_TSAN ? 900 : 300,
    WAIT_LIMIT_S = SNUG_ASAN || SNUG_TSAN ? 300 : 120
};

/* ---- running --------------------------------------------------------------------------------- */

static void redirect(int fd, const char *path)
{
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || dup2(file, fd) < 0)
        _exit(125);
}

static void limit(int which, int64_t n_bytes)
{
    struct rlimit most = {(rlim_t)n_bytes, (rlim_t)n_bytes};
    if (n_bytes > 0)
        (void)setrlimit((__rlimit_resource_t)which, &most);
}

static void run_child(const struct process *p, const struct process_options *o, char **argv)
{
    redirect(STDOUT_FILENO, p->out_path);
    redirect(STDERR_FILENO, p->err_path);
    (void)unsetenv("TENSORBOARD_LOGGING_DIR");
    if (o && o->variable)
        (void)setenv(o->variable, o->setting, 1);
    if (o) {
        limit(RLIMIT_FSIZE, o->max_file_bytes);
        limit(RLIMIT_AS, o->max_address_bytes);
        limit(RLIMIT_MEMLOCK, o->max_locked_bytes);
    }
    if (o && o->ignores_hangup)
        (void)signal(SIGHUP, SIG_IGN);
    int file = o && o->input ? open(o->input, O_RDONLY) : STDIN_FILENO;
    if (file < 0 || (file != STDIN_FILENO && dup2(file, STDIN_FILENO) < 0))
        _exit(125);
    if (o && o->closed > 0)
        (void)close(o->closed);
    (void)alarm(RUN_LIMIT_S);
    (void)execv(SNUG_BINARY, argv);
    _exit(126);
}

void process_start(struct process *p, const struct scratch *s, const struct process_options *o,
                   const char *const *args)
{
    const char *words[MAX_ARGS + 2] = {"snug"};
    char *argv[MAX_ARGS + 2];
    for (int n = 1; args[n - 1]; n++) {
        assert_in_range(n, 1, MAX_ARGS);
        words[n] = args[n - 1];
    }
    memcpy(argv, words, sizeof(argv)); /* execv does not change what it is given */
    *p = (struct process){.exit_code = -1};
    scratch_path(s, "stdout", p->out_path);
    scratch_path(s, "stderr", p->err_path);
    p->pid = fork();
    assert_true(p->pid >= 0);
    if (p->pid == 0)
        run_child(p, o, argv);
}

void process_wait(struct process *p)
{
    int how;
    size_t n;
    struct rusage used;
    assert_int_equal(wait4(p->pid, &how, 0, &used), p->pid);
    p->peak_bytes = (int64_t)used.ru_maxrss * 1024;
    p->exit_code = WIFEXITED(how) ? WEXITSTATUS(how) : -1;
    p->signal = WIFSIGNALED(how) ? WTERMSIG(how) : 0;
    assert_int_equal(file_read(p->out_path, &p->out, &n), OK);
    assert_int_equal(file_read(p->err_path, &p->err, &n), OK);
}

void process_run(struct process *p, const struct scratch *s, const struct process_options *o,
                 const char *const *args)
{
    process_start(p, s, o, args);
    process_wait(p);
}

void process_release(struct process *p)
{
    mem_free(p->out);
    mem_free(p->err);
    *p = (struct process){0};
}

static void pause_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    (void)nanosleep(&t, NULL);
}

void wait_for_file(const struct process *p, const char *path)
{
    for (int i = 0; i < WAIT_LIMIT_S * 1000; i++) {
        siginfo_t ended = {0};
        if (file_exists(path))
            return;
        (void)waitid(P_PID, (id_t)p->pid, &ended, WEXITED | WNOHANG | WNOWAIT);
        if (ended.si_pid == p->pid)
            fail_msg("the process ended before %s was there", path);
        pause_ms(1);
    }
    (void)kill(p->pid, SIGKILL);
    fail_msg("%s did not come", path);
}

/* ---- looking --------------------------------------------------------------------------------- */

void expect_exit(const struct process *p, int code)
{
    if (p->exit_code != code)
        fail_msg("exit code %d (signal %d), not %d:\n%s", p->exit_code, p->signal, code, p->err);
}

void expect_stderr(const struct process *p, const char *part)
{
    if (!strstr(p->err, part))
        fail_msg("'%s' is not in stderr:\n%s", part, p->err);
}

json_t *expect_json(const struct process *p)
{
    json_error_t error;
    json_t *root = json_loads(p->out, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(root))
        fail_msg("stdout is not one JSON object (%s):\n%s\nstderr:\n%s", error.text, p->out,
                 p->err);
    return root;
}

const json_t *json_at(const json_t *root, const char *path)
{
    char name[128];
    while (root && *path) {
        size_t n = strcspn(path, ".");
        assert_in_range(n, 1, sizeof(name) - 1);
        memcpy(name, path, n);
        name[n] = '\0';
        root = json_object_get(root, name);
        path += n + (path[n] == '.');
    }
    return root;
}

static const json_t *need(const json_t *root, const char *path)
{
    const json_t *x = json_at(root, path);
    if (!x)
        fail_msg("the object has no '%s'", path);
    return x;
}

int64_t json_int_at(const json_t *root, const char *path)
{
    const json_t *x = need(root, path);
    if (!json_is_integer(x))
        fail_msg("'%s' is not an integer", path);
    return (int64_t)json_integer_value(x);
}

double json_number_at(const json_t *root, const char *path)
{
    const json_t *x = need(root, path);
    if (!json_is_number(x))
        fail_msg("'%s' is not a number", path);
    return json_number_value(x);
}

const char *json_text_at(const json_t *root, const char *path)
{
    const json_t *x = need(root, path);
    if (!json_is_string(x))
        fail_msg("'%s' is not a text", path);
    return json_string_value(x);
}

int json_bool_at(const json_t *root, const char *path)
{
    const json_t *x = need(root, path);
    if (!json_is_boolean(x))
        fail_msg("'%s' is not true or false", path);
    return json_is_true(x);
}

/* ---- a model to try things on ---------------------------------------------------------------- */

void write_tiny_config(const struct scratch *s, const char *name, const char *more,
                       char out[SCRATCH_PATH])
{
    char text[4096];
    /* One thread: on a busy machine two wait for each other far longer than they compute. */
    int n = snprintf(text, sizeof(text),
                     "model:\n"
                     "  model_type: llama\n"
                     "  vocab_size: 257\n"
                     "  hidden_size: 32\n"
                     "  intermediate_size: 64\n"
                     "  num_hidden_layers: 2\n"
                     "  num_attention_heads: 2\n"
                     "  num_key_value_heads: 1\n"
                     "  max_position_embeddings: 96\n"
                     "tokenizer: bytes\n"
                     "max_seq_length: 32\n"
                     "per_device_train_batch_size: 2\n"
                     "learning_rate: 1e-3\n"
                     "lr_scheduler_type: constant\n"
                     "num_threads: 1\n"
                     "seed: 7\n"
                     "dataset_prepared_path: %s/tokens\n"
                     "output_dir: %s/out\n"
                     "overwrite_output_dir: true\n"
                     "%s",
                     s->folder, s->folder, more);
    assert_in_range(n, 1, sizeof(text) - 1);
    scratch_write_text(s, name, text);
    scratch_path(s, name, out);
}
