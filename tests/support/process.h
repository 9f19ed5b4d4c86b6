/* process.h: runs the real program, as a user would, and looks at what it did.
 * Everything fails the test instead of returning an error. */
#ifndef SNUG_TESTS_PROCESS_H
#define SNUG_TESTS_PROCESS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "support/scratch.h"

#ifdef __cplusplus
extern "C" {
#endif

struct process {
    pid_t pid;
    int exit_code;      /* -1: ended by a signal */
    int signal;         /* that ended it; 0: none */
    int64_t peak_bytes; /* the most that was resident at once, as the system says */
    char *out, *err;
    char out_path[SCRATCH_PATH], err_path[SCRATCH_PATH];
};

struct process_options {
    int64_t max_file_bytes;         /* RLIMIT_FSIZE; 0: none */
    int64_t max_address_bytes;      /* RLIMIT_AS; 0: none */
    int64_t max_locked_bytes;       /* RLIMIT_MEMLOCK; 0: none */
    const char *variable, *setting; /* one environment variable; NULL: none */
    bool ignores_hangup;            /* started as nohup does */
    int closed;                     /* a standard file it does not get; 0: none */
    const char *input;              /* file that it reads as standard input; NULL: ours */
};

enum { MAX_ARGS = 40 };

/* Starts snug with arguments (NULL-terminated); output goes to files in the scratch folder. */
void process_start(struct process *p, const struct scratch *s, const struct process_options *o,
                   const char *const *args);
/* Waits for its end (a minute at most) and reads what it wrote. */
void process_wait(struct process *p);
void process_release(struct process *p);

/* Both, with arguments as a list: PROCESS_RUN(&p, &s, "plan", config, "--json"). */
void process_run(struct process *p, const struct scratch *s, const struct process_options *o,
                 const char *const *args);
#define PROCESS_RUN(p, s, ...) process_run(p, s, NULL, (const char *const[]){__VA_ARGS__, NULL})

/* Fails, showing stderr, unless it ended with this exit code. */
void expect_exit(const struct process *p, int code);
/* Fails unless the text is in stderr. */
void expect_stderr(const struct process *p, const char *part);
/* stdout as exactly one JSON object; the caller drops it. */
json_t *expect_json(const struct process *p);

/* A member by path ("predicted.arena_bytes"), of the asked type; fails when it is not there. */
int64_t json_int_at(const json_t *root, const char *path);
double json_number_at(const json_t *root, const char *path);
const char *json_text_at(const json_t *root, const char *path);
int json_bool_at(const json_t *root, const char *path);
const json_t *json_at(const json_t *root, const char *path); /* any type; NULL when absent */

/* Waits until the file exists; fails after half a minute or when the process has ended. */
void wait_for_file(const struct process *p, const char *path);

/* Writes a config of a tiny model under `name`, with lines added to it; its path into out. Its runs
 * start over in the folder of the one before unless they resume. */
void write_tiny_config(const struct scratch *s, const char *name, const char *more,
                       char out[SCRATCH_PATH]);

#ifdef __cplusplus
}
#endif
#endif
