/* A plan as a memory snapshot of PyTorch: what the public viewers read of one is there, and the
 * events lead to the planned arenas. Python reads it; without Python there is nothing to test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support/process.h"

/* Opcodes that the viewer's own reader of pickles knows; members that torch/utils/viz/MemoryViz.js
 * and torch/cuda/_memory_viz.py ask for; that blocks fill their segments (the viewer finds their
 * addresses by adding sizes up); that addresses are taken once at a time; that what is left in the
 * end are the blocks; and the largest sum. */
static const char reader[] =
    "import pickle, pickletools, sys\n"
    "known = {'PROTO', 'MARK', 'EMPTY_DICT', 'EMPTY_LIST', 'SETITEMS', 'APPENDS', 'BININT1',\n"
    "         'BININT2', 'BININT', 'LONG1', 'BINUNICODE', 'LONG_BINPUT', 'LONG_BINGET', 'STOP'}\n"
    "used = {op.name for op, _, _ in pickletools.genops(open(sys.argv[1], 'rb'))}\n"
    "assert used <= known, used - known\n"
    "s = pickle.load(open(sys.argv[1], 'rb'))\n"
    "peaks = [int(x) for x in sys.argv[2:]]\n"
    "categories = set()\n"
    "for device, peak in enumerate(peaks):\n"
    "    segment, = [x for x in s['segments'] if x['device'] == device]\n"
    "    assert segment['total_size'] == peak, (segment['total_size'], peak)\n"
    "    at = segment['address']\n"
    "    for b in segment['blocks']:\n"
    "        assert b['address'] == at and b['size'] >= b['requested_size'] > 0\n"
    "        assert b['state'] in ('active_allocated', 'inactive')\n"
    "        at += b['size']\n"
    "    assert at == segment['address'] + segment['total_size']\n"
    "    for key in ('allocated_size', 'active_size', 'stream', 'segment_type'): segment[key]\n"
    "    live, most, now = {}, 0, 0\n"
    "    for e in s['device_traces'][device]:\n"
    "        assert e['time_us'] >= now; now = e['time_us']; e['stream']\n"
    "        categories.add(e['category'])\n"
    "        if e['action'] == 'segment_alloc': continue\n"
    "        assert all(f['filename'] and f['name'] and f['line'] >= 0 for f in e['frames'])\n"
    "        if e['action'] == 'alloc':\n"
    "            assert e['addr'] not in live\n"
    "            live[e['addr']] = e['size']\n"
    "        elif e['action'] == 'free_completed': assert live.pop(e['addr']) == e['size']\n"
    "        else: assert e['action'] == 'free_requested' and e['addr'] in live\n"
    "        most = max(most, sum(live.values()))\n"
    "    assert most <= peak and most > 0.9 * peak, (most, peak)\n"
    "    kept = {b['address']: b['size'] for b in segment['blocks'] if b['state'] != 'inactive'}\n"
    "    assert kept == live\n"
    "assert {'unknown', 'weights', 'activations', 'optimizer'} <= categories, categories\n";

static void the_viewers_find_what_they_read(void **state)
{
    (void)state;
    struct scratch s;
    struct process p;
    char config[SCRATCH_PATH], path[SCRATCH_PATH], script[SCRATCH_PATH], command[4096];
    scratch_init(&s);
    write_tiny_config(&s, "tiny.yaml", "report_to: none\n", config);
    scratch_path(&s, "plan.pickle", path);
    scratch_write_text(&s, "read.py", reader);
    PROCESS_RUN(&p, &s, "plan", config, "max_steps=1", "offload_optimizer=true",
                "model.hidden_size=256", "--json", "--snapshot", path);
    expect_exit(&p, 0);
    json_t *plan = expect_json(&p);
    (void)snprintf(command, sizeof(command), "python3 %s %s %lld %lld",
                   scratch_path(&s, "read.py", script), path,
                   (long long)json_int_at(plan, "predicted.arena_bytes"),
                   (long long)json_int_at(plan, "predicted.host_bytes"));
    assert_int_equal(system(command), 0);
    json_decref(plan);
    process_release(&p);
    scratch_release(&s);
}

int main(void)
{
    if (system("python3 -c '' 2>/dev/null") != 0) {
        (void)fprintf(stderr, "skipped: there is no python3\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_viewers_find_what_they_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
