/* Rotary tables against transformers' (printed by it to nine digits), and their config keys. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "model/rope.h"
#include "support/golden.h"
#include "support/scratch.h"

enum { HEAD_DIM = 16 };

static const struct rope_rules rules = {.theta = 10000};

static enum status parse(struct rope *r, const char *text, int64_t context)
{
    json_t *config;
    expect_ok(json_read_text(&config, text, strlen(text), "config", ERR_DATA));
    struct keys k;
    keys_init(&k, config, NULL);
    rope_parse(r, &k, context, &rules);
    enum status status = keys_finish(&k);
    json_decref(config);
    return status;
}

static const struct rope_case {
    const char *config;
    int64_t context;
    double attention_factor;
    double inv_freq[HEAD_DIM / 2];
} cases[] = {
    {"{}", 128, 1, {1, 0.316227764, 0.1, 0.0316227786, 0.01, 0.00316227786, 0.001, 0.000316227786}},
    {"{\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2.0}}",
     128,
     1,
     {1, 0.316227764, 0.1, 0.0316227786, 0.01, 0.00316227786, 0.001, 0.000316227786}},
    {"{\"rope_theta\": 10000, \"rope_scaling\": {\"type\": \"linear\", \"factor\": 4}}",
     128,
     1,
     {0.25, 0.079056941, 0.025, 0.00790569466, 0.0025, 0.000790569466, 0.00025, 7.90569466e-05}},
    {"{\"rope_parameters\": {\"rope_type\": \"llama3\", \"rope_theta\": 500000.0, \"factor\": 8.0,"
     "\"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0,"
     "\"original_max_position_embeddings\": 64}}",
     512,
     1,
     {1, 0.079403013, 0.00470075384, 0.000911583134, 0.000176776681, 3.42810235e-05, 6.64786967e-06,
      1.28917316e-06}},
    {"{\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0,"
     "\"original_max_position_embeddings\": 4096}}",
     16384,
     1.138629436111989,
     {1, 0.316227764, 0.1, 0.025693506, 0.00625, 0.00138349656, 0.00025, 7.90569466e-05}},
    {"{\"original_max_position_embeddings\": 4096,"
     "\"rope_parameters\": {\"rope_type\": \"yarn\"}}", /* factor = context / original */
     16384,
     1.138629436111989,
     {1, 0.316227764, 0.1, 0.025693506, 0.00625, 0.00138349656, 0.00025, 7.90569466e-05}},
    {"{\"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 4.0, \"truncate\": false,"
     "\"original_max_position_embeddings\": 4096, \"beta_fast\": 16, \"beta_slow\": 2,"
     "\"mscale\": 0.7, \"mscale_all_dim\": 0.4}}",
     16384,
     1.0394038191422568,
     {1, 0.316227764, 0.1, 0.0316227786, 0.00676161889, 0.000825104478, 0.00025, 7.90569466e-05}},
    {"{\"rope_parameters\": {\"full_attention\": {\"rope_type\": \"yarn\", \"factor\": 4.0,"
     "\"original_max_position_embeddings\": 4096, \"attention_factor\": 1.5}}}",
     16384,
     1.5,
     {1, 0.316227764, 0.1, 0.025693506, 0.00625, 0.00138349656, 0.00025, 7.90569466e-05}},
};

static void expect_table(const struct rope *r, const struct rope_case *c)
{
    float table[HEAD_DIM / 2];
    rope_inv_freq(r, HEAD_DIM, table);
    assert_true(fabs(r->attention_factor - c->attention_factor) < 1e-12);
    for (int i = 0; i < HEAD_DIM / 2; i++) {
        if (fabs((double)table[i] - c->inv_freq[i]) > 3e-7 * c->inv_freq[i])
            fail_msg("%s: pair %d is %.9g, not %.9g", c->config, i, (double)table[i],
                     c->inv_freq[i]);
    }
}

static void tables_equal_those_of_transformers(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct rope r;
        expect_ok(parse(&r, cases[i].config, cases[i].context));
        expect_table(&r, &cases[i]);
    }
}

static void both_exported_spellings_read_back_the_same(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct rope r, again;
        expect_ok(parse(&r, cases[i].config, cases[i].context));
        for (int drop = 0; drop < 2; drop++) {
            json_t *config = json_object();
            expect_ok(rope_export(&r, config));
            json_object_del(config, drop ? "rope_parameters" : "rope_scaling");
            if (!drop)
                json_object_del(config, "rope_theta");
            struct keys k;
            keys_init(&k, config, NULL);
            rope_parse(&again, &k, cases[i].context, &rules);
            expect_ok(keys_finish(&k));
            expect_table(&again, &cases[i]);
            json_decref(config);
        }
    }
}

