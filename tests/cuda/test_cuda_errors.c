/* What a user meets when the GPU cannot be had: somebody else holds its memory, it is hidden. The
 * program is run beside a second process that fills the GPU (this program again, as `hold`).
 * Skipped without a GPU. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#ifdef SNUG_HAVE_CUDA
#include <cuda_runtime_api.h>
#endif

#include "base/compiler.h"
#include "base/file.h"
#include "device/device.h"
#include "support/gpu.h"
#include "support/process.h"

static struct scratch scratch;

/* ---- the process that fills the GPU ---------------------------------------------------------- */

/* Takes all but `leave` MiB, writes `path` and waits to be killed. */
static int hold(int64_t leave, const char *path)
{
#ifdef SNUG_HAVE_CUDA
    size_t free_bytes = 0, total = 0;
    void *p = NULL;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* not longer than the test */
    if (cudaMemGetInfo(&free_bytes, &total) != cudaSuccess)
        return 1;
    int64_t n_bytes = (int64_t)free_bytes - (leave << 20);
    while (n_bytes > 0 && cudaMalloc(&p, (size_t)n_bytes) != cudaSuccess)
        n_bytes -= (int64_t)16 << 20;
    if (n_bytes <= 0 || file_write_atomic(path, "held\n", 5) != OK)
        return 1;
    for (;;)
        (void)pause();
#else
    (void)leave;
    (void)path;
    return 1;
#endif
}

static void start_holder(struct process *p, const char *leave_mib)
{
    char path[SCRATCH_PATH];
    scratch_path(&scratch, "held", path);
    (void)remove(path);
    *p = (struct process){.pid = fork()};
    assert_true(p->pid >= 0);
    if (p->pid == 0) {
        char self[SCRATCH_PATH] = {0};
        (void)!readlink("/proc/self/exe", self, sizeof(self) - 1);
        (void)execl(self, self, "hold", leave_mib, path, (char *)NULL);
        _exit(126);
    }
    wait_for_file(p, path);
}

static void stop_holder(struct process *p)
{
    int how;
    (void)kill(p->pid, SIGKILL);
    assert_int_equal(waitpid(p->pid, &how, 0), p->pid);
}

/* ---- full ------------------------------------------------------------------------------------ */

/* All of it on the device. */
static const char *const large[] = {"train",
                                    "configs/gpt2-124m.yaml",
                                    "device=cuda",
                                    "bf16=true",
                                    "per_device_train_batch_size=32",
                                    "max_steps=2",
                                    "gradient_checkpointing=false",
                                    "activation_offloading=false",
                                    "offload_optimizer=false",
                                    "offload_param=false",
                                    NULL};

static void run_large(struct process *p, const char *extra)
{
    char out[SCRATCH_PATH], folder[SCRATCH_PATH + 16];
    const struct process_options o = {.variable = "XDG_CACHE_HOME", .setting = scratch.folder};
    const char *args[MAX_ARGS] = {NULL};
    int n = 0;
    (void)snprintf(folder, sizeof(folder), "output_dir=%s", scratch_path(&scratch, "out", out));
    for (; large[n]; n++)
        args[n] = large[n];
    args[n++] = folder;
    args[n++] = extra;
    process_run(p, &scratch, &o, args);
}

/* Who holds the rest: by number where the driver shows processes here, else as a sum. */
static void expect_holder(const struct process *p, const struct process *holder)
{
    char name[48];
    (void)snprintf(name, sizeof(name), "process %d ", (int)holder->pid);
    if (!strstr(p->err, name))
        expect_stderr(p, "processes not visible from here");
}

static void a_gpu_that_somebody_else_holds_is_refused_with_3(void **state)
{
    (void)state;
    struct process holder, p;
    char out[SCRATCH_PATH];
    start_holder(&holder, "4096");
    run_large(&p, "gradient_accumulation_steps=1");
    expect_exit(&p, 3);
    expect_stderr(&p, "does not fit");
    expect_stderr(&p, "are free");
    expect_stderr(&p, "device_memory: ");
    expect_holder(&p, &holder);
    assert_false(file_exists(scratch_path(&scratch, "out", out))); /* nothing was begun */
    process_release(&p);
    /* A budget larger than what is free changes nothing about that. */
    run_large(&p, "device_memory=100GiB");
    expect_exit(&p, 3);
    expect_stderr(&p, "are free");
    expect_holder(&p, &holder);
    process_release(&p);
    stop_holder(&holder);
    run_large(&p, "gradient_accumulation_steps=1");
    expect_exit(&p, 0);
    process_release(&p);
}

static void a_gpu_too_full_for_a_context_is_refused_with_3(void **state)
{
    (void)state;
    struct process holder, p;
    start_holder(&holder, "150");
    run_large(&p, "gradient_accumulation_steps=1");
    expect_exit(&p, 3);
    expect_stderr(&p, "are free");
    process_release(&p);
    run_large(&p, "device=auto"); /* a full GPU is no reason to train on the CPU unasked */
    expect_exit(&p, 3);
    process_release(&p);
    PROCESS_RUN(&p, &scratch, "env", "--require-gpu");
    expect_exit(&p, 3);
    assert_non_null(strstr(p.out, "not usable"));
    process_release(&p);
    stop_holder(&holder);
}

/* ---- hidden ---------------------------------------------------------------------------------- */

static void without_a_gpu_cuda_is_an_error_and_auto_is_the_cpu(void **state)
{
    (void)state;
    const struct process_options hidden = {.variable = "CUDA_VISIBLE_DEVICES", .setting = "-1"};
    struct process p;
    char config[SCRATCH_PATH];
    write_tiny_config(&scratch, "tiny.yaml", "max_steps: 1\nsave_strategy: no\n", config);
    process_run(&p, &scratch, &hidden, (const char *const[]){"train", config, "device=cuda", NULL});
    expect_exit(&p, 2);
    expect_stderr(&p, "command line: device: no NVIDIA GPU was found");
    process_release(&p);
    process_run(&p, &scratch, &hidden, (const char *const[]){"train", config, NULL});
    expect_exit(&p, 0);
    expect_stderr(&p, "device: auto is the CPU here: no NVIDIA GPU was found");
    process_release(&p);
    process_run(&p, &scratch, &hidden,
                (const char *const[]){"generate", config, "device=cuda", NULL});
    expect_exit(&p, 2);
    process_release(&p);
}

static int open_scratch(void **state)
{
    (void)state;
    scratch_init(&scratch);
    return 0;
}

static int close_scratch(void **state)
{
    (void)state;
    scratch_release(&scratch);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_scratch, close_scratch)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(a_gpu_that_somebody_else_holds_is_refused_with_3),
        TEST(a_gpu_too_full_for_a_context_is_refused_with_3),
        TEST(without_a_gpu_cuda_is_an_error_and_auto_is_the_cpu),
    };
    if (argc == 4 && strcmp(argv[1], "hold") == 0)
        return hold(strtoll(argv[2], NULL, 10), argv[3]);
    if (device_count_cuda() == 0) {
        (void)fprintf(stderr, "skipped: no GPU\n");
        return GPU_SKIPPED;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
