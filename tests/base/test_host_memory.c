/* The machine's free memory and the limits of control groups, read from made-up /proc and
 * /sys/fs/cgroup folders. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/host_memory.h"
#include "support/scratch.h"

#define MIB      ((int64_t)1 << 20)
#define V1_MOUNT "34 31 0:31 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
#define V2_MOUNT "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"

/* A machine of 1000 MiB with 800 MiB free. */
static void made_up_machine(struct scratch *s, const char *cgroup, const char *mountinfo)
{
    scratch_init(s);
    scratch_write_text(s, "proc/meminfo",
                       "MemTotal:  1024000 kB\nMemFree:  10 kB\nMemAvailable:  819200 kB\n");
    scratch_write_text(s, "proc/self/cgroup", cgroup);
    scratch_write_text(s, "proc/self/mountinfo", mountinfo);
}

static void put(const struct scratch *s, const char *folder, const char *name, const char *text)
{
    char path[SCRATCH_PATH];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    scratch_write_text(s, path, text);
}

static void expect_room(const struct scratch *s, const char *whose, int64_t total, int64_t left)
{
    struct host_memory m;
    host_memory_read(s->folder, &m);
    assert_string_equal(m.whose, whose);
    assert_int_equal(m.total_bytes, total);
    assert_int_equal(m.free_bytes, left);
}

static void without_limits_the_machine_counts(void **state)
{
    (void)state;
    struct scratch s;
    made_up_machine(&s, "0::/user.slice\n", V2_MOUNT);
    put(&s, "sys/fs/cgroup/user.slice", "memory.max", "max\n");
    put(&s, "sys/fs/cgroup/user.slice", "memory.current", "1048576\n");
    expect_room(&s, "the machine", 1000 * MIB, 800 * MIB);
    scratch_release(&s);
}

static void a_group_of_version_2_counts_with_its_page_cache_as_free(void **state)
{
    (void)state;
    struct scratch s;
    made_up_machine(&s, "0::/jobs/17\n", V2_MOUNT);
    put(&s, "sys/fs/cgroup/jobs/17", "memory.max", "536870912\n");
    put(&s, "sys/fs/cgroup/jobs/17", "memory.current", "314572800\n");
    put(&s, "sys/fs/cgroup/jobs/17", "memory.stat",
        "anon 1\nfile 2\ninactive_file 104857600\nactive_file 10485760\n");
    expect_room(&s, "cgroup /jobs/17", 512 * MIB, 512 * MIB - 300 * MIB + 110 * MIB);
    scratch_release(&s);
}

static void the_tightest_ancestor_counts(void **state)
{
    (void)state;
    struct scratch s;
    made_up_machine(&s, "0::/jobs/17/step\n", V2_MOUNT);
    put(&s, "sys/fs/cgroup/jobs/17/step", "memory.max", "536870912\n");
    put(&s, "sys/fs/cgroup/jobs/17/step", "memory.current", "0\n");
    put(&s, "sys/fs/cgroup/jobs", "memory.max", "209715200\n");
    put(&s, "sys/fs/cgroup/jobs", "memory.current", "104857600\n");
    put(&s, "sys/fs/cgroup/jobs", "memory.stat", "inactive_file 0\n");
    expect_room(&s, "cgroup /jobs", 200 * MIB, 100 * MIB);
    scratch_release(&s);
}

static void a_group_of_version_1_counts(void **state)
{
    (void)state;
    struct scratch s;
    made_up_machine(&s, "9:cpu,memory:/box\n4:pids:/other\n0::/\n", V2_MOUNT V1_MOUNT);
    put(&s, "sys/fs/cgroup/memory/box", "memory.limit_in_bytes", "104857600\n");
    put(&s, "sys/fs/cgroup/memory/box", "memory.usage_in_bytes", "52428800\n");
    put(&s, "sys/fs/cgroup/memory/box", "memory.stat",
        "inactive_file 7\ntotal_inactive_file 1048576\ntotal_active_file 1048576\n");
    put(&s, "sys/fs/cgroup/memory", "memory.limit_in_bytes", "9223372036854771712\n");
    put(&s, "sys/fs/cgroup/memory", "memory.usage_in_bytes", "5\n");
    expect_room(&s, "cgroup /box", 100 * MIB, 52 * MIB);
    scratch_release(&s);
}

/* Containers see their own group as the root of the mount. */
static void a_mount_that_shows_a_part_of_the_tree_is_understood(void **state)
{
    (void)state;
    struct scratch s;
    made_up_machine(&s, "0::/docker/abc\n",
                    "30 24 0:26 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    put(&s, "sys/fs/cgroup", "memory.max", "104857600\n");
    put(&s, "sys/fs/cgroup", "memory.current", "209715200\n");
    expect_room(&s, "cgroup /", 100 * MIB, 0);
    scratch_release(&s);
}

static void a_system_that_says_nothing_has_no_limit(void **state)
{
    (void)state;
    struct scratch s;
    scratch_init(&s);
    expect_room(&s, "the machine", INT64_MAX, INT64_MAX);
    scratch_release(&s);
}

static void a_process_holds_something_and_never_more_than_its_peak(void **state)
{
    (void)state;
    assert_true(process_anonymous() > 0);
    assert_true(process_resident() >= process_anonymous());
    assert_true(process_peak() >= process_resident() - MIB);
}

static void write_limits(const struct scratch *s, const char *address_space, const char *data)
{
    char text[512];
    (void)snprintf(
        text, sizeof(text),
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max data size             %-20s unlimited            bytes     \n"
        "Max address space         %-20s unlimited            bytes     \n",
        data, address_space);
    scratch_write_text(s, "proc/self/limits", text);
    scratch_write_text(s, "proc/self/status", "VmSize:\t  102400 kB\nVmData:\t   20480 kB\n");
}

static void a_limit_of_the_process_counts_less_what_it_uses(void **state)
{
    (void)state;
    struct scratch s;
    made_up_machine(&s, "0::/\n", V2_MOUNT);
    write_limits(&s, "unlimited", "unlimited");
    expect_room(&s, "the machine", 1000 * MIB, 800 * MIB);
    write_limits(&s, "524288000", "unlimited");
    expect_room(&s, "ulimit -v", 500 * MIB, 400 * MIB);
    write_limits(&s, "524288000", "104857600");
    expect_room(&s, "ulimit -d", 100 * MIB, 80 * MIB);
    write_limits(&s, "1048576", "unlimited");
    expect_room(&s, "ulimit -v", MIB, 0);
    scratch_release(&s);
}

static void code_that_has_not_run_is_part_of_the_program(void **state)
{
    (void)state;
    struct stat st;
    int64_t left = process_code_left();
    assert_int_equal(stat("/proc/self/exe", &st), 0);
    assert_in_range(left, 0, st.st_size + (4 << 20)); /* and of the C library */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_limit_of_the_process_counts_less_what_it_uses),
        cmocka_unit_test(code_that_has_not_run_is_part_of_the_program),
        cmocka_unit_test(without_limits_the_machine_counts),
        cmocka_unit_test(a_group_of_version_2_counts_with_its_page_cache_as_free),
        cmocka_unit_test(the_tightest_ancestor_counts),
        cmocka_unit_test(a_group_of_version_1_counts),
        cmocka_unit_test(a_mount_that_shows_a_part_of_the_tree_is_understood),
        cmocka_unit_test(a_system_that_says_nothing_has_no_limit),
        cmocka_unit_test(a_process_holds_something_and_never_more_than_its_peak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