static void what_we_lack_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *config, *message;
        enum status status;
    } bad[] = {
        {"{\"rope_scaling\": {\"type\": \"longrope\", \"factor\": 4}}",
         "'rope_scaling.rope_type' is 'longrope'", ERR_UNSUPPORTED},
        {"{\"rope_parameters\": {\"rope_type\": \"linear\"}}",
         "'rope_parameters.factor' is missing", ERR_CONFIG},
        {"{\"rope_parameters\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4,"
         "\"high_freq_factor\": 4}}",
         "high_freq_factor", ERR_CONFIG},
        {"{\"rope_parameters\": {\"partial_rotary_factor\": 0.5}}", "partial_rotary_factor",
         ERR_UNSUPPORTED},
        {"{\"partial_rotary_factor\": 0.25}", "partial_rotary_factor", ERR_UNSUPPORTED},
        {"{\"rope_theta\": \"big\"}", "'rope_theta' must be a number", ERR_CONFIG},
        {"{\"rope_theta\": 1}", "'rope_theta' is 1", ERR_CONFIG},
        {"{\"rope_scaling\": 4}", "'rope_scaling' must be an object, not 4", ERR_CONFIG},
        {"{\"rope_parameters\": {\"full_attention\": {\"rope_theta\": 10000.0},"
         "\"sliding_attention\": {\"rope_theta\": 1000000.0}}}",
         "per layer type", ERR_UNSUPPORTED},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct rope r;
        assert_int_equal(parse(&r, bad[i].config, 128), bad[i].status);
        expect_message(bad[i].message);
    }
}

/* Gemma 3: the layers with a window have a base of their own. */
static void two_bases_read_back_from_both_spellings(void **state)
{
    (void)state;
    static const char *const configs[] = {
        "{\"rope_theta\": 500000, \"rope_local_base_freq\": 20000, \"rope_scaling\": "
        "{\"rope_type\": \"linear\", \"factor\": 8}}",
        "{\"rope_parameters\": {\"full_attention\": {\"rope_type\": \"linear\", \"factor\": 8, "
        "\"rope_theta\": 500000}, \"sliding_attention\": {\"rope_theta\": 20000}}}"};
    for (size_t i = 0; i < ARRAY_LEN(configs); i++) {
        struct rope full, local;
        json_t *config;
        struct keys k;
        expect_ok(json_read_text(&config, configs[i], strlen(configs[i]), "config", ERR_DATA));
        for (int again = 0; again < 2; again++) {
            keys_init(&k, config, NULL);
            rope_parse_both(&full, &local, &k, 128, &rules, 1e4);
            expect_ok(keys_finish(&k));
            assert_int_equal(full.type, ROPE_LINEAR);
            assert_true(full.factor == 8 && full.theta == 500000);
            assert_int_equal(local.type, ROPE_DEFAULT);
            assert_true(local.factor == 1 && local.theta == 20000);
            json_object_clear(config);
            expect_ok(rope_export_both(&full, &local, config));
        }
        json_decref(config);
    }
}

static void a_part_of_a_head_turns_as_a_head_of_that_size(void **state)
{
    (void)state;
    static const struct rope_rules partial = {.theta = 10000, .partial = true};
    json_t *config = json_pack("{s:f}", "partial_rotary_factor", 0.75);
    struct rope r;
    struct keys k;
    float table[HEAD_DIM / 2];
    for (int again = 0; again < 2; again++) {
        keys_init(&k, config, NULL);
        rope_parse(&r, &k, 128, &partial);
        expect_ok(keys_finish(&k));
        assert_int_equal(rope_channels(&r, HEAD_DIM), 12);
        rope_inv_freq(&r, 12, table);
        assert_true(fabs((double)table[1] - pow(10000, -2.0 / 12)) < 1e-7);
        json_object_clear(config);
        expect_ok(rope_export(&r, config));
    }
    json_decref(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_equal_those_of_transformers),
        cmocka_unit_test(both_exported_spellings_read_back_the_same),
        cmocka_unit_test(what_we_lack_is_refused_by_name),
        cmocka_unit_test(two_bases_read_back_from_both_spellings),
        cmocka_unit_test(a_part_of_a_head_turns_as_a_head_of_that_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
